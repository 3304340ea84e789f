"""Tests of `make_agent` and the agents: their options, and the errors for wrong ones."""

import inspect
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import orac
from helpers.pendulum import TINY, too_fast
from orac.envs.gym_adapter.make import make_host
from orac.envs.maze.env import GuardedMaze


def test_the_signature_of_every_agent_names_all_options_with_their_defaults():
    made = inspect.signature(orac.make_agent).parameters
    assert [*made][:2] == ["algo", "env"]
    for make in (orac.ORAC, orac.WCSAC, orac.SACLagrangian, orac.SAC):
        options = inspect.signature(make).parameters
        assert [*options.values()] == [*made.values()][1:]
        kinds = {one.kind for name, one in options.items() if name != "env"}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
        assert options["tail"].default is None and options["seed"].default == 0
        assert make.__name__ in orac.__all__ and "`make_agent`" in make.__doc__
        described = re.findall(r"^    (\w+): ", inspect.getdoc(make), re.MULTILINE)
        assert described == [*options], "help() describes every option"
    for name in made:
        text = orac.make_agent.__doc__
        assert re.search(rf"^ +{name}: ", text, re.MULTILINE), name


def test_an_agent_takes_the_options_of_the_adapter_with_the_same_defaults():
    made = inspect.signature(orac.make_agent).parameters
    host = inspect.signature(make_host).parameters
    shared = {name for name, one in host.items() if one.kind is one.KEYWORD_ONLY}
    # An agent's keyword arguments for its environment are part of its config.
    assert shared - made.keys() == {"env_kwargs"}
    for name in shared & made.keys():
        assert made[name].default == host[name].default, name


@pytest.mark.parametrize("make", [orac.ORAC, partial(orac.make_agent, "orac")])
def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(make):
    with pytest.raises(
        ValueError, match=r"got 'cost_limt'\. Did you mean 'cost_limit'"
    ):
        make("Pendulum-v1", cost_limt=3)


def test_several_constraints_have_names_limits_and_tails_of_their_own():
    def two_costs(observation, action, next_observation, info):
        return [float(abs(next_observation[2]) > 4.0), float(np.abs(action).sum())]

    agent = orac.WCSAC(
        "Pendulum-v1",
        cost_fn=two_costs,
        constraints=[
            orac.Constraint("speed", limit=10, tail=0.25),
            orac.Constraint("effort", limit=150, tail=1.0),
        ],
        settings=TINY,
    )
    agent.learn(200, progress_bar=False)
    result = agent.evaluate(2)
    assert {"cost/speed/mean", "cost/effort/mean", "cost/effort/limit"} <= set(
        result.summary
    )
    assert agent.runner.state.agent.multiplier.value.shape == (2,)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"env": "CartPole-v1"}, "continuous"),
        ({"env": "Pendulum-v1"}, "cost"),
        ({"env": "Pendulum-v1", "cost_fn": lambda *_: float("nan")}, "nan"),
        ({"env": "Pendulum-v1", "cost_fn": lambda obs: 0.0}, "cost_fn"),
        ({"env": GuardedMaze(), "cost_fn": too_fast}, "cost_fn must be None"),
        ({"env": GuardedMaze(), "constraints": [], "tail": 0.5}, "either constraints"),
        (
            {
                "env": GuardedMaze(),
                "constraints": [orac.Constraint("a"), orac.Constraint("b")],
            },
            "Give one constraint for each cost",
        ),
        ({"env": GuardedMaze(), "settings": {"agent.kapa": 1}}, "Did you mean 'kappa'"),
        ({"env": GuardedMaze(), "cost_limt": 3}, "Did you mean 'cost_limit'"),
        ({"env": "Pendulum-v1", "cost_key": "speed"}, "Did you mean 'cost_keys'"),
        (
            {"env": GuardedMaze(), "seed": 2**70},
            r"seed must be at most 4,294,967,295, got 1.18e",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(options, fragment):
    env = options.pop("env")
    with pytest.raises(ValueError, match=fragment):
        orac.WCSAC(env, **options)


WORDS_OF_ANOTHER_KIND = {
    "orac.ORAC(MAZE, constraints=orac.Constraint('cost'))": "constraints must be a "
    "list, got Constraint(name='cost', limit=25.0",
    "orac.ORAC(MAZE, constraints=[{'name': 'cost'}])": "each entry of constraints "
    "must be an orac.Constraint, got {'name': 'cost'}. Write constraints=[orac.Constraint(",
    "orac.ORAC(MAZE, tail='x')": "tail must be in (0, 1], got 'x'.",
    "orac.ORAC(MAZE, cost_limit='x')": "cost_limit must be at least 0, got 'x'.",
    "AGENT.learn(20, callback=3)": "callback must be a function that takes an event, got 3.",
    "orac.resume('nowhere', callback=3)": "callback must be a function that takes an event, got 3.",
    "AGENT.evaluate(tails='x')": "tail of risk measure 'cvar' must be in (0, 1]",
    "AGENT.evaluate(tails=1e-320)": "each of tails must be in [1e-05, 1], got 1e-320.",
    "AGENT.evaluate(tails=[2.0])": "tail of risk measure 'cvar' must be in (0, 1]",
    "AGENT.evaluate(seed=2**32)": "the seed of an evaluation must be at most 4,294,967,295",
    "AGENT.predict([0, 0], deterministic=False, seed=2**70)": "seed must be at most 4,294,967,295",
    "AGENT.predict({'a': 1.0})": "observation must be an array of 2 real numbers or a batch of "
    "such rows, got a",
}


def test_a_limit_of_zero_needs_a_cost_scale_which_settings_can_give():
    with pytest.raises(ValueError, match=r"Set constraints\.0\.cost_scale to a cost"):
        orac.ORAC("orac/GuardedMaze-v0", preset="fast", cost_limit=0)
    settings = {"constraints.0.cost_scale": 5.0}
    agent = orac.ORAC(
        "orac/GuardedMaze-v0", preset="fast", cost_limit=0, settings=settings
    )
    assert agent.config.constraints[0].limit == 0
    assert agent.config.constraints[0].unit == 5.0


@pytest.fixture(scope="module")
def told_without_types():
    """What a user is told, whose types nobody checks as they are checked in these tests."""
    code = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import orac
from helpers import probes
MAZE = "orac/GuardedMaze-v0"
SMALL = {{"agent.hidden_sizes": [8]}}
AGENT = orac.SACLagrangian(probes.FixedReward(), cost_limit=1, settings=SMALL)
told = {{}}
for words in {list(WORDS_OF_ANOTHER_KIND)!r}:
    try:
        told[words] = repr(eval(words))
    except Exception as error:
        told[words] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(told))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("words", WORDS_OF_ANOTHER_KIND)
def test_a_word_of_another_kind_gets_a_sentence(told_without_types, words):
    assert told_without_types[words].startswith(
        f"ValueError: {WORDS_OF_ANOTHER_KIND[words]}"
    )
