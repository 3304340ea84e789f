"""Gymnasium wrappers of JAX environments: one for a single environment, one for a batch.

`info["cost"]` is the cost of this step. For one environment it is a float if the environment
has one cost, and otherwise an array. In a batch, it has one row per environment.
The metrics of the environment are further entries of `info`. At the last step of an episode,
`JaxEnv` adds the hidden metrics, `episode_return`, `episode_cost` and `episode_length` to
`info`, and `JaxVectorEnv` adds them to `info["final_info"]`.

An environment may have two more methods, which are not compiled:
`place(state, options) -> (state, observation)` applies `reset(options=...)`, and
`render(state) -> image` draws one environment.
"""

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Float, Key

from orac.config.validation import check_count
from orac.envs.base import Environment, EnvSpec, EnvState, Step, reset_batch, step_batch
from orac.envs.registry import make


class JaxEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One JAX environment as a `gymnasium.Env`."""

    def __init__(self, env: Environment, render_mode: str | None = None) -> None:
        self.metadata = {"render_modes": _render_modes(env), "render_fps": 8}
        self.env, self.render_mode = env, _checked_render_mode(env, render_mode)
        self.observation_space, self.action_space = _make_spaces(env.spec)
        _copy_metadata(self, env.spec)
        self._state: EnvState = None
        self._is_over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._key = _draw_key(self.np_random)
        state, observation = _reset_one(self.env, self._key)
        self._state, observation = _apply_options(self.env, state, observation, options)
        self._is_over = False
        self._totals = EpisodeTotals(self.env.spec, ())
        return np.array(observation), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._is_over:
            raise gymnasium.error.ResetNeeded(
                "Call reset() first: no episode has started, or the last one has ended."
            )
        action = _checked_action(action, self.action_space)
        self._state, step = _step_one(
            self.env, self._key, self._totals.length, self._state, action
        )
        step = _to_numpy(step)
        self._is_over = bool(step.done)
        info = self._totals.add(step)
        if self._is_over:
            info |= self._totals.final_info(step)
        return (
            np.array(step.observation),
            float(step.reward),
            bool(step.terminated),
            bool(step.truncated),
            # Return Python numbers instead of zero-dimensional arrays.
            {key: x.item() if x.ndim == 0 else x for key, x in info.items()},
        )

    def render(self) -> np.ndarray | None:
        return _render(self.env, self._state) if self.render_mode else None


class JaxVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A batch of copies of one JAX environment, stepped in one compiled call.

    If an episode ends, the next one starts in the same step (Gymnasium's SAME_STEP mode):
    the returned observation is the first of the next episode, and `info["final_obs"]` holds
    the last one of the ended episode. `info["final_info"]` describes the ended episodes as
    in Gymnasium, but `info["cost"]` and the metrics hold the values of this step for every
    environment, whether its episode ended or not.

    With a list of seeds, environment i starts as `JaxEnv` starts with the i-th seed. With
    one seed, all environments draw their first states from one key, so usually none starts as
    a `JaxEnv` with that seed does. After the reset, one key per step serves the whole batch,
    so no environment continues as a `JaxEnv` does, even with a list of seeds.
    """

    def __init__(
        self, env: Environment, num_envs: int = 1, render_mode: str | None = None
    ) -> None:
        check_count("num_envs", num_envs)
        self.env, self.num_envs = env, num_envs
        self.metadata = {
            "render_modes": _render_modes(env),
            "render_fps": 8,
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.render_mode = _checked_render_mode(env, render_mode)
        single = _make_spaces(env.spec)
        self.single_observation_space, self.single_action_space = single
        self.observation_space, self.action_space = (
            batch_space(space, num_envs) for space in single
        )
        _copy_metadata(self, env.spec)
        self._state: EnvState = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._num_steps = 0
        if seed is None or isinstance(seed, int | np.integer):
            super().reset(seed=None if seed is None else int(seed))
            self._key = _draw_key(self.np_random)
            state, observation = _reset_many(self.env, self._key, self.num_envs)
        else:
            state, observation = self._reset_with_seeds(seed)
        self._state, observation = _apply_options(self.env, state, observation, options)
        self._totals = EpisodeTotals(self.env.spec, (self.num_envs,))
        return np.array(observation), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Call reset() before step().")
        actions = _checked_action(actions, self.action_space)
        self._state, observation, step = _step_many(
            self.env, self._key, self._num_steps, self._state, actions
        )
        self._num_steps += 1
        observation, step = _to_numpy((observation, step))
        info = self._totals.add(step)
        infos = _with_masks(info, np.ones(self.num_envs, bool))
        if step.done.any():
            infos |= self._final_infos(step, info)
            self._totals.restart(step.done)
        return (
            np.array(observation),
            np.array(step.reward, np.float64),
            np.array(step.terminated),
            np.array(step.truncated),
            infos,
        )

    def _reset_with_seeds(self, seeds: Sequence[int | None]) -> tuple[EnvState, Array]:
        """Start every environment from its own seed; None means a random seed."""
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"seed must have one entry per environment ({self.num_envs}), got "
                f"{len(seeds)}. An entry may be None, for a random seed. Or pass one number, "
                "from which all environments are seeded."
            )
        known = [
            int(self.np_random.integers(2**32)) if one is None else int(one)
            for one in seeds
        ]
        generators = [seeding.np_random(one)[0] for one in known]
        # After the reset, random numbers depend on all seeds together.
        self._np_random = np.random.default_rng(known)
        self._key = _draw_key(self.np_random)
        return _reset_each(self.env, jnp.stack([_draw_key(one) for one in generators]))

    def _final_infos(self, step: Step, info: dict[str, Any]) -> dict[str, Any]:
        """Return `final_obs` and `final_info` in the format of Gymnasium."""
        ended = np.array(step.done)
        observations = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            observations[row] = np.array(step.observation[row])
        last = {name: np.array(value) for name, value in info.items()}
        final_info = _with_masks(last | self._totals.final_info(step), ended)
        return _with_masks({"final_obs": observations, "final_info": final_info}, ended)

    def render(self) -> tuple[np.ndarray, ...] | None:
        if not self.render_mode:
            return None
        states = _to_numpy(self._state)
        return tuple(
            _render(self.env, jax.tree.map(lambda leaf, row=row: leaf[row], states))
            for row in range(self.num_envs)
        )


