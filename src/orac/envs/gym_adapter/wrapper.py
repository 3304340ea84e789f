"""Wrapper of one Gymnasium environment: flat observations, and its cost in the info.

`make` builds vector environments from these wrappers. A wrapper passes actions on,
flattens observations, ends episodes at the time limit, and puts only the cost and the
requested metrics in `info`: Gymnasium batches infos in the type of the first value, so a
cost of 0.7 in one environment would become 0 if another one reported the integer 0.
Worker processes import this module, which does not import JAX.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from orac.envs.gym_adapter.costs import CostFn, CostKeys, Reading, read_info, read_value
from orac.envs.gym_adapter.env_state import get_env_state, set_env_state
from orac.envs.gym_adapter.metadata import (
    EnvMetadata,
    checked_action_space,
    make_flatten,
    read_metadata,
)

COST_KEY = "orac/cost"
"""Info key of the cost, whose value is a `Reading`; all other keys are metrics."""

_NOT_REPORTED = object()


class CostWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Flattens observations and reports costs; all else is the environment inside."""

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
        lengths = (metadata.episode_length, episode_length)
        self.env_metadata: EnvMetadata = metadata._replace(
            episode_length=min((n for n in lengths if n), default=None),
            metric_names=metric_names or metadata.metric_names,
        )
        # Gymnasium only declares the two spaces; an environment may lack them.
        checked_action_space(getattr(env, "action_space", None), metadata.name)
        space = getattr(env, "observation_space", None)
        size, self._flatten = make_flatten(space, metadata.name)
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self._cost_keys, self._cost_fn = cost_keys, cost_fn
        self._limit = self.env_metadata.episode_length or np.inf
        self._elapsed: int | None = None
        """Steps of the running episode; None before the first reset."""
        self._observation: Any = None
        """Observation on which the next action is chosen; only set for a `cost_fn`."""

    def flatten(self, observation: Any) -> np.ndarray:
        """Flatten one observation of the environment inside."""
        return self._flatten(observation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        name = self.env_metadata.name
        try:
            # A masked reset arrives with emptied options; environments expect None.
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
                f"{name}.reset returned a {type(result).__name__}, but Gymnasium's reset "
                "returns (observation, info)."
            )
        self._elapsed = 0
        self._remember(result[0])
        return self._flatten(result[0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        # Vector environments pass an action without axes as a bare scalar.
        action = np.asarray(action)
        taken = action if self._cost_fn is None else action.copy()
        name = self.env_metadata.name
        result: tuple[Any, ...] = self.env.step(action)
        if len(result) == 5:
            observation, reward, terminated, truncated, info = result
            cost = _NOT_REPORTED
        elif len(result) == 6:
            observation, reward, cost, terminated, truncated, info = result
        else:
            raise ValueError(
                f"{name}.step returned {len(result)} values, but 5 (observation, reward, "
                "terminated, truncated, info) or 6 (with cost after reward) were expected. "
                "Environments of the old gym package need a wrapper that splits done in "
                "two."
            )
        self._elapsed = (self._elapsed or 0) + 1
        reported: dict[str, Any] = {
            COST_KEY: self._read_cost(cost, taken, observation, info)
        }
        for key in self.env_metadata.metric_names:
            if key in info:
                reported[key] = _as_number(info[key])
                if reported[key] is None:
                    raise ValueError(
                        f"{name} reported {info[key]!r} under info[{key!r}], which is not "
                        f"a number. Leave {key!r} out of metric_names."
                    )
        flat, number = self._flatten(observation), _as_number(reward)
        if number is None:
            raise ValueError(
                f"{name} returned the reward {reward!r}, which is not a number. Return "
                "float(reward)."
            )
        is_truncated = bool(truncated) or self._elapsed >= self._limit
        return flat, number, bool(terminated), is_truncated, reported

    @property
    def env_state(self) -> dict[str, Any] | None:
        """State of the environment as plain data; None where it is not available."""
        inside = None if self._elapsed is None else get_env_state(self.env)
        if inside is None:
            return None
        return {
            "environment": inside,
            "elapsed": self._elapsed,
            "observation": self._observation,
        }

    @env_state.setter
    def env_state(self, state: dict[str, Any]) -> None:
        set_env_state(self.env, state["environment"])
        self._elapsed = int(state["elapsed"])
        self._observation = state["observation"]

    def _read_cost(
        self, cost: Any, action: Any, observation: Any, info: Any
    ) -> Reading:
        """Prefer the user's function, then the cost of a six-value step, then the info."""
        if self._cost_fn is not None:
            value = self._cost_fn(self._observation, action, observation, info)
            self._remember(observation)
            return read_value(value)
        if cost is not _NOT_REPORTED:
            return read_value(cost)
        return read_info(info, self._cost_keys)

    def _remember(self, observation: Any) -> None:
        # A copy, because an environment may write its next observation into this one.
        if self._cost_fn is not None:
            self._observation = deepcopy(observation)


def _as_number(value: Any) -> float | None:
    """Return a scalar or an array of one number as a float, and None for anything else."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "buif":
        return None
    return float(array.item())


def make_wrapped(
    make: Callable[[], Any],
    episode_length: int | None,
    registered_length: int | None,
    **options: Any,
) -> CostWrapper:
    """Call a factory and wrap the environment that it returns.

    The registered length of an id counts only if no `episode_length` was given.
    """
    env = make()
    if isinstance(env, VectorEnv):
        raise ValueError(
            "The factory returned a vector environment. Pass the vector environment "
            "itself, or a factory of single ones."
        )
    if not isinstance(env, gymnasium.Env):
        raise ValueError(
            f"The factory returned a {type(env).__name__}, which is not a Gymnasium "
            "environment. Return a subclass of gymnasium.Env (the old gym package's Env is "
            "another class)."
        )
    metadata = read_metadata(env)
    own_length = metadata.episode_length
    if episode_length and own_length and episode_length > own_length:
        raise length_error(metadata, episode_length)
    length = episode_length or registered_length
    return CostWrapper(env, episode_length=length, **options)


def make_registered(env_id: str, make: Callable[[], Any]) -> Any:
    """Call `make` for a registered id, and explain why it cannot be made."""
    try:
        return make()
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise ValueError(
            f"{env_id} could not be made ({error}). Check env_kwargs and whether all "
            "packages that it needs are installed."
        ) from error


def length_error(metadata: EnvMetadata, given: int) -> ValueError:
    """Return the error for an episode length that differs from the environment's own."""
    return ValueError(
        f"episode_length is {given}, but {metadata.name} ends its episodes after "
        f"{metadata.episode_length} steps by itself. Leave episode_length out, or make it "
        "with another limit."
    )
