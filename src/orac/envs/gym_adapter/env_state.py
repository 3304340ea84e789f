"""Save and restore the state of a Gymnasium environment.

An environment offers its state with `get_state()` and `set_state(state)`; the state of
its random generator and of Gymnasium's time limits are saved with it. A wrapper that is
not known to be stateless must offer the two methods itself, so a saved state is either
exact or None. States are plain data: JSON and NumPy can write them without pickling.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

TRANSPARENT_WRAPPERS = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers whose only state is the step count of the time limit, which is saved."""


def get_env_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Return everything that `set_env_state` needs, or None if it is not available."""
    owner = _state_owner(env)
    if owner is None:
        return None
    state = owner.get_state()
    if not is_plain(state):
        return None
    generator = env.unwrapped._np_random
    return {
        "state": state,
        "random": generator.bit_generator.state if generator is not None else None,
        "elapsed": [limit._elapsed_steps for limit in _time_limits(env)],
    }


def set_env_state(env: gymnasium.Env[Any, Any], saved: dict[str, Any]) -> None:
    """Restore a state from `get_env_state` in a new or used environment."""
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
        return all(isinstance(key, str) for key in value) and is_plain(
            [*value.values()]
        )
    if isinstance(value, list | tuple):
        return all(is_plain(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "buifcSU"
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _state_owner(env: gymnasium.Env[Any, Any]) -> Any:
    """Return the outermost layer with both methods, or None.

    None is also returned if a layer outside of it may hold further state.
    """
    layer: Any = env
    while True:
        if hasattr(layer, "get_state") and hasattr(layer, "set_state"):
            return layer
        if not isinstance(layer, TRANSPARENT_WRAPPERS):
            return None
        layer = layer.env


def _time_limits(env: gymnasium.Env[Any, Any]) -> list[Any]:
    layer, limits = env, []
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            limits.append(layer)
        layer = layer.env
    return limits
