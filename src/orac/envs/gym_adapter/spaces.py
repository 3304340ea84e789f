"""Gymnasium's spaces as a learner needs them: a bounded action box, flat observations.

What can be flattened is flattened by Gymnasium's own functions; what cannot be learned
from or acted in is refused with one sentence. Knows nothing of costs or of stepping.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space
from jaxtyping import Float32

Flatten = Callable[[Any], Float32[np.ndarray, " observation"]]


def checked_action_space(space: Any, name: str) -> spaces.Box:
    """`space` itself when an agent can act in it; otherwise a sentence that says why."""
    if not isinstance(space, spaces.Box):
        raise ValueError(_not_a_box(space, name))
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{name} has integer actions ({space}), but agents act continuously. Wrap it "
            "with a float Box action_space and round inside the environment."
        )
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if low.size == 0:
        raise ValueError(
            f"{name} has an empty action space ({space}). Give it at least one action."
        )
    for index, (least, most) in enumerate(zip(low, high, strict=True)):
        if not (np.isfinite(least) and np.isfinite(most)):
            raise ValueError(
                f"{name}: action {index} has the bounds [{least}, {most}], but both must "
                "be finite. Wrap it, for example with "
                "gymnasium.wrappers.RescaleAction or TransformAction onto Box(-1, 1)."
            )
        if not least < most:
            raise ValueError(
                f"{name}: action {index} has the bounds [{least}, {most}], which leave "
                "nothing to choose. Remove it from the action space."
            )
    return space


def _not_a_box(space: Any, name: str) -> str:
    if not isinstance(space, spaces.Space):
        return (
            f"{name} has {space!r} as action_space, which is no Gymnasium space. Set it to "
            "a gymnasium.spaces.Box with finite bounds."
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return (
            f"{name} has discrete actions ({space}), but agents need continuous ones. Use "
            "an environment whose action_space is a Box (MountainCarContinuous-v0, say, "
            "in place of MountainCar-v0)."
        )
    return (
        f"{name} has the action space {space}, but agents need one Box. Wrap it so that "
        "its action_space is a single gymnasium.spaces.Box."
    )


def make_flatten(space: Any, name: str) -> tuple[int, Flatten]:
    """How many numbers an observation has, and the function that lines them up."""
    if not isinstance(space, spaces.Space):
        raise ValueError(
            f"{name} has {space!r} as observation_space, which is no Gymnasium space. Set "
            "it to a gymnasium.spaces.Box, Dict or Tuple."
        )
    flat = flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box):
        raise ValueError(
            f"{name} has the observation space {space}, whose size varies and which "
            "cannot be flattened. Wrap it so that every observation is a fixed-size Box."
        )
    size = int(np.prod(flat.shape))
    if size == 0:
        raise ValueError(f"{name} has an empty observation space ({space}).")
    if isinstance(space, spaces.Box):
        return size, lambda observation: _flatten_box(observation, space, name)
    return size, lambda observation: _flatten_nested(observation, space, size, name)


def _flatten_box(observation: Any, space: spaces.Box, name: str) -> np.ndarray:
    array = np.asarray(observation)
    if array.shape != space.shape:
        raise ValueError(
            f"{name} returned an observation of shape {array.shape}, but its "
            f"observation_space says {space.shape}. Make the two agree."
        )
    return _as_float32(array, name).reshape(-1)


def _flatten_nested(
    observation: Any, space: spaces.Space, size: int, name: str
) -> np.ndarray:
    try:
        array = np.asarray(flatten(space, observation))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} returned an observation that is not in its observation_space "
            f"{space} ({type(error).__name__}: {error}). Make the two agree."
        ) from error
    if array.shape != (size,):
        raise ValueError(
            f"{name} returned an observation with {array.size} numbers, but its "
            f"observation_space has {size}. Make the two agree."
        )
    return _as_float32(array, name)


def _as_float32(array: np.ndarray, name: str) -> np.ndarray:
    try:
        return array.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} returned an observation that is not made of numbers ({error})."
        ) from error
