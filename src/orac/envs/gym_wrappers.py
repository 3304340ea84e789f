"""The Gymnasium face of any pure JAX environment: one of them, or a compiled batch.

`info["cost"]` is this step's cost: a float for one constraint, an array for several. The
environment's metrics stand beside it; the hidden ones, and `episode_return`,
`episode_cost` and `episode_length`, come at an episode's last step only.

An environment may have two more methods, both called outside of jit: `place(state,
options) -> (state, observation)` for `reset(options=...)`, and `render(state) -> image`.
Knows nothing of any one environment.
"""

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Float, Key

from orac.envs import make
from orac.envs.base import Environment, EnvSpec, EnvState, Step, reset_batch, step_batch
from orac.envs.gym_wrapper_checks import (
    check_action,
    check_render_mode,
    place_with,
    render_modes,
    spaces_of,
)
from orac.envs.tally import Tally


class JaxEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One JAX environment as a `gymnasium.Env`."""

    def __init__(self, env: Environment, render_mode: str | None = None) -> None:
        self.metadata = {"render_modes": render_modes(env), "render_fps": 8}
        self.env, self.render_mode = env, check_render_mode(env, render_mode)
        self.observation_space, self.action_space = spaces_of(env.spec)
        _tell_facts(self, env.spec)
        self._state: EnvState = None
        self._is_over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._key = _draw_key(self.np_random)
        state, observation = _reset_one(self.env, self._key)
        self._state, observation = place_with(self.env, state, observation, options)
        self._is_over = False
        self._tally = Tally(self.env.spec, ())
        return np.array(observation), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._is_over:
            raise gymnasium.error.ResetNeeded(
                "Call reset() first: no episode has begun, or the last one has ended."
            )
        action = check_action(action, self.action_space)
        self._state, step = _step_one(
            self.env, self._key, self._tally.length, self._state, action
        )
        step = _to_host(step)
        self._is_over = bool(step.done)
        info = self._tally.add(step)
        if self._is_over:
            info |= self._tally.last(step)
        return (
            np.array(step.observation),
            float(step.reward),
            bool(step.terminated),
            bool(step.truncated),
            {name: _plain(value) for name, value in info.items()},
        )

    def render(self) -> np.ndarray | None:
        return _render(self.env, self._state) if self.render_mode else None


class JaxVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A batch of one JAX environment, stepped in one compiled call.

    An ended episode restarts in the same step (Gymnasium's SAME_STEP): the observation is
    the next episode's first one, the last one is `info["final_obs"]`. What
    `info["final_info"]` says of the ended episodes follows Gymnasium, but `info["cost"]`
    and the metrics hold this step's values for every environment, ended or not.

    A list of seeds starts environment i as `JaxEnv` starts with the i-th seed; one seed
    starts the whole batch from one draw, whose rows are no seeds' own. Noise after the
    start is drawn for the batch at once.
    """

    def __init__(
        self, env: Environment, num_envs: int = 1, render_mode: str | None = None
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
        self.env, self.num_envs = env, num_envs
        self.metadata = {
            "render_modes": render_modes(env),
            "render_fps": 8,
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.render_mode = check_render_mode(env, render_mode)
        single = spaces_of(env.spec)
        self.single_observation_space, self.single_action_space = single
        self.observation_space, self.action_space = (
            batch_space(space, num_envs) for space in single
        )
        _tell_facts(self, env.spec)
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
            state, observation = self._reset_each(seed)
        self._state, observation = place_with(self.env, state, observation, options)
        self._tally = Tally(self.env.spec, (self.num_envs,))
        return np.array(observation), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Call reset() before step().")
        actions = check_action(actions, self.action_space)
        self._state, observation, step = _step_many(
            self.env, self._key, self._num_steps, self._state, actions
        )
        self._num_steps += 1
        observation, step = _to_host((observation, step))
        everywhere = np.ones(self.num_envs, bool)
        infos = _with_masks(self._tally.add(step), everywhere)
        if step.done.any():
            infos |= self._final(step, infos)
            self._tally.restart(step.done)
        return (
            np.array(observation),
            np.array(step.reward, np.float64),
            np.array(step.terminated),
            np.array(step.truncated),
            infos,
        )

    def _reset_each(self, seeds: Sequence[int | None]) -> tuple[EnvState, Array]:
        """Start every environment from its own seed; None draws one."""
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"There are {self.num_envs} environments, got {len(seeds)} seeds. Give one "
                "for each (None to draw it), or one number for all."
            )
        known = [
            int(self.np_random.integers(2**32)) if one is None else int(one)
            for one in seeds
        ]
        generators = [seeding.np_random(one)[0] for one in known]
        # What is drawn after the start follows from all of the seeds together.
        self._np_random = np.random.default_rng(known)
        self._key = _draw_key(self.np_random)
        return _reset_each(self.env, jnp.stack([_draw_key(one) for one in generators]))

    def _final(self, step: Step, infos: dict[str, Any]) -> dict[str, Any]:
        """The last observations and infos, in the form of Gymnasium's own vectors."""
        ended = np.array(step.done)
        observations = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            observations[row] = np.array(step.observation[row])
        last = {name: np.array(infos[name]) for name in infos if f"_{name}" in infos}
        last |= self._tally.last(step)
        final_info = _with_masks(last, ended)
        return _with_masks({"final_obs": observations, "final_info": final_info}, ended)

    def render(self) -> tuple[np.ndarray, ...] | None:
        if not self.render_mode:
            return None
        states = _to_host(self._state)
        rows = range(self.num_envs)
        return tuple(
            _render(self.env, jax.tree.map(lambda leaf, row=row: leaf[row], states))
            for row in rows
        )


def make_single(
    env_id: str, render_mode: str | None = None, **parameters: Any
) -> JaxEnv:
    """What `gymnasium.make` calls for an environment with a JAX form."""
    return JaxEnv(make(env_id, **parameters), render_mode)


def make_vector(
    env_id: str, num_envs: int = 1, render_mode: str | None = None, **parameters: Any
) -> JaxVectorEnv:
    """What `gymnasium.make_vec` calls for an environment with a JAX form."""
    return JaxVectorEnv(make(env_id, **parameters), num_envs, render_mode)


def _tell_facts(face: Any, spec: EnvSpec) -> None:
    """What a loop may ask of an environment it did not make itself."""
    face.episode_length, face.cost_names = spec.episode_length, spec.cost_names
    face.cost_bound, face.metric_names = spec.cost_bounds, spec.metric_names


def _draw_key(generator: np.random.Generator) -> Key[Array, ""]:
    return jax.random.key(int(generator.integers(2**32)))


def _to_host(tree: Any) -> Any:
    # Twice as fast as jax.device_get on the few small arrays of one step.
    return jax.tree.map(np.asarray, tree)


def _plain(value: np.ndarray) -> Any:
    """A Python number where there is only one."""
    return value.item() if value.ndim == 0 else value


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
