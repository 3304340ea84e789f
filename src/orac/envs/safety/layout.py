"""Where things are put: rejection sampling with the package's own random numbers.

Draws the very numbers the package draws, in its order, and rejects what it rejects. A
crowded layout is tried thousands of times, so numbers are drawn in blocks, distances are
computed on plain floats first and on arrays once a few candidates have failed.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Point = tuple[float, float]

LAYOUT_ATTEMPTS = 10_000
OBJECT_ATTEMPTS = 100
GOAL_ATTEMPTS = 10_000
FEW = 8
"""Candidates tried one by one; about where one array operation becomes cheaper."""


class Slot(NamedTuple):
    """Where one thing may go, given those before it."""

    low: Point
    range: Point
    reaches: tuple[float, ...]
    """Least distances to the things before it, in their order."""


@dataclass(frozen=True)
class Placements:
    """What may be put where: no two things nearer than their radii and the margin."""

    radii: Mapping[str, float]
    """Space around each thing, in metres, in the order in which they are put down."""
    extents: tuple[float, float, float, float]
    """Least x and y, greatest x and y."""
    margin: float

    def slot(self, name: str, others: Sequence[str]) -> Slot:
        radius = self.radii[name]
        x_low, y_low, x_high, y_high = self.extents
        low = (x_low + radius, y_low + radius)
        reaches = tuple(self.radii[other] + self.margin + radius for other in others)
        return Slot(low, (x_high - radius - low[0], y_high - radius - low[1]), reaches)

    @functools.cached_property
    def slots(self) -> tuple[Slot, ...]:
        """One slot a thing, each clear of the things before it."""
        names = list(self.radii)
        return tuple(self.slot(name, names[:index]) for index, name in enumerate(names))


class Numbers:
    """Random numbers in [0, 1) drawn ahead; what was not used can be given back."""

    BLOCK = 2048

    def __init__(self, random: np.random.RandomState) -> None:
        self._random, self._start = random, random.get_state()
        self._values, self._next, self._past = np.empty(0), 0, 0

    def pairs(self, count: int) -> Float[np.ndarray, "{count} 2"]:
        """The next `count` pairs, which remain the next ones until some are used."""
        if self._next + 2 * count > len(self._values):
            rest, fresh = (
                self._values[self._next :],
                self._random.random_sample(self.BLOCK),
            )
            self._values = np.concatenate([rest, fresh])
            self._past, self._next = self._past + self._next, 0
        return self._values[self._next : self._next + 2 * count].reshape(count, 2)

    def use(self, count: int) -> None:
        """Count off `count` pairs."""
        self._next += 2 * count

    def give_back(self) -> None:
        """Leave the generator as if each used number had been drawn by itself."""
        self._random.set_state(self._start)
        self._random.random_sample(self._past + self._next)


def sample_layout(
    placements: Placements, random: np.random.RandomState
) -> dict[str, Point]:
    """A place for everything; an error where the package finds none either."""
    numbers = Numbers(random)
    for _ in range(LAYOUT_ATTEMPTS):
        points = _try_layout(placements.slots, numbers)
        if points is not None:
            numbers.give_back()
            return dict(zip(placements.radii, points, strict=True))
    raise RuntimeError(
        f"Found no layout for {', '.join(placements.radii)} within "
        f"{placements.extents} in {LAYOUT_ATTEMPTS} attempts. Make the extents larger, "
        "the keep-out radii smaller, or the things fewer."
    )


def sample_goal(
    placements: Placements, others: Mapping[str, Point], random: np.random.RandomState
) -> Point | None:
    """A new place for the goal, clear of `others`; None when there seems to be none."""
    slot, points = placements.slot("goal", list(others)), list(others.values())
    for _ in range(GOAL_ATTEMPTS):
        pair = random.random_sample(), random.random_sample()
        point = _place(slot, pair, points)
        if point is not None:
            return point
    return None


def _try_layout(slots: Sequence[Slot], numbers: Numbers) -> list[Point] | None:
    points: list[Point] = []
    for slot in slots:
        pairs = numbers.pairs(OBJECT_ATTEMPTS)
        tries, point = _first_free(slot, pairs, points)
        numbers.use(tries)
        if point is None:
            return None
        points.append(point)
    return points


def _first_free(
    slot: Slot, pairs: np.ndarray, points: list[Point]
) -> tuple[int, Point | None]:
    """How many candidates were tried, and the last of them if it was free."""
    for index, pair in enumerate(pairs[:FEW].tolist()):
        point = _place(slot, pair, points)
        if point is not None:
            return index + 1, point
    candidates = np.array(slot.low) + np.array(slot.range) * pairs
    square = np.square(candidates[:, None] - np.array(points))
    distances = np.sqrt(square[..., 0] + square[..., 1])
    free = np.all(distances >= np.array(slot.reaches), axis=1)
    index = int(free.argmax())
    if not free[index]:
        return len(pairs), None
    return index + 1, (float(candidates[index, 0]), float(candidates[index, 1]))


def _place(slot: Slot, pair: Sequence[float], points: Sequence[Point]) -> Point | None:
    """The candidate that two numbers in [0, 1) stand for, unless it is too near others."""
    (x_low, y_low), (x_range, y_range), reaches = slot
    x, y = x_low + x_range * pair[0], y_low + y_range * pair[1]
    for (other_x, other_y), reach in zip(points, reaches, strict=True):
        # Numerics: products, because `** 2` may round differently from NumPy's square.
        dx, dy = x - other_x, y - other_y
        if math.sqrt(dx * dx + dy * dy) < reach:
            return None
    return x, y
