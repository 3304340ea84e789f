"""Play whole episodes of a policy: for evaluations, for figures and for videos.

`roll_out` (JAX environments, compiled) and `roll_out_host` (Gymnasium environments) return
the totals of every episode, because tail metrics cannot be computed from means.
`episodes.summarise` computes means and CVaR from these totals.
`record_episodes` returns every step, with the rendered frames of a Gymnasium environment,
and `record_video` writes such frames to a file. A policy is a function that turns a batch of
observations into actions.
"""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from orac.config import overrides, presets
from orac.config.schema import Config, EnvConfig
from orac.config.validation import (
    NonFiniteError,
    check_count,
    frozen_value,
    import_extra,
)
from orac.envs.base import Environment, Step, reset_batch
from orac.envs.baselines import check_baseline
from orac.envs.gym_adapter.vector import HostEnv, derive_seeds
from orac.envs.user_code import check_env_module
from orac.evaluation.episodes import Episodes

MAX_BATCH = 10_000
"""Largest number of episodes played at once. Each of them needs memory for an environment."""
MAX_EPISODES = 10_000_000
"""Largest number of episodes in one evaluation, because every episode is stored."""
MAX_LENGTH = 1_000_000
"""Largest number of steps of an episode in an environment that declares no length."""
FIX_ENVIRONMENT = "Fix it in the environment that returned it."
ACTION_NOT_FINITE = (
    "the policy's action was not finite",
    "The policy has diverged: use an earlier checkpoint of it.",
)
NEGATIVE_COST = "the environment's cost must be at least 0, but it was negative"
FAULTS = (
    ("the environment's observation was not finite", FIX_ENVIRONMENT),
    ACTION_NOT_FINITE,
    ("the environment's reward was not finite", FIX_ENVIRONMENT),
    ("the environment's cost was not finite", FIX_ENVIRONMENT),
    ("the environment's observation was not finite", FIX_ENVIRONMENT),
    (NEGATIVE_COST, FIX_ENVIRONMENT),
)
"""Faults of the values of a step, with advice.

The values are those before the step, the action, and the results of the step, the last of
which is the next observation. An environment that returns NaN after a NaN action is correct,
so the first fault counts. The health checks of training find the same faults.
"""
FRAMES_PER_SECOND = 20
VIDEO_EXTRA = ("Recording a video", "video", "imageio.v3")

BLOCK = 8
"""Number of observations in each call of a policy on the host."""

DevicePolicy = Callable[[Any, Array, Array], Array]
"""Function of (parameters, key, observations) that returns actions for the environment."""
HostPolicy = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
"""Function of (observations, noise) that returns actions for the environment.

`noise` consists of standard normal numbers for sampled actions, or is None for the mean.
"""


@partial(jax.jit, static_argnames=("env", "policy", "episodes"))
def _roll_out(
    key: Key[Array, ""],
    params: Any,
    env: Environment,
    policy: DevicePolicy,
    episodes: int,
) -> tuple[Array, Array, Array, dict[str, Array], Array, Array]:
    """Return the totals of each episode, the argument of `check_faults`, and `done`.

    `done` says for each episode whether it ended within the declared number of steps.
    """
    reset_key, run_key = jax.random.split(key)
    state, observation = reset_batch(env, reset_key, episodes)
    spec = env.spec
    totals = (
        jnp.zeros(episodes),
        jnp.zeros((episodes, spec.num_costs)),
        jnp.zeros(episodes, jnp.int32),
        {name: jnp.zeros(episodes) for name in spec.metric_names},
        jnp.zeros(episodes, jnp.int32),
    )

    def keep_going(carry: Any) -> Array:
        t, *_, done = carry
        return (t < (spec.episode_length or MAX_LENGTH)) & ~done.all()

    def step(carry: Any) -> Any:
        t, state, observation, (reward, cost, length, metrics, invalid), done = carry
        action_key, env_key = jax.random.split(jax.random.fold_in(run_key, t))
        action = policy(params, action_key, observation)
        keys = jax.random.split(env_key, episodes)
        state, now = jax.vmap(env.step)(keys, state, action)
        live = ~done
        # Find the first of FAULTS. It may have caused the others.
        values = (observation, action, now.reward, now.cost, now.observation)
        rows = [~jnp.isfinite(x).reshape(episodes, -1).all(axis=1) for x in values]
        rows.append((now.cost < 0).any(axis=1))
        numbers = [jnp.int32(i + 1) for i in range(len(FAULTS))]
        found = jnp.select(rows, numbers, jnp.int32(0))
        totals = (
            reward + jnp.where(live, now.reward, 0),
            cost + jnp.where(live[:, None], now.cost, 0),
            length + live,
            {k: jnp.where(live, now.metrics[k], v) for k, v in metrics.items()},
            jnp.where(live & (invalid == 0), found, invalid),
        )
        return t + 1, state, now.observation, totals, done | now.done

    start = (jnp.int32(0), state, observation, totals, jnp.zeros(episodes, bool))
    *_, totals, done = jax.lax.while_loop(keep_going, step, start)
    return *totals, done


