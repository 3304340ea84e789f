"""Three lines of Python, for every kind of environment."""

import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import jax
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import orac
from orac.envs.gym_adapter.make import make_host
from orac.envs.maze.env import GuardedMaze
from orac.training.export import policy_arrays

TINY = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "training.learning_starts": 100,
    "training.buffer_size": 2000,
    "training.batch_size": 32,
    "training.log_every": 100,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
}


def too_fast(observation, action, next_observation, info):
    return float(abs(next_observation[2]) > 4.0)


@pytest.fixture(scope="module")
def pendulum():
    agent = orac.WCSAC(
        "Pendulum-v1",
        cost_fn=too_fast,
        cost_limit=10.0,
        tail=0.25,
        seed=0,
        settings={**TINY, "training.gradient_steps": 0.25},
    )
    agent.learn(total_timesteps=400, progress_bar=False)
    return agent


def test_a_gymnasium_id_with_a_cost_function_learns(pendulum):
    assert pendulum.num_timesteps == 400
    # One gradient step in four from the hundredth step on.
    assert int(pendulum.runner.state.agent.gradient_steps) == 76
    result = pendulum.evaluate(episodes=4, tails=0.5)
    assert len(result.episodes) == 4 and (result.episodes.length == 200).all()
    assert 0 <= result["cost/mean"] <= result["cost/cvar_0.5"] <= result["cost/worst"]