def make_single(
    env_id: str, render_mode: str | None = None, **parameters: Any
) -> JaxEnv:
    """Make one environment; `gymnasium.make` calls this for the ids of JAX environments."""
    return JaxEnv(make(env_id, **parameters), render_mode)


def make_vector(
    env_id: str, num_envs: int = 1, render_mode: str | None = None, **parameters: Any
) -> JaxVectorEnv:
    """Make a batch; `gymnasium.make_vec` calls this for the ids of JAX environments."""
    return JaxVectorEnv(make(env_id, **parameters), num_envs, render_mode)


class EpisodeTotals:
    """Running return, cost and length of one episode or of a batch of episodes."""

    def __init__(self, spec: EnvSpec, shape: tuple[int, ...]) -> None:
        self._spec = spec
        self.reward = np.zeros(shape)
        self.cost = np.zeros((*shape, spec.num_costs))
        self.length = np.zeros(shape, np.int32)

    def add(self, step: Step) -> dict[str, np.ndarray]:
        """Add a step; return its cost and the metrics that agents may see."""
        self.reward = self.reward + step.reward
        self.cost = self.cost + step.cost
        self.length = self.length + np.int32(1)
        visible = [metric.name for metric in self._spec.metrics if not metric.hidden]
        metrics = {name: np.array(step.metrics[name]) for name in visible}
        return {"cost": self._drop_single_axis(step.cost)} | metrics

    def final_info(self, step: Step) -> dict[str, np.ndarray]:
        """Return the entries of `info` that exist only at the last step of an episode."""
        hidden = self._spec.hidden_metric_names
        return {name: np.array(step.metrics[name]) for name in hidden} | {
            "episode_return": np.array(self.reward),
            "episode_cost": self._drop_single_axis(self.cost),
            "episode_length": np.array(self.length),
        }

    def restart(self, ended: np.ndarray) -> None:
        """Set the totals of the ended episodes to zero."""
        self.reward = np.where(ended, 0.0, self.reward)
        self.cost = np.where(ended[:, None], 0.0, self.cost)
        self.length = np.where(ended, np.int32(0), self.length)

    def _drop_single_axis(self, cost: Any) -> np.ndarray:
        cost = np.array(cost, np.float64)
        return cost[..., 0] if self._spec.num_costs == 1 else cost


