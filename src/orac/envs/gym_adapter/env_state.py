"""The state of a Gymnasium environment as plain data, where the environment offers it.

An environment offers its state with `get_state()` and `set_state(state)`; the random
generator and Gymnasium's time limit are taken down beside it. A wrapper that we do not
know may hold state of its own, so it must offer the pair itself: a snapshot is exact or
it is None. Plain data is what JSON and NumPy can write without running code.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers whose only state is the time limit's count, which a snapshot holds."""


def snapshot(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Everything that `restore` needs, or None when it cannot be had exactly."""
    holder = _holder(env)
    if holder is None:
        return None
    state = holder.get_state()
    if not is_plain(state):
        return None
    generator = env.unwrapped._np_random
    return {
        "state": state,
        "random": generator.bit_generator.state if generator is not None else None,
        "elapsed": [limit._elapsed_steps for limit in _time_limits(env)],
    }


def restore(env: gymnasium.Env[Any, Any], saved: dict[str, Any]) -> None:
    """Put an environment, fresh or used, where `snapshot` found it."""
    holder = _holder(env)
    if holder is None:
        raise ValueError(
            f"{env} has no get_state and set_state, so its saved state cannot be put "
            "back. Resume with the environment that the run was started with."
        )
    # A wrapper that enforces order refuses to step an environment it never saw reset.
    env.reset()
    if saved["random"] is not None:
        env.unwrapped.np_random.bit_generator.state = saved["random"]
    holder.set_state(saved["state"])
    for limit, elapsed in zip(_time_limits(env), saved["elapsed"], strict=True):
        limit._elapsed_steps = elapsed


def is_plain(value: Any) -> bool:
    """Whether JSON and NumPy can hold `value` without pickling."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and is_plain(
            [*value.values()]
        )
    if isinstance(value, list | tuple):
        return all(is_plain(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "buifcSU"
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _holder(env: gymnasium.Env[Any, Any]) -> Any:
    """The outermost layer with both methods, if nothing outside it holds other state."""
    layer: Any = env
    while True:
        if hasattr(layer, "get_state") and hasattr(layer, "set_state"):
            return layer
        if not isinstance(layer, TRANSPARENT):
            return None
        layer = layer.env


def _time_limits(env: gymnasium.Env[Any, Any]) -> list[Any]:
    layer, limits = env, []
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            limits.append(layer)
        layer = layer.env
    return limits
