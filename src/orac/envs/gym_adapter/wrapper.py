"""Wrap one Gymnasium environment: flatten observations, put its cost in `info`, save its state.

`make.py` builds vector environments from these wrappers. If the user passes a vector
environment, or an id for which one is registered, such as an id of Safety-Gymnasium, that
one is used without wrappers, unless another `vectorization` was chosen. A wrapper flattens
observations, ends episodes at the time limit, and puts only the costs (a `costs.Reading`)
and the metrics in `info`. All their numbers are floats, because Gymnasium batches infos in
the type of the first value: a cost of 0.7 would become 0 if the first environment reported
the integer 0. Worker processes import this module, so it does
not import JAX.

The state of an environment can be saved if it has the methods `get_state()` and
`set_state(state)`. The states of its random generator and of Gymnasium's time limits are
saved too. If a wrapper around the environment may have further state, None is saved, so
that a saved state is always complete. States are plain data, which JSON and NumPy can
write without pickling.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from orac.envs.gym_adapter.costs import (
    NOT_REPORTED,
    CostKeys,
    read_info,
    read_value,
    unpack_step,
)
from orac.envs.gym_adapter.metadata import (
    TRANSPARENT_WRAPPERS,
    EnvMetadata,
    checked_action_space,
    make_flatten,
    observation_structure,
    read_metadata,
)
from orac.envs.user_code import CostFn, call_cost_fn

COST_KEY = "orac/cost"
"""Info key of the cost, whose value is a `Reading`; all other keys are metrics."""


class CostWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Flattens observations, reports costs and ends episodes at the time limit."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        cost_keys: CostKeys,
        cost_fn: CostFn | None = None,
        metric_names: tuple[str, ...] = (),
        episode_length: int | None = None,
    ) -> None:
        super().__init__(env)
        metadata = read_metadata(env)
        # Gymnasium declares the two spaces but does not set them, so they may be missing.
        space = getattr(env, "observation_space", None)
        lengths = (metadata.episode_length, episode_length)
        self.env_metadata: EnvMetadata = metadata._replace(
            episode_length=min((n for n in lengths if n), default=None),
            metric_names=metric_names or metadata.metric_names,
            observation_structure=observation_structure(space),
        )
        checked_action_space(getattr(env, "action_space", None), metadata.name)
        size, self.flatten = make_flatten(space, metadata.name)
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self._cost_keys, self._cost_fn = cost_keys, cost_fn
        self._limit = self.env_metadata.episode_length or np.inf
        self._elapsed: int | None = None
        """Steps of the running episode; None before the first reset."""
        self._observation: Any = None
        """Observation on which the next action is chosen; only set for a `cost_fn`."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        name = self.env_metadata.name
        try:
            # Gymnasium passes an empty dict when it resets only some environments, but
            # environments expect None.
            result = self.env.reset(seed=seed, options=options or None)
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            raise ValueError(
                f"{name}: {error}. Gymnasium environments are reset with "
                "reset(*, seed=None, options=None)."
            ) from error
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(
                f"{name}.reset must return (observation, info), got an object of type "
                f"{type(result).__name__}."
            )
        self._elapsed = 0
        self._remember(result[0])
        return self.flatten(result[0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        # If the action space has shape (), vector environments pass a scalar.
        action = np.asarray(action)
        taken = action if self._cost_fn is None else action.copy()
        name = self.env_metadata.name
        values = unpack_step(self.env.step(action), name)
        observation, reward, cost, terminated, truncated, info = values
        self._elapsed = (self._elapsed or 0) + 1
        if self._cost_fn is not None:
            before = self._observation
            cost = call_cost_fn(self._cost_fn, before, taken, observation, info)
            self._remember(observation)
        reported: dict[str, Any] = {
            COST_KEY: read_info(info, self._cost_keys)
            if cost is NOT_REPORTED
            else read_value(cost)
        }
        for key in self.env_metadata.metric_names:
            if isinstance(info, dict) and key in info:
                reported[key] = _as_number(info[key])
                if reported[key] is None:
                    raise ValueError(
                        f"{name} reported {info[key]!r} under info[{key!r}], which is not "
                        f"a number. Leave {key!r} out of metric_names."
                    )
        flat, number = self.flatten(observation), _as_number(reward)
        if number is None:
            raise ValueError(
                f"{name} returned the reward {reward!r}, which is not a number. Return "
                "float(reward)."
            )
        ends = [
            _as_flag(value, flag, name)
            for flag, value in (("terminated", terminated), ("truncated", truncated))
        ]
        is_truncated = ends[1] or self._elapsed >= self._limit
        return flat, number, ends[0], is_truncated, reported

    @property
    def env_state(self) -> dict[str, Any] | None:
        """State of the environment as plain data; None if it is not available."""
        inside = None if self._elapsed is None else get_env_state(self.env)
        own = {"elapsed": self._elapsed, "observation": self._observation}
        return None if inside is None else {"environment": inside, **own}

    @env_state.setter
    def env_state(self, state: dict[str, Any]) -> None:
        set_env_state(self.env, state["environment"])
        self._elapsed = int(state["elapsed"])
        self._observation = state["observation"]

    def _remember(self, observation: Any) -> None:
        # Copy it, because an environment may reuse the same array for its next observation.
        if self._cost_fn is not None:
            self._observation = deepcopy(observation)


def _as_flag(value: Any, flag: str, name: str) -> bool:
    """Convert the value of `terminated` or `truncated` to bool.

    Only booleans and integers are accepted, because bool("False") is True.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "bui":
        raise ValueError(
            f"{name} returned {value!r} as {flag}, which is not true or false. Return "
            f"bool({flag})."
        )
    return bool(array.item())


def _as_number(value: Any) -> float | None:
    """Return a scalar or an array of one number as a float, and None for anything else."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    is_number = array.size == 1 and array.dtype.kind in "buif"
    return float(array.item()) if is_number else None


def get_env_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state that `set_env_state` restores, or None if it is not available."""
    owner = _state_owner(env)
    state = None if owner is None else owner.get_state()
    if owner is None or not is_plain(state):
        return None
    generator = env.unwrapped._np_random
    return {
        "state": state,
        "random": generator.bit_generator.state if generator is not None else None,
        "elapsed": [limit._elapsed_steps for limit in _time_limits(env)],
    }


def set_env_state(env: gymnasium.Env[Any, Any], saved: dict[str, Any]) -> None:
    """Restore a state from `get_env_state`. The environment may have been stepped before."""
    owner = _state_owner(env)
    if owner is None:
        raise ValueError(
            f"{env} has no get_state and set_state, so its saved state cannot be "
            "restored. Resume with the environment that the run was started with."
        )
    # OrderEnforcing refuses to step an environment that was never reset.
    env.reset()
    if saved["random"] is not None:
        env.unwrapped.np_random.bit_generator.state = saved["random"]
    owner.set_state(saved["state"])
    for limit, elapsed in zip(_time_limits(env), saved["elapsed"], strict=True):
        limit._elapsed_steps = elapsed


def is_plain(value: Any) -> bool:
    """Return whether JSON and NumPy can hold `value` without pickling."""
    if isinstance(value, dict):
        has_names = all(isinstance(key, str) for key in value)
        return has_names and is_plain([*value.values()])
    if isinstance(value, list | tuple):
        return all(is_plain(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "buifcSU"
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _state_owner(env: gymnasium.Env[Any, Any]) -> Any:
    """Return the outermost layer that has `get_state` and `set_state`.

    Returns None if there is no such layer, or if a layer outside of it may have further
    state.
    """
    layer: Any = env
    while not (hasattr(layer, "get_state") and hasattr(layer, "set_state")):
        if not isinstance(layer, TRANSPARENT_WRAPPERS):
            return None
        layer = layer.env
    return layer


def _time_limits(env: gymnasium.Env[Any, Any]) -> list[Any]:
    layer, limits = env, []
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            limits.append(layer)
        layer = layer.env
    return limits


def make_wrapped(
    make: Callable[[], Any],
    episode_length: int | None,
    registered_length: int | None,
    **options: Any,
) -> CostWrapper:
    """Call a factory and wrap the environment that it returns.

    The episode length registered for an id is used only if no `episode_length` was given.
    """
    env = make()
    if isinstance(env, VectorEnv):
        raise ValueError(
            "The factory returned a vector environment. Pass the vector environment "
            "itself, or a factory of single ones."
        )
    if not isinstance(env, gymnasium.Env):
        raise ValueError(
            f"The factory returned an object of type {type(env).__name__}, which is not a "
            "Gymnasium environment. Return a subclass of gymnasium.Env (the old gym package's "
            "Env is another class)."
        )
    metadata = read_metadata(env)
    if (episode_length or 0) > (metadata.episode_length or np.inf):
        raise length_error(metadata, episode_length)
    length = episode_length or registered_length
    return CostWrapper(env, episode_length=length, **options)


def make_registered(env_id: str, make: Callable[[], Any]) -> Any:
    """Call `make` for a registered id. If it fails, the `ValueError` explains why."""
    try:
        return make()
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise ValueError(
            f"{env_id} could not be made ({error}). Check env_kwargs and whether all "
            "packages that it needs are installed."
        ) from error


def length_error(metadata: EnvMetadata, given: int | None) -> ValueError:
    """Return the error for an episode length that the environment's own length rules out."""
    return ValueError(
        f"episode_length is {given}, but {metadata.name} ends its episodes after "
        f"{metadata.episode_length} steps by itself. Leave episode_length out, or make the "
        "environment with another limit."
    )
