"""Tests of environments of Brax and MuJoCo Playground.

Most tests are quick, because they use a small environment that has the interface of both
libraries. The slow ones train in a real task of each library.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import orac
from orac.cli.main import main
from orac.envs.base import reset_batch, step_batch
from orac.envs.brax_adapter import adapt, flatten_observation, is_brax_like

SETTINGS = {
    "training.total_steps": 800,
    "training.learning_starts": 200,
    "training.log_every": 200,
    "training.batch_size": 32,
    "training.buffer_size": 1000,
    "training.gradient_steps": 0.125,
    "evaluation.every": 400,
    "evaluation.episodes": 4,
    "agent.hidden_sizes": [16, 16],
    "agent.num_quantiles": 8,
}


@jax.tree_util.register_dataclass
@dataclass
class State:
    """The fields that the states of both libraries have."""

    obs: Any
    reward: Any
    done: Any
    metrics: dict = field(default_factory=dict)
    info: dict = field(default_factory=dict)


class Walk:
    """A random walk that ends above 3. Like theirs, its step changes the given dicts."""

    observation_size = property(lambda self: 1 / 0)
    action_size = 1

    def reset(self, rng):
        first = jax.random.uniform(rng, (1,))
        zero = jnp.zeros(())
        metrics = {"cost": zero, "height": zero}
        return State(first, zero, zero, metrics, {"rng": rng})

    def step(self, state, action):
        state.info["rng"], key = jax.random.split(state.info["rng"])
        height = state.obs + action + 0.1 * jax.random.normal(key, (1,))
        state.metrics.update(cost=jnp.abs(height[0]), height=height[0])
        done = jnp.where(height[0] > 3, 1.0, 0.0)
        return State(height, height[0], done, state.metrics, state.info)


def make(env=None, **options):
    defaults = {"episode_length": 5, "cost_fn": None, "cost_names": ("cost",)}
    return adapt(env or Walk(), params={}, **defaults | options)


def play(env, action, steps, num_envs=3):
    """Return the steps of a batch with one constant action, and what is acted on next."""
    state, observation = reset_batch(env, jax.random.key(0), num_envs)
    found = [(observation, None)]
    run = jax.jit(lambda key, state, a: step_batch(env, key, state, a))
    for t in range(steps):
        state, observation, step = run(
            jax.random.key(t), state, jnp.full((num_envs, 1), action)
        )
        found.append((observation, step))
    return found


def test_time_limit_is_a_truncation_with_the_true_last_observation():
    found = play(make(), 0.0, 11)
    for t, (observation, step) in enumerate(found[1:], 1):
        assert not step.terminated.any()
        assert (step.truncated == (t % 5 == 0)).all()
        # The walk goes on from the last observation, and the next episode starts anew.
        last = step.observation[:, 0]
        before = found[t - 1][0][:, 0]
        assert (np.abs(last - before) < 0.6).all()
        assert (step.metrics["height"] == last).all()
        restarted = ~np.isclose(observation[:, 0], last)
        assert restarted.all() if t % 5 == 0 else not restarted.any()


def test_end_of_the_task_is_a_termination():
    found = play(make(), 1.0, 4)
    ended = [step.terminated for _, step in found[1:]]
    assert np.any(ended) and not np.any([step.truncated for _, step in found[1:]])
    for observation, step in found[1:]:
        over = step.observation[:, 0] > 3
        assert (step.terminated == over).all() and (observation[over] <= 1).all()


def test_end_at_the_time_limit_is_only_a_termination():
    found = play(make(episode_length=4), 1.0, 4)
    steps = [step for _, step in found[1:]]
    assert not any((step.terminated & step.truncated).any() for step in steps)


def test_cost_is_a_metric_or_computed_by_a_function():
    step = play(make(), 0.5, 1)[1][1]
    np.testing.assert_allclose(step.cost[:, 0], np.abs(step.observation[:, 0]))

    def cost_fn(observation, action, next_observation, info):
        return jnp.where(info["height"] > 0, 2.0 + action[0] - observation[0], 0.0)

    first, (_, step) = play(make(cost_fn=cost_fn), 0.5, 1)
    np.testing.assert_allclose(step.cost[:, 0], 2.5 - first[0][:, 0], rtol=1e-6)


def test_reset_and_step_leave_their_arguments_as_they_are():
    env = make()
    state, _ = env.reset(jax.random.key(1))
    before = jax.tree.map(np.asarray, state)
    env.step(jax.random.key(2), state, jnp.ones(1))
    jax.tree.map(np.testing.assert_array_equal, state, before)


def test_privileged_observations_are_left_out():
    seen = flatten_observation({"state": jnp.ones(3), "privileged_state": jnp.zeros(5)})
    assert seen.shape == (3,)
    assert flatten_observation({"a": jnp.ones(2), "b": jnp.zeros((2, 2))}).shape == (6,)


def test_their_wrappers_are_taken_off():
    class EpisodeWrapper:
        action_size, observation_size, action_repeat = 1, 1, 1

        def __init__(self, env, episode_length):
            self.env, self.episode_length = env, episode_length

        def reset(self, rng):
            raise AssertionError("the wrapper must not be called")

        step = reset

    wrapped = EpisodeWrapper(Walk(), 7)
    assert is_brax_like(wrapped)
    env = make(wrapped, episode_length=None)
    assert env.spec.episode_length == 7 and isinstance(env.env, Walk)
    wrapped.action_repeat = 4
    with pytest.raises(ValueError, match="action_repeat must be 1, got 4"):
        make(wrapped)


def test_environments_of_gymnasium_are_not_mistaken_for_theirs():
    import gymnasium

    env = gymnasium.make("Pendulum-v1")
    assert not is_brax_like(env) and not is_brax_like(env.unwrapped)
    assert is_brax_like(Walk()) and not is_brax_like(Walk)


class Counted(Walk):
    """A walk that counts its own time limit, inside of another wrapper."""

    def reset(self, rng):
        state = super().reset(rng)
        state.info["truncation"] = jnp.zeros(())
        return state


def float_of_tracer(observation, action, next_observation, info):
    return float(next_observation[0])


def two_costs(observation, action, next_observation, info):
    return jnp.ones(2)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (
            Walk(),
            {"cost_names": ("fuel",)},
            "'fuel' is not in its info or metrics .cost, hei",
        ),
        (
            Walk(),
            {"cost_keys": ("cost", "height")},
            "one metric per constraint .cost., got cost, height",
        ),
        (Walk(), {"cost_fn": float_of_tracer}, "write the function with jax.numpy"),
        (Walk(), {"cost_fn": two_costs}, "one number per constraint .cost., got 2"),
        (
            Walk(),
            {"cost_bound": (1, 2)},
            "cost_bound must have one number per constraint",
        ),
        (Walk(), {"cost_bound": -1}, "cost_bound must be at least 0"),
        (Walk(), {"episode_length": -1}, "episode_length must be a whole number"),
        (Walk(), {"episode_length": 0}, "at least 1, got 0"),
        (Counted(), {}, "must not count its own time limit"),
    ],
)
def test_what_cannot_work_is_refused(env, options, message):
    with pytest.raises(ValueError, match=message):
        make(env, **options)


def test_object_trains_in_the_compiled_loop_and_is_loaded_again(tmp_path):
    env = Walk()
    options = {"cost_limit": 3, "tail": 0.5, "episode_length": 10, "num_envs": 8}
    agent = orac.ORAC(env, cost_bound=100, settings=SETTINGS, **options)
    assert type(agent.runner).__name__ == "DeviceRunner"
    assert agent.config.env.id == "Walk" and agent.spec.cost_bounds == (100,)
    agent.learn(out=tmp_path, progress_bar=False)
    evaluation = agent.evaluate(4)
    assert evaluation["length/mean"] <= 10 and "env/height" in evaluation.summary
    loaded = orac.load(agent.run_path, env)
    assert loaded.evaluate(4)["reward/mean"] == evaluation["reward/mean"]


def test_options_of_the_host_are_refused():
    with pytest.raises(ValueError, match="an option of Walk must be one of cost_keys"):
        orac.ORAC(Walk(), cost_limit=3, episode_length=10, vectorization="async")
    with pytest.raises(ValueError, match="env_params must be left out"):
        orac.ORAC(Walk(), cost_limit=3, env_params={"size": 3})


def test_sac_needs_no_cost():
    agent = orac.SAC(Walk(), episode_length=10, num_envs=8, settings=SETTINGS)
    assert agent.spec.cost_names == ()


BRAX = """
import jax.numpy as jnp


