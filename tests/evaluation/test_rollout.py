"""Tests of playing episodes: summaries on device and host, recordings and videos."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import gymnasium
import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from helpers.toy_envs import Counter
from orac.config.schema import Constraint, EnvConfig
from orac.config.validation import NonFiniteError
from orac.envs.baselines import long_path, short_path
from orac.envs.gym_adapter.make import make_host
from orac.envs.maze.env import GuardedMaze
from orac.evaluation import rollout
from orac.evaluation.episodes import summarise
from orac.evaluation.rollout import (
    check_video_path,
    record_episodes,
    record_video,
    roll_out,
    roll_out_host,
)

CONSTRAINT = Constraint("cost", limit=5.0, tail=0.05)


BASELINES = {make: jax.jit(make(GuardedMaze())) for make in (long_path, short_path)}


def act(params, key, observation, baseline=None):
    return BASELINES[baseline](observation)


POLICIES = {make: partial(act, baseline=make) for make in BASELINES}
"""One function per baseline, so that tests share the compiled programs."""


def play(baseline, episodes=4000, seed=0):
    return roll_out(
        jax.random.key(seed), None, GuardedMaze(), POLICIES[baseline], episodes
    )


def test_the_long_path_costs_four_in_every_episode():
    rolled = play(long_path)
    assert len(rolled) == 4000 and (rolled.cost == 4).all()
    assert (rolled.metrics["path"] == 1).all()
    summary = summarise(rolled, [CONSTRAINT], ["cost"], GuardedMaze.METRICS)
    assert summary["cost/cvar_0.05"] == summary["cost/mean"] == 4
    assert summary["cost/violation_rate"] == 0 and summary["cost/limit"] == 5


def test_the_short_path_has_a_low_mean_and_a_high_tail():
    rolled = play(short_path)
    assert set(np.unique(rolled.cost)) == {2.0, 20.0}
    summary = summarise(
        rolled, [CONSTRAINT], ["cost"], GuardedMaze.METRICS, tails=(1.0,)
    )
    # Four standard errors of 18 * sqrt(0.15 * 0.85 / 4000).
    assert summary["cost/mean"] == pytest.approx(4.7, abs=0.41)
    assert summary["cost/cvar_0.05"] == 20
    assert summary["cost/cvar_1"] == pytest.approx(summary["cost/mean"], rel=1e-12)
    assert summary["cost/violation_rate"] == (rolled.cost > 5).mean()


def test_the_same_key_plays_the_same_episodes():
    one, same, other = play(short_path), play(short_path), play(short_path, seed=1)
    np.testing.assert_array_equal(one.reward, same.reward)
    assert not np.array_equal(one.reward, other.reward)


def test_many_episodes_are_played_in_batches(monkeypatch):
    monkeypatch.setattr(rollout, "MAX_BATCH", 4000)
    rolled = play(short_path, episodes=11_999)
    assert len(rolled) == 11_999 and rolled.cost.shape == (11_999, 1)
    assert all(len(values) == 11_999 for values in rolled.metrics.values())
    first, second, third = np.split(rolled.reward, [4000, 8000])
    assert not np.array_equal(first, second)
    assert not np.array_equal(second[:3999], third)


class Walk(gymnasium.Env):
    """A random walk whose episodes have random lengths; a step costs 1."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    metric_names = ("start",)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=3)
        self.start = float(self.at[0])
        return self.at.astype(np.float32), {}

    def step(self, action):
        self.at = 0.9 * self.at + 0.3 * self.np_random.normal(size=3)
        self.at[:2] += action
        ends = bool(self.np_random.random() < 0.1)
        info = {"cost": 1.0, "start": self.start}
        return self.at.astype(np.float32), float(self.at.sum()), ends, False, info


WEIGHTS = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)


def walk_policy(observation, noise):
    action = np.tanh(observation @ WEIGHTS)
    return action if noise is None else np.clip(action + 0.3 * noise, -1, 1)


