"""What the Gymnasium faces of JAX environments declare, and what they refuse.

Spaces and render modes follow from an environment; actions and reset options are checked
before it sees them. Knows nothing of stepping.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array

from orac.envs.base import Environment, EnvSpec, EnvState

RENDER_MODES = ("rgb_array",)


def spaces_of(spec: EnvSpec) -> tuple[Box, Box]:
    """Observation and action space of one environment."""
    unknown = np.full(spec.observation_size, np.inf, np.float32)
    low = -unknown if spec.observation_low is None else spec.observation_low
    high = unknown if spec.observation_high is None else spec.observation_high
    observation = Box(np.array(low, np.float32), np.array(high, np.float32))
    action_low = np.array(spec.action_low, np.float32)
    return observation, Box(action_low, np.array(spec.action_high, np.float32))


def render_modes(env: Environment) -> list[str]:
    """How it can be drawn; an environment without a `render` cannot."""
    return [*RENDER_MODES] if hasattr(env, "render") else []


def check_render_mode(env: Environment, render_mode: str | None) -> str | None:
    """A render mode that exists, for an environment that can be drawn."""
    if render_mode is None:
        return None
    modes = render_modes(env)
    if render_mode not in modes:
        raise ValueError(
            f"{env.spec.name} can be rendered as {[None, *modes]}, got {render_mode!r}."
        )
    return render_mode


def check_action(action: Any, space: gymnasium.Space[Any]) -> np.ndarray:
    """An action of the right shape with finite numbers; the environment clips it."""
    action = np.asarray(action, np.float32)
    if action.shape != space.shape or not np.isfinite(action).all():
        raise ValueError(
            f"An action must be finite and of shape {space.shape}, got "
            f"{action.tolist() if action.size < 10 else action.shape}."
        )
    return action


def place_with(
    env: Environment,
    state: EnvState,
    observation: Array,
    options: dict[str, Any] | None,
) -> tuple[EnvState, Array]:
    """Apply `reset(options=...)`, for the environments that take any."""
    if not options:
        return state, observation
    place = getattr(env, "place", None)
    if place is None:
        raise ValueError(
            f"{env.spec.name} takes no reset options, got {sorted(options)}; it has no "
            "`place` method."
        )
    return place(state, options)
