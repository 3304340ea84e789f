"""Tests of loading saved agents."""

import inspect
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward

import orac
from helpers.pendulum import TINY, too_fast
from orac.api.agent import check_own_task
from orac.api.loading import (
    check_same_env,
    check_same_id,
    config_for_env,
    is_same_env,
    other_cost_fn,
    other_env,
)
from orac.config.presets import preset
from orac.config.serialization import to_dict
from orac.runs.directory import RunDirectory, read_meta, write_meta


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
    # Files of earlier versions have no description of the task.
    agent._task = {}
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


class Tank(gymnasium.Env):
    """Reports the cost 0 as info["cost"] and a cost of `scale` as info["danger"]."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    episode_length = 10

    def __init__(self, scale=1.0, render_mode=None):
        self.scale = scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        info = {"cost": 0.0, "danger": self.scale}
        return np.zeros(2, np.float32), 0.0, False, False, info


class OtherTank(Tank):
    """Another class, which may be registered under the same id."""


@pytest.fixture
def tank(monkeypatch):
    """An id that is registered only during the test."""
    monkeypatch.setattr(
        gymnasium.envs.registration, "registry", dict(gymnasium.registry)
    )
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    gymnasium.register("Tank-v0", entry_point=Tank)
    return "Tank-v0"


def run_in(tmp_path, env, **options):
    """Return the directory of a short run, with 20 steps before the first checkpoint."""
    agent = orac.WCSAC(env, cost_limit=3, tail=0.5, settings=TINY, **options)
    agent.learn(120, out=tmp_path, progress_bar=False, trackers=())
    return agent.run_path


QUIET = {"progress_bar": False, "trackers": (), "log": str}


def test_a_run_and_a_saved_agent_remember_how_their_costs_are_read(tank, tmp_path):
    path = run_in(tmp_path, tank, cost_keys="danger", cost_names=["cost"])
    agent = orac.load(path)
    assert agent._has_own_task and agent.evaluate(2)["cost/mean"] == 10.0
    agent.save(tmp_path / "agent.orac")
    again = orac.load(tmp_path / "agent.orac")
    assert again._has_own_task and again.evaluate(2)["cost/mean"] == 10.0
    assert orac.load(path, cost_keys=["danger"])._has_own_task
    for source in (path, tmp_path / "agent.orac"):
        other = orac.load(source, cost_keys=["cost"])
        assert other._new_cost_fn == "cost_keys=['cost']" and not other._has_own_task
        with pytest.raises(ValueError, match=r"its own .*got cost_keys=\['cost'\]"):
            check_own_task(other, source)
    with pytest.raises(ValueError, match=r"select the costs, got cost_keys=\['cost'\]"):
        orac.resume(path, cost_keys=["cost"], total_timesteps=200, **QUIET)
    resumed = orac.resume(path, total_timesteps=140, **QUIET)
    assert resumed.evaluate(2)["cost/mean"] == 10.0


def test_a_run_without_recorded_options_is_read_as_before(tank, tmp_path):
    path = run_in(tmp_path, tank, cost_keys=["danger"])
    meta = read_meta(path)
    for name in ("host_options", "env_made_from"):
        del meta[name]
    write_meta(path, meta)
    assert orac.load(path).evaluate(2)["cost/mean"] == 0.0
    again = orac.load(path, cost_keys=["danger"], env=lambda: gymnasium.make(tank))
    assert again._has_own_task and again.evaluate(2)["cost/mean"] == 10.0


@pytest.mark.parametrize("options", [["cost"], {"cost_keys": 3}, {"cost_fn": ["x:y"]}])
def test_options_that_orac_did_not_write_are_refused(tank, tmp_path, options):
    path = run_in(tmp_path, tank)
    write_meta(path, {**read_meta(path), "host_options": options})
    with pytest.raises(
        ValueError, match=r"host_options in .*meta\.json must have lists"
    ):
        orac.load(path)


def test_an_environment_with_other_arguments_is_another_one(tank, tmp_path):
    path = run_in(tmp_path, tank)
    same = [None, tank, lambda: gymnasium.make(tank), lambda: RecordStatistics(tank)]
    for env in same:
        assert orac.load(path, env)._has_own_task
    cheap = {
        "arguments are": lambda: gymnasium.make(tank, scale=0.01),
        "got Tank": Tank,
        "wrappers are": lambda: TransformReward(gymnasium.make(tank), float),
        "episodes have the length": lambda: gymnasium.make(tank, max_episode_steps=3),
    }
    for says, env in cheap.items():
        agent = orac.load(path, env)
        assert agent._new_env is not None
        with pytest.raises(ValueError, match=f"its own environment, Tank.*{says}"):
            check_own_task(agent, path)
        with pytest.raises(ValueError, match=f"its own environment, Tank.*{says}"):
            orac.resume(path, env, total_timesteps=200, **QUIET)


def RecordStatistics(env_id):
    """Return an environment in a wrapper that does not change the task."""
    return RecordEpisodeStatistics(gymnasium.make(env_id))


def test_an_id_that_is_registered_for_another_class_is_another_environment(
    tank, tmp_path
):
    path = run_in(tmp_path, tank)
    del gymnasium.registry[tank]
    gymnasium.register(tank, entry_point=OtherTank)
    assert orac.load(path)._new_env == tank
    with pytest.raises(
        ValueError, match=r"entry point is .*OtherTank and was .*:Tank in"
    ):
        orac.resume(path, total_timesteps=200, **QUIET)


def test_a_run_of_a_class_goes_on_with_an_id_that_is_registered_for_it(tank, tmp_path):
    path = run_in(tmp_path, Tank)
    for env in (Tank, lambda: Tank()):
        assert orac.load(path, env)._has_own_task
    gymnasium.register("Cheap-v0", entry_point=Tank, kwargs={"scale": 0.01})
    assert other_env(orac.load(path, tank), read_meta(path)) == ""
    for env in (lambda: Tank(0.01), "Cheap-v0"):
        assert not orac.load(path, env)._has_own_task


def test_a_jax_environment_with_other_parameters_is_another_one(tmp_path):
    env_id = "orac/GuardedMaze-v0"
    path = run_in(tmp_path, env_id)
    # The preset of the maze sets `normalize_obs`.
    same = orac.envs.make(env_id, normalize_obs=True)
    assert orac.load(path, same)._has_own_task
    other = replace(same, guard_probability=0.0)
    says = "its guard_probability is 0 and was 0.15 in training"
    agent = orac.load(path, other)
    assert agent._new_env == "GuardedMaze"
    with pytest.raises(ValueError, match=says):
        check_own_task(agent, path)
    with pytest.raises(ValueError, match=says):
        orac.resume(path, other, total_timesteps=200, **QUIET)
    # A run of an object has the parameters of the object, and not those of the id.
    path = run_in(tmp_path / "object", other)
    assert orac.load(path, other)._has_own_task
    assert not orac.load(path, env_id)._has_own_task
    assert not orac.load(path, same)._has_own_task


def test_another_lambda_is_another_cost_function(tank, tmp_path):
    path = run_in(tmp_path, tank, cost_fn=lambda o, a, n, info: info["danger"])
    orac.load(path, cost_fn=lambda o, a, n, info: info["danger"]).save(tmp_path / "a")
    for source in (path, tmp_path / "a"):
        same = orac.load(source, cost_fn=lambda o, a, n, info: info["danger"])
        assert same._has_own_task and not same._not_compared
        other = orac.load(source, cost_fn=lambda o, a, n, info: 0.0)
        assert other._new_cost_fn is not None
        with pytest.raises(
            ValueError, match=r"its code, .* that you define in a module"
        ):
            check_own_task(other, source)
    with pytest.raises(ValueError, match=r"its code, .*orac\.load\(.*cost_fn=\.\.\."):
        cost_fn = lambda o, a, n, info: 0.0  # noqa: E731
        orac.resume(path, cost_fn=cost_fn, total_timesteps=200, **QUIET)
    cost_fn = lambda o, a, n, info: info["danger"]  # noqa: E731
    orac.resume(path, cost_fn=cost_fn, total_timesteps=140, **QUIET)


def test_a_cost_function_of_another_python_or_without_code_is_not_compared(
    tank, tmp_path
):
    path = run_in(tmp_path, tank, cost_fn=lambda o, a, n, info: info["danger"])
    meta = read_meta(path)
    place = {**meta["cost_fn"], "python": "3.1"}
    write_meta(path, {**meta, "cost_fn": place})
    with pytest.warns(UserWarning, match=r"cannot be compared .* used Python 3\.1 and"):
        agent = orac.load(path, cost_fn=lambda o, a, n, info: 0.0)
    assert agent._has_own_task and "cannot be compared" in agent._not_compared
    del place["digest"], place["python"]
    write_meta(path, {**meta, "cost_fn": place})
    with pytest.warns(
        UserWarning, match="cannot be compared with that of training, bec"
    ):
        orac.load(path, cost_fn=lambda o, a, n, info: 0.0)