def play_walk(env, episodes=23, samples=False):
    host = make_host(env, episode_length=200)
    return roll_out_host(jax.random.key(0), walk_policy, host, episodes, samples)


def vector_of_walks(num_envs, mode=AutoresetMode.DISABLED):
    return SyncVectorEnv([Walk] * num_envs, autoreset_mode=mode)


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize("num_envs", [2, 5, 8, 11, 30])
def test_episodes_on_the_host_are_the_same_for_any_number_of_environments(
    num_envs, samples
):
    one, several = (
        play_walk(vector_of_walks(n), samples=samples) for n in (1, num_envs)
    )
    np.testing.assert_array_equal(one.reward, several.reward)
    np.testing.assert_array_equal(one.cost, several.cost)
    np.testing.assert_array_equal(one.length, several.length)
    np.testing.assert_array_equal(one.metrics["start"], several.metrics["start"])
    # All 23 are different episodes, and their lengths differ.
    assert len({*one.metrics["start"]}) == 23 and len({*one.length}) > 5
    assert (one.cost[:, 0] == one.length).all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_way_of_restarting_does_not_change_the_episodes(mode):
    expected, restarted = (
        play_walk(vector_of_walks(4, way)) for way in (AutoresetMode.DISABLED, mode)
    )
    np.testing.assert_array_equal(expected.reward, restarted.reward)
    np.testing.assert_array_equal(expected.length, restarted.length)


def test_more_episodes_on_the_host_start_with_the_same_ones():
    few, many = (play_walk(vector_of_walks(4), n) for n in (10, 23))
    np.testing.assert_array_equal(few.reward, many.reward[:10])


def test_sampled_actions_differ_from_the_mean():
    mean, sampled = (play_walk(vector_of_walks(3), samples=x) for x in (False, True))
    np.testing.assert_array_equal(mean.metrics["start"], sampled.metrics["start"])
    assert not np.array_equal(mean.reward, sampled.reward)


def test_a_vector_environment_without_seeds_plays_whole_episodes_of_each_row():
    host = make_host("orac/GuardedMaze-v0", 3, vectorization="vector")
    assert not host.seeds_episodes
    rolled = roll_out_host(
        jax.random.key(0), lambda rows, noise: np.zeros((8, 2), np.float32), host, 7
    )
    host.close()
    assert len(rolled) == 7 and rolled.cost.shape == (7, 1)
    # Without actions the agent only drifts, and most episodes last a hundred steps.
    assert rolled.length.max() == 100 and (rolled.reward >= -32).all()


@pytest.mark.parametrize("episodes", [0, -1, 10**9])
def test_an_invalid_number_of_episodes_raises_an_error(episodes):
    with pytest.raises(ValueError, match="episodes must be"):
        play(long_path, episodes=episodes)


def test_a_recording_has_every_step_of_every_episode():
    policy = BASELINES[long_path]
    recording = record_episodes(GuardedMaze(), policy, 3, seed=1)
    steps = recording.lengths.max()
    assert recording.observations.shape == (steps + 1, 3, 2)
    assert recording.costs.shape == (steps, 3, 1) and not recording.frames
    for i, length in enumerate(recording.lengths):
        assert recording.costs[:length, i].sum() == 4
    assert (recording.metrics["path"] == 1).all()
    again = record_episodes(GuardedMaze(), policy, 3, seed=1)
    np.testing.assert_array_equal(again.observations, recording.observations)


def test_a_recording_of_a_gymnasium_environment_has_frames_and_a_flat_observation():
    env = gymnasium.make("orac/GuardedMaze-v0", render_mode="rgb_array")
    with env:
        recording = record_episodes(env, BASELINES[long_path], seed=2)
    steps = recording.lengths[0]
    assert recording.observations.shape == (steps + 1, 1, 2)
    assert recording.rewards.shape == (steps, 1)
    assert len(recording.frames) == steps + 1 and recording.frames[0].ndim == 3


