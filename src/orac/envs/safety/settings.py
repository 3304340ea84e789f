"""What an environment may be told, checked before anything is built.

A wrong number would otherwise show up later as another number, or in a worker process as
a story of many lines. Knows the words and their ranges; nothing of tasks or MuJoCo.
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np


def whole(name: str, value: Any, unit: str, advice: str) -> int:
    """A whole number from 1 on; truth values and floats are not meant."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < 1:
        raise ValueError(
            f"{name} must be a whole number{unit} from 1 on, got {value!r}. {advice}"
        )
    return int(value)


def steps(name: str, value: Any) -> int:
    """A time limit."""
    return whole(name, value, " of steps", "Leave it out for the task's own limit.")


def pixels(name: str, value: Any) -> int:
    """A side of a picture."""
    return whole(name, value, " of pixels", "Leave it out for 480.")


def processes(name: str, value: Any) -> int:
    """How many processes step the environments."""
    advice = "It counts this process too; leave it out to use every core."
    return whole(name, value, "", advice)


def seconds(name: str, value: Any) -> float:
    """The time that one step of the physics takes."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise ValueError(
            f"{name} must be a positive number of seconds, got {value!r}. The paper has "
            "0.006 for Point and 0.01 for Car; leave it out for the package's own."
        )
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Yes or no; words that are merely true are not taken for a yes."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(
            f"{name} must be True, False or None, got {value!r}. True insists on the fast "
            "path, False on the package's own step, None takes what is known to be right."
        )
    return bool(value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "timestep": seconds,
    "episode_length": steps,
    "time_limit": steps,
    "max_episode_steps": steps,
    "fast": switch,
    "width": pixels,
    "height": pixels,
    "num_processes": processes,
}


def checked(name: str, value: Any) -> Any:
    """A setting as a plain Python value; None leaves the choice to the environment."""
    return None if value is None else CHECKS[name](name, value)


def episode_limit(
    episode_length: int | None, max_episode_steps: int | None, time_limit: int | None
) -> int | None:
    """The one limit that environments side by side shall have.

    `max_episode_steps` always comes along from Gymnasium's registry; it was meant only
    where it is not the id's own `time_limit`.
    """
    meant = max_episode_steps if max_episode_steps != time_limit else None
    if None not in (episode_length, meant) and episode_length != meant:
        raise ValueError(
            f"episode_length is {episode_length}, but max_episode_steps is {meant}. Both "
            "are the steps of an episode: leave one of them out."
        )
    return episode_length or meant or time_limit
