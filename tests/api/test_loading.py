"""Tests of loading saved agents."""

import inspect
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import orac
from helpers.pendulum import TINY, too_fast
from orac.api.loading import (
    check_same_env,
    check_same_id,
    config_for_env,
    is_same_env,
    other_cost_fn,
)
from orac.config.presets import preset
from orac.config.serialization import to_dict
from orac.runs.directory import RunDirectory


def test_a_saved_agent_comes_back_the_same(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    observation = [0.3, -0.2, 1.0]
    np.testing.assert_array_equal(
        pendulum.predict(observation)[0], again.predict(observation)[0]
    )


def test_an_agent_that_only_predicts_and_evaluates_has_no_replay(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    again.predict(np.zeros(3))
    again.certify(again.evaluate(episodes=2).episodes)
    assert again.runner.state.replay == ()
    assert pendulum.runner.state.replay.capacity > 0


def test_an_agent_that_was_never_evaluated_has_nothing_to_plot(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    with pytest.raises(ValueError, match="nothing to plot, because this agent was not"):
        again.plot()


class TwoCosts(gymnasium.Wrapper):
    """Pendulum that reports two costs as one flat array."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action):
        observation, reward, *ends, _ = super().step(action)
        costs = np.array([float(abs(observation[2]) > 4.0), 3.0])
        return observation, reward, *ends, {"cost": costs}


def test_several_costs_come_in_one_array_and_a_saved_agent_finds_them_again(tmp_path):
    constraints = [orac.Constraint("speed", 5, 0.5), orac.Constraint("place", 2, 0.1)]
    agent = orac.WCSAC(TwoCosts, constraints=constraints, settings=TINY)
    assert agent.evaluate(1)["cost/place/mean"] == 600.0
    agent.save(tmp_path / "agent.orac")
    again = orac.load(tmp_path / "agent.orac", env=TwoCosts)
    assert again.spec.cost_names == ("speed", "place")
    with pytest.raises(ValueError) as caught:
        orac.load(tmp_path / "agent.orac")
    assert str(caught.value) == (
        "the environment of this run is 'TwoCosts', which is not registered with Gymnasium "
        "here. In Python, pass it again as env= (the class, factory or object that was "
        "used for training). In the shell, register it in a module, such as my_envs.py, with "
        "gymnasium.register('TwoCosts-v0', entry_point=TwoCosts), and add --env-id "
        "my_envs:TwoCosts-v0."
    )


class Calm(gymnasium.Env):
    """Another environment with the spaces of Pendulum."""

    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)
    episode_length = 200

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("trained", "now", "same"),
    [
        ("mine:Pendulum-v1", "mine:Pendulum-v1", True),
        ("mine:Pendulum-v1", "Pendulum-v1", True),
        ("Pendulum-v1", "mine:Pendulum-v1", True),
        ("mine:Pendulum-v1", "other:Pendulum-v1", False),
        ("mine:Pendulum-v1", "mine:Other-v0", False),
    ],
)
def test_an_environment_of_another_module_is_another_one(trained, now, same, pendulum):
    base = preset("orac", "Pendulum-v1")
    params = (("size", 3),)
    config = replace(base, env=replace(base.env, id=trained, params=params))
    assert is_same_env(config, now, pendulum.runner) is same
    assert (config_for_env(config, now).env.params == params) is same
    if same:
        check_same_id(config, now, Path())
    elif ":" in trained:
        with pytest.raises(ValueError, match="must be resumed in its own environment"):
            check_same_id(config, now, Path())


@pytest.mark.parametrize("other", [lambda: Calm(), Calm])
def test_a_run_is_not_resumed_in_another_environment(pendulum, tmp_path, other):
    config = pendulum.config
    place = tmp_path, config.env.id, config.algo, config.seed
    with RunDirectory.create(*place, to_dict(config)) as run:
        path = run.path
    says = r"in its own environment, Pendulum-v1, got Calm\. Pass .* start a new run"
    with pytest.raises(ValueError, match=says):
        orac.resume(path, env=other, cost_fn=too_fast)


def test_the_same_environment_may_be_passed_in_another_form(pendulum):
    def make():
        return gymnasium.make("Pendulum-v1")

    for env in (make, lambda: make(), make()):
        check_same_env(pendulum.config, env, pendulum.runner, Path())


def test_a_cost_function_that_cannot_be_compared_is_named(tmp_path):
    agent = orac.SAC("Pendulum-v1", cost_fn=lambda *_: 0.0, settings=TINY)
    agent.save(tmp_path / "agent.orac")
    says = r"trained with the cost function .*<lambda> and now has helpers.*too_fast"
    with pytest.warns(UserWarning, match=says):
        again = orac.load(tmp_path / "agent.orac", cost_fn=too_fast)
    assert again._new_cost_fn is None


@pytest.mark.parametrize(
    ("before", "now", "other"),
    [
        ("mine:fast", "mine:fast", None),
        ("mine:fast", "mine:slow", "mine:slow"),
        (None, "mine:slow", "mine:slow"),
        ("__main__:fast", "mine:fast", None),
        ("mine:<lambda>", "mine:fast", None),
    ],
)
def test_another_cost_function_than_that_of_training_is_noticed(before, now, other):
    base = preset("orac", "Pendulum-v1")
    configs = [replace(base, env=replace(base.env, cost_fn=x)) for x in (before, now)]
    assert other_cost_fn(*configs) == other


def test_a_loaded_agent_takes_the_cost_bound_that_a_certificate_needs(
    pendulum, tmp_path
):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast, cost_bound=200)
    assert again.spec.cost_bounds == (200.0,)


def test_a_run_is_started_once_and_then_resumed_with_its_cost_bound(tmp_path):
    agent = orac.WCSAC("Pendulum-v1", cost_fn=too_fast, cost_limit=10, settings=TINY)
    agent.learn(200, out=tmp_path, progress_bar=False, trackers=())
    again = orac.WCSAC("Pendulum-v1", cost_fn=too_fast, cost_limit=10, settings=TINY)
    call = f"orac.resume({str(agent.run_path)!r}, cost_fn='{too_fast.__module__}:too_fast')"
    with pytest.raises(FileExistsError) as caught:
        again.learn(200, out=tmp_path, progress_bar=False, trackers=())
    assert str(caught.value) == (
        f"{agent.run_path} already holds a run. For a new run, pass another name= or out= to "
        f"learn, or another seed= to the agent. To continue that run: {call}"
    )
    options = {"cost_fn": too_fast, "progress_bar": False, "trackers": (), "log": str}
    again = orac.resume(agent.run_path, cost_bound=200, **options)
    assert again.spec.cost_bounds == (200.0,)


@pytest.mark.parametrize("function", [orac.load, orac.resume])
def test_load_and_resume_name_their_options_and_suggest_the_nearest(function):
    with pytest.raises(
        ValueError, match=r"got 'cost_bond'\. Did you mean 'cost_bound'"
    ):
        function("nowhere", cost_bond=200)
    made = inspect.signature(orac.make_agent).parameters
    options = inspect.signature(function).parameters
    shared = {"cost_fn", "encoder", "cost_bound", "cost_names", "cost_keys"}
    for name in (*shared, "metric_names", "vectorization"):
        assert options[name] == made[name], name