def test_evaluations_are_the_same_in_any_number_of_environments(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.orac")
    last = {"deterministic": False, "seed": 7, "checkpoint": "last"}
    several = pendulum.evaluate(5, **last).episodes
    one = orac.load(tmp_path / "agent.orac", cost_fn=too_fast)
    evaluation = replace(one.config.evaluation, num_envs=1)
    single = orac.api.Agent(
        "Pendulum-v1", replace(one.config, evaluation=evaluation), cost_fn=too_fast
    )
    single.runner.state = single.runner.state._replace(agent=one.runner.state.agent)
    played = single.evaluate(5, **last).episodes
    assert single.runner.evaluation_env.num_envs == 1
    assert pendulum.runner.evaluation_env.num_envs == 8
    np.testing.assert_array_equal(played.reward, several.reward)
    np.testing.assert_array_equal(played.cost, several.cost)


def test_an_evaluation_plays_the_policy_that_predict_has(pendulum):
    # The evaluation computes actions with NumPy, and predict with JAX.
    host = pendulum.runner.evaluation_env
    policy, mean = pendulum.policy_of()
    arrays = policy_arrays(pendulum.config, pendulum.spec, policy, mean)
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(
        orac.policy.Policy(arrays)(observations),
        pendulum.predict(observations)[0],
        rtol=1e-4,
        atol=1e-5,
    )
    assert host is pendulum.runner.evaluation_env is not pendulum.runner.env


def test_evaluations_do_not_disturb_the_environments_of_training():
    def train(evaluates):
        agent = orac.SAC("Pendulum-v1", cost_fn=too_fast, seed=3, settings=TINY)
        for total in (110, 230, 300):
            agent.learn(total, progress_bar=False)
            if evaluates:
                agent.evaluate(2)
        return jax.tree.leaves(agent.runner.state.agent)

    for one, other in zip(train(True), train(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_factory_that_returns_one_environment_twice_is_refused_at_the_start():
    env = gymnasium.make("Pendulum-v1")
    agent = orac.SAC(lambda: env, cost_fn=too_fast, settings=TINY)
    with pytest.raises(ValueError, match="returned one environment twice"):
        agent.learn(300, progress_bar=False)
    assert agent.num_timesteps == 0


def test_predict_gives_actions_in_the_environments_box(pendulum):
    one, state = pendulum.predict([1.0, 0.0, 0.0])
    many, _ = pendulum.predict(np.zeros((5, 3)))
    assert one.shape == (1,) and many.shape == (5, 1) and state is None
    assert np.abs(many).max() <= 2.0
    drawn = [
        pendulum.predict([1.0, 0.0, 0.0], deterministic=False, seed=i)[0]
        for i in (1, 2)
    ]
    assert drawn[0] != drawn[1]


BAD_OBSERVATIONS = [
    (np.zeros(4), "must have shape (3,) or (batch, 3), got (4,)"),
    (np.zeros((2, 2, 3)), "must have shape (3,) or (batch, 3), got (2, 2, 3)"),
    (1.0, "must have shape (3,) or (batch, 3), got ()"),
    ("left", "must be an array of 3 numbers or a batch of such rows, got "),
    ([0.0, np.nan, 0.0], "must be finite"),
    ([[0.0] * 3, [0.0, 0.0, -np.inf]], "must be finite"),
]


@pytest.mark.parametrize(("observation", "says"), BAD_OBSERVATIONS)
def test_an_observation_that_cannot_be_acted_on_is_refused(
    pendulum, observation, says, tmp_path
):
    pendulum.export(tmp_path / "policy.npz")
    for act in (pendulum.predict, orac.policy.load(tmp_path / "policy.npz")):
        with pytest.raises(ValueError, match=re.escape(f"observation {says}")):
            act(observation)


def test_the_number_that_is_not_finite_is_pointed_at(pendulum):
    with pytest.raises(ValueError, match=re.escape("got -inf at index [1, 2]. Check")):
        pendulum.predict([[0.0] * 3, [0.0, 0.0, -np.inf]])


def test_a_nested_observation_of_an_exported_policy_is_to_be_flattened(
    pendulum, tmp_path
):
    pendulum.export(tmp_path / "policy.npz")
    policy = orac.policy.load(tmp_path / "policy.npz")
    with pytest.raises(
        ValueError, match=r"got a dict\. Flatten a Dict or Tuple observation"
    ):
        policy({"angle": [0.0, 1.0], "speed": [0.0]})


def test_another_file_is_no_exported_policy(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    pendulum.export(tmp_path / "whole.npz")
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:500])
    (tmp_path / "my_env.py").write_text("import gymnasium\n")
    (tmp_path / "empty").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    pendulum.export(tmp_path / "policy.onnx")
    others = "half.npz", "my_env.py", "empty", "array.npy", "policy.onnx"
    for name in ("agent.zip", *others):
        with pytest.raises(ValueError) as caught:
            orac.policy.load(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name} must be a policy written by Agent.export as .npz, but it is "
            "another kind of file or incomplete. Use orac.load for a file of Agent.save, "
            "ONNX Runtime for .onnx and jax.export.deserialize for .stablehlo."
        )
    with pytest.raises(FileNotFoundError, match="nowhere"):
        orac.policy.load(tmp_path / "nowhere.npz")


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


def test_an_exported_policy_needs_numpy_alone(pendulum, tmp_path):
    path = tmp_path / "policy.npz"
    pendulum.export(path)
    observation = [0.3, -0.2, 1.0]
    code = (
        "import sys\n"
        "for name in ('jax', 'gymnasium', 'optax', 'jaxtyping'):\n"
        "    sys.modules[name] = None\n"
        "import orac.policy\n"
        f"print(float(orac.policy.load({str(path)!r})({observation})[0]))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert float(told.stdout) == pytest.approx(
        float(pendulum.predict(observation)[0][0]), abs=1e-5
    )


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


def test_an_agent_and_an_evaluation_are_shown_in_one_line(pendulum):
    assert repr(pendulum) == (
        "<wcsac in Pendulum-v1 after 400 steps: CVaR at 0.25 of cost at most 10>"
    )
    shown = repr(pendulum.evaluate(episodes=4))
    assert re.fullmatch(
        r"<Evaluation of 4 episodes: reward -[\d.e+]+, CVaR at 0.25 of cost [\d.]+ "
        r"\(limit 10\)>",
        shown,
    )


def test_an_agent_and_an_evaluation_are_tables_in_a_notebook(pendulum):
    page = pendulum._repr_html_()
    assert "<h3>wcsac in Pendulum-v1</h3>" in page and "400 of 400" in page
    assert "CVaR at 0.25 of cost at most 10" in page
    best = pendulum.best
    assert f"step {best.step}, reward {best.reward:.4g}, a CVaR at 0.25 of" in page
    result = pendulum.evaluate(episodes=4)
    page = result._repr_html_()
    for name in result.summary:
        assert f"<th scope=row>{name}</th>" in page
    assert "<td>10</td>" in page
    strange = replace(result, summary={"<b>": 1.0})
    assert "<b>" not in strange._repr_html_()


def test_an_evaluation_prints_its_summary(pendulum):
    result = pendulum.evaluate(episodes=2)
    assert str(result).splitlines()[0].split() == ["episodes", "2"]
    assert len(str(result).splitlines()) == len(result.summary)


def titles(figure):
    return [axes.get_title("left") for axes in figure.axes]


def test_plots_show_the_learning_curves_and_the_costs(pendulum):
    figure = pendulum.plot()
    assert titles(figure)[:4] == [
        "Measured risk of cost (CVaR at 0.25)",
        "Multiplier of cost",
        "Reward per episode",
        "Mean cost per episode",
    ]
    steps = figure.axes[0].lines[0].get_xdata()
    np.testing.assert_array_equal(steps, [200, 400])
    assert {*figure.axes[0].lines[-1].get_ydata()} == {10}
    assert figure._repr_png_().startswith(b"\x89PNG")
    result = pendulum.evaluate(episodes=4)
    figure = result.plot()
    assert titles(figure) == ["Cost of 4 episodes"]
    (axes,) = figure.axes
    marked = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    assert marked == {
        f"VaR {result['cost/var_0.25']:.4g}": result["cost/var_0.25"],
        f"CVaR {result['cost/cvar_0.25']:.4g} at 0.25": result["cost/cvar_0.25"],
        "limit 10": 10,
    }


def test_an_agent_that_was_never_evaluated_has_nothing_to_plot(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    with pytest.raises(ValueError, match="nothing to plot, because this agent was not"):
        again.plot()


def test_an_environment_object_is_played_by_one_agent_and_its_evaluations():
    env = gymnasium.make("Pendulum-v1")
    with pytest.warns(orac.api.AssumedLimitWarning) as told:
        agent = orac.SACLagrangian(env, cost_fn=too_fast, settings=TINY)
    assert [str(warning.message) for warning in told] == [
        "no cost_limit was given for Pendulum-v1, so the mean of its cost is held below 25 "
        "per episode. Pass cost_limit= and tail=."
    ]
    agent.learn(300, progress_bar=False)
    assert agent.num_timesteps == 300
    result = agent.evaluate(2)
    assert len(result.episodes) == 2
    # It learned from the mean, and is measured at the tail that other agents have.
    assert agent.config.constraints == (orac.Constraint("cost", 25.0, 0.25),)
    assert result["cost/risk"] == result["cost/cvar_0.25"] >= result["cost/mean"]
    (certificate,) = agent.certify(result.episodes)
    assert "CVaR at 0.25" in certificate.quantity


def test_a_jax_environment_is_trained_on_device():
    seen = []

    def stop_early(event):
        seen.append(event)
        return event.step < 300

    agent = orac.ORAC(GuardedMaze(), cost_limit=5, tail=0.05, settings=TINY)
    agent.learn(1000, callback=stop_early, progress_bar=False)
    assert agent.num_timesteps == 300
    assert [event.step for event in seen] == [100, 200, 300]
    assert seen[0].evaluation is None and len(seen[1].evaluation) == 3
    assert seen[0].agent is agent and "constraint/multiplier/cost" in seen[1].metrics


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
        "the environment of this run is called 'TwoCosts', which Gymnasium does not know "
        "here. Pass it again as env= (the class, factory or object that it was trained in), "
        "or import what registers it (in the shell --env-id module:Name-v0)."
    )


class Split(gymnasium.ObservationWrapper):
    """Pendulum that tells angle and speed apart."""

    def __init__(self, kind):
        super().__init__(gymnasium.make("Pendulum-v1"))
        parts = {
            "angle": gymnasium.spaces.Box(-1, 1, (2,)),
            "speed": gymnasium.spaces.Box(-8, 8, (1,)),
        }
        self.kind = kind
        spaces = {dict: gymnasium.spaces.Dict, tuple: gymnasium.spaces.Tuple}
        self.observation_space = spaces[kind](parts if kind is dict else parts.values())

    def observation(self, observation):
        angle, speed = observation[:2], observation[2:]
        if self.kind is tuple:
            return angle, speed
        return {"speed": speed, "angle": angle}


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (lambda: Split(dict), "Split"),
        (partial(Split, dict), "Split"),
        (lambda: gymnasium.make("Pendulum-v1"), "Pendulum-v1"),
        (lambda: TimeLimit(Split(dict), 9), "Split"),
    ],
)
def test_a_factory_without_a_name_has_that_of_what_it_makes(env, name):
    agent = orac.SAC(env, cost_fn=lambda *_: 0.0, settings=TINY)
    assert agent.config.env.id == name
    assert agent.runner.config is agent.config