def fast(observation, action, next_observation, info):
    return jnp.where(jnp.abs(next_observation[3]) > 1.0, 1.0, 0.0)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_brax_task_trains_by_its_id(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pole.py").write_text(BRAX)
    changes = [
        f"--set={name}={value}".replace(" ", "") for name, value in SETTINGS.items()
    ]
    code = main(
        [
            *("train", "--env-id", "brax:inverted_pendulum", "--quiet"),
            *("--cost-fn", "pole:fast", "--cost-limit", "3", "--num-envs", "8"),
            *("--set", "env.episode_length=20", "--set", "env.params.backend=spring"),
            *changes,
        ]
    )
    printed = capsys.readouterr().out
    assert code == 0 and "Evaluate it with: orac evaluate" in printed
    (path,) = tmp_path.glob("runs/brax-inverted_pendulum/orac/default/seed-000")
    assert main(["evaluate", str(path), "--cost-fn", "pole:fast", "--episodes=4"]) == 0
    assert "cost/risk" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Did you mean 'halfcheetah'"):
        orac.ORAC("brax:half_cheetah", cost_limit=3)
    with pytest.raises(ValueError, match="'cost' is not in its info or metrics"):
        orac.ORAC("brax:inverted_pendulum", cost_limit=3)


@pytest.mark.parametrize(
    ("env_id", "module", "install"),
    [
        ("brax:ant", "brax.envs", '"orac-rl[brax]"'),
        ("playground:CheetahRun", "mujoco_playground", '"orac-rl[playground]"'),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_command(
    env_id, module, install, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["train", f"--env-id={env_id}"]) == 1
    assert f": pip install {install} (" in capsys.readouterr().err


class PlaygroundConfig(dict):
    """A config with the interface of Playground's: it has attributes, and checks types."""

    __getattr__ = dict.__getitem__

    def lock(self):
        return self

    def update_from_flattened_dict(self, changes):
        for name, value in changes.items():
            if not isinstance(value, type(self[name])):
                raise TypeError(f"Could not override field {name!r}.")
            self[name] = value


class Robot(Walk):
    """A walk with the attributes that environments of MuJoCo Playground have."""

    def __init__(self, config):
        self._config = config
        # The environments whose config lacks `impl` use the physics in JAX on a CPU.
        physics = config.get("impl", "jax")
        self.mjx_model = SimpleNamespace(impl=SimpleNamespace(value=physics))


class PlaygroundRegistry:
    """The registry of Playground, with four environments and no robot models."""

    ALL_ENVS = ("CartpoleBalance", "Hand", "Plane", "Go1")

    def get_default_config(self, name):
        config = PlaygroundConfig(
            impl="warp", action_repeat=1, ctrl_dt=0.02, episode_length=7
        )
        if name == "Hand":
            del config["impl"]
        return config

    def load(self, name, config_overrides):
        if name == "Go1":
            raise subprocess.CalledProcessError(128, ["git", "clone"])
        if name == "Plane":
            raise NotImplementedError("(mjGEOM_CYLINDER) collisions not implemented.")
        config = self.get_default_config(name)
        config.update_from_flattened_dict(config_overrides)
        return Robot(config)


@pytest.fixture
def playground(monkeypatch):
    registry = PlaygroundRegistry()
    module = SimpleNamespace(registry=registry)
    monkeypatch.setitem(sys.modules, "mujoco_playground", module)
    return registry


@pytest.mark.parametrize("name", ["CartpoleBalance", "Hand"])
def test_playground_id_is_made_with_physics_in_jax(name, playground):
    env = adapt(
        f"playground:{name}",
        params={"ctrl_dt": 0.05},
        episode_length=None,
        cost_fn=None,
        cost_names=("cost",),
    )
    assert env.env.mjx_model.impl.value == "jax" and env.env._config.ctrl_dt == 0.05
    assert env.spec.episode_length == 7


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("CartpoleBalnce", {}, "Did you mean 'CartpoleBalance'"),
        ("CartpoleBalance", {"ctrl_dr": 0.05}, "Did you mean 'ctrl_dt'"),
        ("CartpoleBalance", {"ctrl_dt": "slow"}, "must fit its config: Could not"),
        ("CartpoleBalance", {"impl": "warp"}, "must be 'jax', .* got 'warp'"),
        (
            "CartpoleBalance",
            {"action_repeat": 3},
            '"action_repeat": 1, "ctrl_dt": 0.06, "episode_length": 2',
        ),
        ("Plane", {}, "does not implement a part of its model in JAX: .mjGEOM"),
        ("Go1", {}, "exit status 128.: make the environment once with a connection"),
    ],
)
def test_playground_ids_that_cannot_be_made_are_refused(
    name, params, message, playground
):
    with pytest.raises((ValueError, OSError), match=message):
        orac.ORAC(f"playground:{name}", cost_limit=3, env_params=params)


def test_missing_robot_models_are_one_sentence_in_the_shell(playground, capsys):
    assert main(["train", "--env-id=playground:Go1"]) == 1
    printed = capsys.readouterr().err
    assert "playground:Go1 needs the robot models of MuJoCo Menagerie" in printed
    assert "Traceback" not in printed


def test_object_with_other_physics_is_refused_with_the_code_that_makes_it(playground):
    env = Robot(playground.get_default_config("CartpoleBalance"))
    with pytest.raises(ValueError, match="its impl is 'warp'") as caught:
        orac.ORAC(env, cost_limit=3)
    assert 'registry.load(NAME, config_overrides={"impl": "jax"})' in str(caught.value)
    env = playground.load("CartpoleBalance", config_overrides={"impl": "jax"})
    assert orac.ORAC(env, cost_limit=3).spec.episode_length == 7


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_playground_task_trains_evaluates_and_resumes_by_its_id(tmp_path):
    def fast(observation, action, next_observation, info):
        """Whether the pole turns fast, which is the last number of an observation."""
        return jnp.where(jnp.abs(next_observation[4]) > 0.5, 1.0, 0.0)

    agent = orac.ORAC(
        "playground:CartpoleBalance",
        cost_fn=fast,
        cost_limit=3,
        cost_bound=20,
        num_envs=8,
        episode_length=20,
        settings=SETTINGS,
    )
    agent.learn(out=tmp_path, progress_bar=False)
    evaluation = agent.evaluate(4)
    assert evaluation["length/mean"] == 20 and 0 <= evaluation["cost/mean"] <= 20
    assert 0 < evaluation["reward/mean"] <= 20
    assert 0 < evaluation["env/reward/upright"] <= 1
    loaded = orac.load(agent.run_path, cost_fn=fast)
    assert loaded.evaluate(4)["reward/mean"] == evaluation["reward/mean"]
    resumed = orac.resume(agent.run_path, cost_fn=fast, total_timesteps=1200)
    assert resumed.num_timesteps == 1200

    from mujoco_playground import registry

    warp = registry.load("CartpoleBalance", config_overrides={"impl": "warp"})
    with pytest.raises(ValueError, match="its impl is 'warp'"):
        orac.ORAC(warp, cost_fn=fast, cost_limit=3)
