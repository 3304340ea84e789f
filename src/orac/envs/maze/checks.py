"""What GuardedMaze refuses, and what it says then.

Checks run once, when a maze is made or an agent is placed, never inside compiled code.
"""

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from orac.envs.maze.maps import GOAL, WALL, MazeMap, cell_of

COST_MODES = ("episode", "entry")
RESET_OPTIONS = ("xy", "guard")


def check_parameters(params: Any) -> None:
    """Numbers in their ranges and known words; the map is checked when it is read."""
    _check_number(params, "guard_probability", 0.0, 1.0, "It is the chance of a guard.")
    for name in ("red_cost", "guard_cost", "pink_cost"):
        _check_number(
            params, name, 0.0, math.inf, "A cost is paid, it is not a negative reward."
        )
    _check_number(
        params, "action_noise", 0.0, math.inf, "It is a standard deviation, in cells."
    )
    for name in ("goal_reward", "step_reward", "bonus"):
        _check_number(params, name, -math.inf, math.inf, "It is a reward.")
    _check_number(params, "step_scale", 0.0, 1.99, "A longer step could jump a wall.")
    if params.step_scale == 0:
        raise ValueError(
            "step_scale must be above 0, got 0: no action would move the agent."
        )
    _check_count(params, "num_paid_steps", 0)
    _check_count(params, "time_limit", 1)
    if not isinstance(params.map, str):
        raise ValueError(
            f"map must be a name or a drawing in text, got {params.map!r}."
        )
    if params.cost_mode not in COST_MODES:
        raise ValueError(unknown_name("cost_mode", params.cost_mode, COST_MODES))


def as_tuple(name: str, value: Any, kind: type, length: int) -> tuple[Any, ...]:
    """Several numbers as a tuple: lists come from files, and a maze must be hashable."""
    numbers = list(value) if isinstance(value, Iterable) else []
    if len(numbers) != length or not all(_is_number(number) for number in numbers):
        raise ValueError(f"{name} must be {length} numbers, got {value!r}.")
    if any(number != kind(number) for number in numbers):
        raise ValueError(f"{name} must be {length} whole numbers, got {value!r}.")
    return tuple(kind(number) for number in numbers)


def read_place(value: Any, shape: tuple[int, ...], layout: MazeMap) -> np.ndarray:
    """A place for an agent, or one for each of a batch; each must lie in a free cell."""
    xy = np.asarray(value)
    if xy.dtype.kind not in "iuf":
        raise ValueError(f"xy must be two numbers, x and y, got {value!r}.")
    xy = xy.astype(np.float32)
    if xy.shape not in ((2,), shape):
        raise ValueError(
            f"xy must be one point (x, y), or one for each maze, got shape {xy.shape}."
        )
    flags = layout.flags()
    for x, y in xy.reshape(-1, 2):
        inside = 0 <= x <= layout.width - 1 and 0 <= y <= layout.height - 1
        cell = (cell_of(float(x)), cell_of(float(y))) if inside else None
        if cell is None or flags[cell] & (WALL | GOAL):
            kind = "wall" if cell is not None and flags[cell] & WALL else "goal"
            where = "outside the map" if cell is None else f"in the {kind} cell {cell}"
            raise ValueError(
                f"xy must lie in a free cell, got ({x:g}, {y:g}), which is {where}. The "
                f"map is {layout.width} by {layout.height} cells centred on whole numbers."
            )
    return xy


def read_guard(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Whether a guard is there, for one maze or for each of a batch."""
    guard = np.asarray(value)
    if guard.dtype != bool or guard.shape not in ((), shape):
        raise ValueError(
            f"guard must be True or False, or one of them for each maze, got {value!r}."
        )
    return np.broadcast_to(guard, shape)


def check_options(names: Iterable[str]) -> None:
    """Only the reset options that exist."""
    for name in names:
        if name not in RESET_OPTIONS:
            raise ValueError(unknown_name("reset option", name, RESET_OPTIONS))


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest one that does."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{what} must be one of {known}, got {name!r}.{hint}"


def _is_number(value: Any) -> TypeGuard[float]:
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _check_number(params: Any, name: str, low: float, high: float, why: str) -> None:
    value = getattr(params, name)
    # Only the goal's reward has a default that depends on the map.
    if value is None and name == "goal_reward":
        return
    if _is_number(value) and low <= value <= high:
        return
    if high < math.inf:
        text = f"in [{low:g}, {high:g}]"
    else:
        text = "that is finite" if low == -math.inf else f"of at least {low:g}"
    raise ValueError(f"{name} must be a number {text}, got {value!r}. {why}")


def _check_count(params: Any, name: str, least: int) -> None:
    value = getattr(params, name)
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (is_whole and int(value) >= least):
        raise ValueError(
            f"{name} must be a whole number of steps, at least {least}, or None for the "
            f"map's own, got {value!r}."
        )