@pytest.mark.parametrize("kind", [dict, tuple])
def test_nested_observations_are_taken_as_the_environment_gives_them(kind):
    agent = orac.SAC(lambda: Split(kind), cost_fn=lambda *_: 0.0, settings=TINY)
    observation, _ = Split(kind).reset(seed=3)
    flat = gymnasium.make("Pendulum-v1").reset(seed=3)[0]
    np.testing.assert_array_equal(agent.predict(observation)[0], agent.predict(flat)[0])


class Mixed(gymnasium.Env):
    """An environment whose observation has parts of every kind."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "doors": spaces.Tuple(
                [spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(2)]
            ),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode_length = 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {"cost": 0.0}


def test_observations_of_every_kind_are_flattened_and_said_so_once(tmp_path, caplog):
    agent = orac.SAC(Mixed, settings=TINY)
    with pytest.warns(orac.api.ShortRunWarning):
        agent.learn(8, progress_bar=False)
    choice = "with a 1 at each chosen place and 0 elsewhere"
    assert [x.message for x in caplog.records if "flattened" in x.message] == [
        f"observations are flattened to 15 numbers: doors.0 (6, {choice}), doors.1 (2), "
        f"gear (3, {choice}), place (4)."
    ]
    env = Mixed()
    nested = [env.reset(seed=seed)[0] for seed in range(5)]
    flat = np.stack([spaces.flatten(env.observation_space, one) for one in nested])
    wanted = agent.predict(flat)[0]
    agent.export(tmp_path / "policy.npz")
    policy = orac.policy.load(tmp_path / "policy.npz")
    for one, action in zip(nested, wanted, strict=True):
        np.testing.assert_allclose(agent.predict(one)[0], action, atol=1e-6)
        np.testing.assert_allclose(policy(one), action, atol=1e-5)
    np.testing.assert_allclose(policy(flat), wanted, atol=1e-5)
    agent.export(tmp_path / "policy.onnx")
    runtime = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    about = runtime.get_modelmeta().custom_metadata_map
    structure = json.loads(about["observation_structure"])
    rows = np.stack([orac.policy.flatten(one, structure) for one in nested])
    (actions,) = runtime.run(["action"], {"observation": rows})
    np.testing.assert_allclose(actions, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="must be a dict with the keys doors, gear, p"):
        policy({"gear": 1})


def test_a_run_that_will_not_learn_is_warned_about(pendulum, monkeypatch):
    late = replace(pendulum.config.training, learning_starts=500)
    config = replace(pendulum.config, training=late)
    monkeypatch.setattr(pendulum.runner, "config", config)
    monkeypatch.setattr(
        pendulum.runner,
        "configure",
        lambda config: setattr(pendulum.runner, "config", config),
    )
    monkeypatch.setattr(pendulum, "_train", lambda *_: None)
    with pytest.warns(orac.api.ShortRunWarning) as told:
        pendulum.learn(500, progress_bar=False)
    (warning,) = told
    assert str(warning.message) == (
        "learning starts at step 500 and the run ends at 500: it only acts at random. "
        "Set training.learning_starts lower, or train longer."
    )


def test_training_that_is_not_recorded_in_the_run_directory_warns(
    pendulum, monkeypatch, tmp_path
):
    monkeypatch.setattr(pendulum, "run_path", tmp_path / "seed-000")
    monkeypatch.setattr(pendulum.runner, "configure", lambda config: None)
    monkeypatch.setattr(pendulum, "_train", lambda *_: None)
    with pytest.warns(
        orac.api.NotRecordedWarning,
        match=r"not be written to .*orac.resume\('.*seed-000', total_timesteps=500\)",
    ):
        pendulum.learn(500, progress_bar=False)


@pytest.mark.parametrize("total", [100, 400])
def test_steps_that_were_taken_already_are_not_silently_nothing(pendulum, total):
    before = pendulum.config
    with pytest.raises(ValueError) as caught:
        pendulum.learn(total, progress_bar=False)
    assert str(caught.value) == (
        "the total number of steps counts those of earlier calls and must be above the 400 "
        f"steps taken so far, got {total}. For {total} more, pass {400 + total}."
    )
    assert pendulum.config is before


def test_learning_can_go_on(pendulum):
    before = jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0].copy()
    pendulum.learn(500, progress_bar=False)
    assert pendulum.num_timesteps == 500
    assert not np.array_equal(
        before, jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0]
    )


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
            "Give one constraint per cost",
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
    "orac.ORAC(MAZE, constraints=[{'name': 'cost'}])": "constraints must each be an "
    "orac.Constraint, got {'name': 'cost'}. Write constraints=[orac.Constraint(",
    "orac.ORAC(MAZE, tail='x')": "tail must be in (0, 1], got 'x'.",
    "orac.ORAC(MAZE, cost_limit='x')": "cost_limit must be at least 0, got 'x'.",
    "AGENT.learn(20, callback=3)": "callback must be a function of one event, got 3.",
    "orac.resume('nowhere', callback=3)": "callback must be a function of one event, got 3.",
    "AGENT.evaluate(tails='x')": "tail of risk measure 'cvar' must be a tail in (0, 1]",
    "AGENT.evaluate(tails=[2.0])": "tail of risk measure 'cvar' must be a tail in (0, 1]",
    "AGENT.evaluate(seed=2**32)": "the seed of an evaluation must be at most 4,294,967,295",
    "AGENT.predict([0, 0], deterministic=False, seed=2**70)": "seed must be at most 4,294,967,295",
    "AGENT.predict({'a': 1.0})": "observation must be an array of 2 numbers or a batch of "
    "such rows, got a",
}


@pytest.fixture(scope="module")
def told_without_types():
    """What a user is told, whose types nobody checks as they are checked in these tests."""
    code = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
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