class NoRenderMode(gymnasium.Env):
    """An environment that never ends and takes no render_mode."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, False, {}


class NoRenderMethod(NoRenderMode):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


class RendersNothing(NoRenderMethod):
    def render(self):
        return None


class Renders(NoRenderMethod):
    def render(self):
        return np.full((4, 6, 3), 20 * self.steps, np.uint8)


@pytest.fixture
def film(tmp_path):
    """Film an environment of a class, which ends after two steps or is cut at `length`."""

    def record(kind, length=None):
        name = f"{kind.__name__}-v0"
        steps = 2 if length is None else None
        gymnasium.register(name, entry_point=kind, max_episode_steps=steps)
        made.append(name)
        return imageio.imread(record_video(agent_in(name, length), tmp_path / "a.gif"))

    made: list[str] = []
    yield record
    for name in made:
        del gymnasium.registry[name]


def agent_in(env_id, length=None):
    return SimpleNamespace(
        config=SimpleNamespace(env=EnvConfig(env_id, episode_length=length)),
        spec=SimpleNamespace(episode_length=9),
        predict=lambda flat, **options: (np.zeros((len(flat), 1), np.float32), None),
    )


def test_video_has_a_frame_before_and_after_each_step(film):
    frames = film(Renders)
    assert frames.shape == (3, 4, 6, 3)
    assert frames[:, 0, 0, 0].tolist() == [0, 20, 40]


def test_video_is_not_written_through_a_link(film, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.gif").symlink_to(tmp_path / "victim")
    assert len(film(Renders)) == 3
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "a.gif").is_symlink()
    assert len([*tmp_path.iterdir()]) == 2


def test_video_ends_where_training_truncates_the_episode(film):
    assert len(film(Renders, length=4)) == 5


@pytest.mark.parametrize("kind", [NoRenderMode, NoRenderMethod, RendersNothing])
def test_environment_without_frames_raises_an_error_that_says_what_to_add(film, kind):
    with pytest.raises(ValueError) as caught:
        film(kind)
    assert str(caught.value) == (
        f"{kind.__name__}-v0 cannot be filmed: let it take render_mode='rgb_array', list "
        "that mode in metadata['render_modes'], and return an image of (height, width, 3) "
        "from render()."
    )


def test_unregistered_environment_cannot_be_filmed(tmp_path):
    with pytest.raises(ValueError, match=r"^Nowhere cannot be filmed: Environment"):
        record_video(agent_in("Nowhere"), tmp_path / "a.gif")


def test_video_path_must_end_in_a_known_format(tmp_path):
    with pytest.raises(ValueError, match=r"got 'a\.avi'"):
        check_video_path(tmp_path / "a.avi")


def test_an_episode_that_goes_on_after_its_declared_length_is_no_result():
    class Longer(Counter):
        @property
        def spec(self):
            return replace(super().spec, episode_length=2)

    with pytest.raises(ValueError, match="must end within the 2 steps of its spec"):
        roll_out(jax.random.key(0), None, Longer(), still, 4)


def still(params, key, observation):
    return jnp.zeros((len(observation), 1))


FAULTS = {
    "cost": (
        ValueError,
        "cost must be at least 0, but it was negative in episode 0, so ",
    ),
    "observation": (
        NonFiniteError,
        "the environment's observation was not finite in ep",
    ),
    "reward": (
        NonFiniteError,
        "the environment's reward was not finite in episode 0, so",
    ),
}


@pytest.mark.parametrize("field", FAULTS)
def test_a_fault_in_the_last_step_of_an_episode_is_no_result(field):
    wrong = {"cost": jnp.array([-1.0]), "observation": jnp.full(1, jnp.nan)}

    class Faulty(Counter):
        def step(self, key, state, action):
            state, step = super().step(key, state, action)
            value = wrong.get(field, jnp.nan)
            value = jnp.where(step.done, value, getattr(step, field))
            return state, step._replace(**{field: value})

    kind, message = FAULTS[field]
    with pytest.raises(kind, match=message) as caught:
        roll_out(jax.random.key(0), None, Faulty(), still, 4)
    assert type(caught.value) is kind
    assert str(caught.value).endswith("Fix it in the environment that returned it.")