def roll_out(
    key: Key[Array, ""],
    params: Any,
    env: Environment,
    policy: DevicePolicy,
    episodes: int,
) -> Episodes:
    """Play whole episodes in a JAX environment, in parallel on the device."""
    check_episodes(episodes)
    batches = -(-episodes // MAX_BATCH)
    keys = [jax.random.fold_in(key, i) for i in range(batches)]
    keys = keys if batches > 1 else [key]
    # Batches of equal size share one compiled program; surplus episodes are dropped.
    size = -(-episodes // batches)
    parts = [jax.device_get(_roll_out(k, params, env, policy, size)) for k in keys]
    reward, cost, length, metrics, invalid, done = jax.tree.map(
        lambda *arrays: np.concatenate(arrays)[:episodes], *parts
    )
    check_faults(invalid)
    if not done.all():
        limit = f"{MAX_LENGTH:,} steps that are played at most"
        if env.spec.episode_length:
            limit = f"{env.spec.episode_length:,} steps of its spec"
        raise ValueError(
            f"every episode of {env.spec.name} must end within the {limit}, but episode "
            f"{int((~done).argmax())} did not, so its cost is not known. Set `truncated` at "
            "the last step, or correct `episode_length` in the spec."
        )
    return Episodes(
        reward.astype(np.float64),
        cost.astype(np.float64),
        length,
        {name: values.astype(np.float64) for name, values in metrics.items()},
    )


def check_faults(invalid: np.ndarray) -> None:
    """Raise an error for the first episode with a fault.

    `invalid` has one entry per episode: the index in FAULTS of its first fault, counted from
    1, or 0 if there was none.
    """
    if not invalid.any():
        return
    episode = int(np.flatnonzero(invalid)[0])
    fault, advice = FAULTS[invalid[episode] - 1]
    error = ValueError if fault == NEGATIVE_COST else NonFiniteError
    raise error(f"{fault} in episode {episode}, so there is no result. {advice}")


def check_episodes(episodes: int) -> None:
    """Raise a `ValueError` unless this number of episodes can be played and stored."""
    check_count("episodes", frozen_value(episodes), high=MAX_EPISODES)


def roll_out_host(
    key: Key[Array, ""],
    policy: HostPolicy,
    env: HostEnv,
    episodes: int,
    samples_actions: bool = False,
) -> Episodes:
    """Play whole episodes in a vector of Gymnasium environments on the host.

    Environment i of N plays the episodes i, i + N, i + 2 N, and so on. All of them are played
    to their end, because taking the first episodes that finish would favour short ones. If
    the environments can be seeded one by one (`HostEnv.seeds_episodes`), each episode has a
    separate seed and separate noise, so that it is the same for any N. If `samples_actions`
    is true, the policy receives noise, with which it samples its actions.
    """
    check_episodes(episodes)
    num_envs, spec = env.num_envs, env.spec
    entropy = [int(word) for word in jax.random.key_data(key)]
    seeds = derive_seeds(entropy, episodes)

    def seed_of(episode: int) -> int:
        # An environment that has played its episodes continues until all others have, so
        # the numbers of its further episodes wrap around.
        return seeds[episode % episodes]

    def noise_of(episode: int) -> np.random.Generator:
        return np.random.default_rng([*entropy, episode])

    playing = list(range(num_envs))
    """For each environment, the number of the episode that it plays now."""
    upcoming = [seed_of(i + num_envs) for i in playing]
    noise = [noise_of(i) for i in playing]
    seeded = env.seeds_episodes
    observation = env.reset([seed_of(i) for i in playing] if seeded else seeds[0])
    reward, cost = np.zeros(num_envs), np.zeros((num_envs, spec.num_costs))
    length = np.zeros(num_envs, int)
    rewards, costs = np.zeros(episodes), np.zeros((episodes, spec.num_costs))
    lengths = np.zeros(episodes, int)
    metrics = {name: np.zeros(episodes) for name in spec.metric_names}
    while min(playing) < episodes:
        drawn = [
            one.standard_normal(spec.action_size) for one in noise if samples_actions
        ]
        action = act_in_blocks(policy, observation, np.array(drawn) if drawn else None)
        step = env.step(action, upcoming if seeded else None)
        observation = step.observation
        reward += np.where(step.valid, step.reward, 0)
        cost += np.where(step.valid[:, None], step.cost, 0)
        length += step.valid
        for i in np.flatnonzero((step.terminated | step.truncated) & step.valid):
            episode = playing[i]
            if episode < episodes:
                rewards[episode], costs[episode] = reward[i], cost[i]
                lengths[episode] = length[i]
                for name, values in step.metrics.items():
                    metrics[name][episode] = values[i]
            reward[i], cost[i], length[i] = 0, 0, 0
            playing[i] = episode + num_envs
            upcoming[i] = seed_of(playing[i] + num_envs)
            noise[i] = noise_of(playing[i])
    return Episodes(rewards, costs, lengths, metrics)


def act_in_blocks(
    policy: HostPolicy, observation: np.ndarray, noise: np.ndarray | None
) -> np.ndarray:
    """Return the policy's actions, computed from `BLOCK` observations at a time.

    The rounding of a matrix product can depend on its number of rows, and for many rows
    NumPy starts threads, which is slower here.
    """
    count = len(observation)
    # The last block repeats rows, so that all blocks have the same size.
    blocks = np.resize(np.arange(count), (-(-count // BLOCK), BLOCK))
    actions = [
        policy(observation[rows], None if noise is None else noise[rows])
        for rows in blocks
    ]
    return np.concatenate(actions)[:count]


def baseline_config(
    env_id: str, name: str, seed: int = 0, assignments: Sequence[str] = ()
) -> Config:
    """Return the paper's config for the environment, with the baseline `name` as its `algo`.

    An evaluation of a baseline uses only the environment, the constraints and the seed.
    Each of `assignments` changes a field, as `constraints.0.tail=0.1` does.
    """
    check_baseline(env_id, name)
    config = replace(presets.preset("orac", env_id), algo=name, seed=seed)
    return overrides.override(config, list(assignments))


class Recording(NamedTuple):
    """Every step of a batch of episodes. Entries after an episode's end have no meaning."""

    observations: np.ndarray
    """(step + 1, episode, observation)"""
    rewards: np.ndarray
    """(step, episode)"""
    costs: np.ndarray
    """(step, episode, cost); empty for a Gymnasium environment."""
    lengths: np.ndarray
    """Number of steps of each episode."""
    metrics: dict[str, np.ndarray]
    """Values at each episode's last step; empty for a Gymnasium environment."""
    frames: list[np.ndarray]
    """Images at the start and after each step; empty for a JAX environment."""


def record_episodes(
    env: Environment | gymnasium.Env,
    policy: Callable[[Any], Any],
    episodes: int = 1,
    seed: int = 0,
) -> Recording:
    """Record whole episodes step by step from the host.

    `policy` maps a batch of flat observations to actions for the environment. `env` is either
    a JAX environment, whose step is compiled once for all policies, or a Gymnasium
    environment with `render_mode="rgb_array"`. From a Gymnasium environment, one episode and
    its frames are recorded. The same seed gives the same initial states for every policy.
    """
    frames: list[np.ndarray] = []
    if isinstance(env, gymnasium.Env):
        observation, advance = _start_gym(env, seed, frames)
        episodes, metric_names = 1, ()
    else:
        observation, advance = _start_jax(env, episodes, seed)
        metric_names = env.spec.metric_names
    observations, rewards, costs = [np.asarray(observation)], [], []
    lengths, done = np.zeros(episodes, int), np.zeros(episodes, bool)
    last = {name: np.zeros(episodes) for name in metric_names}
    while not done.all():
        action = policy(observation)
        finite = np.isfinite(action).reshape(episodes, -1).all(axis=1)
        check_faults((1 + FAULTS.index(ACTION_NOT_FINITE)) * ~finite)
        step = advance(len(rewards), action)
        observation = step.observation
        observations.append(np.asarray(observation))
        rewards.append(np.asarray(step.reward))
        costs.append(np.asarray(step.cost))
        lengths += ~done
        last = {k: np.where(done, v, step.metrics[k]) for k, v in last.items()}
        done = done | np.asarray(step.done)
    seen = np.stack(observations)
    return Recording(seen, np.stack(rewards), np.stack(costs), lengths, last, frames)


def _start_jax(
    env: Environment, episodes: int, seed: int
) -> tuple[Array, Callable[[int, Any], Step]]:
    """Return the first observations, and a function of (t, action) that takes step t."""
    reset_key, run_key = jax.random.split(jax.random.key(seed))
    state, observation = reset_batch(env, reset_key, episodes)

    def advance(t: int, action: Any) -> Step:
        nonlocal state
        state, step = _step_jax(env, jax.random.fold_in(run_key, t), state, action)
        return step

    return observation, advance


@partial(jax.jit, static_argnums=0)
def _step_jax(env: Environment, key: Any, state: Any, action: Any) -> Any:
    keys = jax.random.split(key, len(action))
    return jax.vmap(env.step)(keys, state, action)


def _start_gym(
    env: Any, seed: int, frames: list[np.ndarray]
) -> tuple[np.ndarray, Callable[[int, Any], Step]]:
    """Do the same as `_start_jax` for a Gymnasium environment; each step appends a frame."""
    flatten: Any = partial(gymnasium.spaces.flatten, env.observation_space)
    observation, _ = env.reset(seed=seed)
    frames.append(_render(env))

    def advance(t: int, action: Any) -> Step:
        shaped = np.reshape(np.asarray(action)[0], env.action_space.shape or ())
        observation, reward, terminated, truncated, _ = env.step(shaped)
        frames.append(_render(env))
        batch: Any = np.array
        ends = batch([terminated]), batch([truncated])
        return Step(flatten(observation)[None], batch([reward]), batch([[]]), *ends, {})

    return flatten(observation)[None], advance


def _render(env: Any) -> np.ndarray:
    try:
        frame = np.asarray(env.render())
    except NotImplementedError as error:
        raise _cannot_render(env.spec.id) from error
    if frame.ndim != 3:
        raise _cannot_render(env.spec.id)
    return frame


def _cannot_render(env_id: str) -> ValueError:
    return ValueError(
        f"{env_id} cannot be filmed: let it take render_mode='rgb_array', list that mode in "
        "metadata['render_modes'], and return an image of (height, width, 3) from render()."
    )


def record_video(agent: Any, path: str | Path, checkpoint: str | None = None) -> Path:
    """Write one episode of an agent's policy as a .gif or .mp4 file."""
    path = check_video_path(path)
    config = agent.config.env
    # Training truncates episodes at this length. Without it, an episode might never end.
    limit = config.episode_length or agent.spec.episode_length
    env = gymnasium.wrappers.TimeLimit(make_rendering_env(config), limit)
    try:
        recording = record_episodes(
            env, lambda flat: agent.predict(flat, checkpoint=checkpoint)[0]
        )
    finally:
        env.close()
    imageio, frames = import_extra(*VIDEO_EXTRA), np.stack(recording.frames)
    options: dict[str, Any] = {"fps": FRAMES_PER_SECOND, "codec": "libx264"}
    if path.suffix == ".gif":
        options = {"duration": 1000 / FRAMES_PER_SECOND, "loop": 0}
    # If there is a link at this path, the link is replaced and its target does not change.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".tmp-") as folder:
        film = Path(folder) / path.name
        with warnings.catch_warnings():
            # JAX warns that a fork does not copy its threads. The video encoder needs none.
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
            imageio.imwrite(film, frames, **options)
        film.replace(path)
    return path


def check_video_path(path: str | Path) -> Path:
    """Return the path of a video after creating its directory.

    An unsupported file type or a missing package raises an error.
    """
    path = Path(path)
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a video must be a .gif or .mp4 file, got {path.name!r}.")
    import_extra(*VIDEO_EXTRA)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def make_rendering_env(config: EnvConfig) -> gymnasium.Env:
    """Make a run's environment with `render_mode="rgb_array"`."""
    check_env_module(config.id)
    try:
        with warnings.catch_warnings():
            # Gymnasium warns if the environment does not declare the mode. `_render` checks
            # whether it works.
            warnings.filterwarnings("ignore", message=r".*initialised with render_mode")
            options = {"render_mode": "rgb_array", "disable_env_checker": True}
            return gymnasium.make(config.id, **options, **dict(config.params))
    except TypeError as error:
        # Training made the environment with the same arguments except render_mode, so this
        # argument is the cause.
        raise _cannot_render(config.id) from error
    except gymnasium.error.Error as error:
        raise ValueError(f"{config.id} cannot be filmed: {error}") from error