def _make_spaces(spec: EnvSpec) -> tuple[Box, Box]:
    """Return the observation and the action space of one environment."""
    unknown = np.full(spec.observation_size, np.inf, np.float32)
    low = -unknown if spec.observation_low is None else spec.observation_low
    high = unknown if spec.observation_high is None else spec.observation_high
    observation = Box(np.array(low, np.float32), np.array(high, np.float32))
    action_low = np.array(spec.action_low, np.float32)
    return observation, Box(action_low, np.array(spec.action_high, np.float32))


def _copy_metadata(wrapper: Any, spec: EnvSpec) -> None:
    """Set the attributes that `gym_adapter.metadata` reads from an environment."""
    wrapper.episode_length, wrapper.cost_names = spec.episode_length, spec.cost_names
    wrapper.cost_bound, wrapper.metric_names = spec.cost_bounds, spec.metric_names


def _render_modes(env: Environment) -> list[str]:
    return ["rgb_array"] if hasattr(env, "render") else []


def _checked_render_mode(env: Environment, render_mode: str | None) -> str | None:
    modes = [None, *_render_modes(env)]
    if render_mode not in modes:
        raise ValueError(
            f"render_mode of {env.spec.name} must be {' or '.join(map(repr, modes))}, got "
            f"{render_mode!r}."
        )
    return render_mode


def _checked_action(action: Any, space: gymnasium.Space[Any]) -> np.ndarray:
    """Return the action as float32. The environment itself clips it to the bounds."""
    action = np.asarray(action, np.float32)
    if action.shape != space.shape or not np.isfinite(action).all():
        raise ValueError(
            f"An action must be finite and of shape {space.shape}, got "
            f"{action.tolist() if action.size < 10 else action.shape}."
        )
    return action


def _apply_options(
    env: Environment,
    state: EnvState,
    observation: Array,
    options: dict[str, Any] | None,
) -> tuple[EnvState, Array]:
    """Apply `reset(options=...)` with the environment's `place` method."""
    if not options:
        return state, observation
    place = getattr(env, "place", None)
    if place is None:
        raise ValueError(
            f"{env.spec.name} takes no reset options, got {sorted(options)}; it has no "
            "`place` method."
        )
    return place(state, options)


def _draw_key(generator: np.random.Generator) -> Key[Array, ""]:
    return jax.random.key(int(generator.integers(2**32)))


def _to_numpy(tree: Any) -> Any:
    # This is twice as fast as jax.device_get on the few small arrays of one step.
    return jax.tree.map(np.asarray, tree)


def _with_masks(infos: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    return infos | {f"_{name}": mask.copy() for name in infos}


def _render(env: Any, state: EnvState) -> np.ndarray:
    if state is None:
        raise gymnasium.error.ResetNeeded("Call reset() before render().")
    return env.render(state)


@functools.partial(jax.jit, static_argnums=0)
def _reset_one(env: Environment, key: Key[Array, ""]) -> tuple[EnvState, Array]:
    return env.reset(jax.random.fold_in(key, 0))


@functools.partial(jax.jit, static_argnums=0)
def _step_one(
    env: Environment,
    key: Key[Array, ""],
    num_steps: Array,
    state: EnvState,
    action: Float[Array, " action"],
) -> tuple[EnvState, Step]:
    return env.step(jax.random.fold_in(key, num_steps + 1), state, action)


@functools.partial(jax.jit, static_argnums=0)
def _reset_each(
    env: Environment, keys: Key[Array, " batch"]
) -> tuple[EnvState, Float[Array, "batch observation"]]:
    return jax.vmap(lambda key: env.reset(jax.random.fold_in(key, 0)))(keys)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _reset_many(
    env: Environment, key: Key[Array, ""], num_envs: int
) -> tuple[EnvState, Array]:
    return reset_batch(env, jax.random.fold_in(key, 0), num_envs)


@functools.partial(jax.jit, static_argnums=0)
def _step_many(
    env: Environment,
    key: Key[Array, ""],
    num_steps: Array,
    state: EnvState,
    action: Float[Array, "batch action"],
) -> tuple[EnvState, Float[Array, "batch observation"], Step]:
    return step_batch(env, jax.random.fold_in(key, num_steps + 1), state, action)
