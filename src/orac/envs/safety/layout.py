"""Layout sampling: rejection sampling of positions as in Safety-Gymnasium.

This module draws the same random numbers in the same order as the package, and rejects the
same candidates. A crowded layout takes thousands of attempts, so numbers are drawn in
blocks. Each object's first few candidates are checked one by one with Python's floats, and
the others all at once with arrays.
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
SCALAR_CANDIDATES = 8
"""Number of candidates to check one by one. For more, one array operation is cheaper."""


class Slot(NamedTuple):
    """Allowed positions of one object, given the objects placed before it."""

    low: Point
    range: Point
    min_distances: tuple[float, ...]
    """Minimum distances to the objects placed before it, in their order."""


@dataclass(frozen=True)
class Placements:
    """Objects to place. Any two are at least the sum of their radii and the margin apart."""

    radii: Mapping[str, float]
    """Keep-out radius of each object in metres, in the order of placement."""
    extents: tuple[float, float, float, float]
    """Minimum x, minimum y, maximum x, maximum y."""
    margin: float

    def slot(self, name: str, others: Sequence[str]) -> Slot:
        radius = self.radii[name]
        x_low, y_low, x_high, y_high = self.extents
        low = (x_low + radius, y_low + radius)
        range_ = (x_high - radius - low[0], y_high - radius - low[1])
        distances = tuple(self.radii[other] + self.margin + radius for other in others)
        return Slot(low, range_, distances)

    @functools.cached_property
    def slots(self) -> tuple[Slot, ...]:
        """One slot per object, clear of the objects before it."""
        names = list(self.radii)
        return tuple(self.slot(name, names[:index]) for index, name in enumerate(names))


class RandomBuffer:
    """Draws random numbers in [0, 1) in advance, and can give back the unused ones."""

    BLOCK = 2048

    def __init__(self, random: np.random.RandomState) -> None:
        self._random, self._initial_state = random, random.get_state()
        self._values, self._next, self._dropped = np.empty(0), 0, 0

    def pairs(self, count: int) -> Float[np.ndarray, "{count} 2"]:
        """Return the next `count` pairs without consuming them."""
        if self._next + 2 * count > len(self._values):
            rest = self._values[self._next :]
            block = self._random.random_sample(self.BLOCK)
            self._values = np.concatenate([rest, block])
            self._dropped, self._next = self._dropped + self._next, 0
        return self._values[self._next : self._next + 2 * count].reshape(count, 2)

    def consume(self, count: int) -> None:
        """Mark the next `count` pairs as used."""
        self._next += 2 * count

    def return_unused(self) -> None:
        """Set the generator back, as if it had drawn only the used numbers."""
        self._random.set_state(self._initial_state)
        self._random.random_sample(self._dropped + self._next)


def sample_layout(
    placements: Placements, random: np.random.RandomState
) -> dict[str, Point]:
    """Return a position for every object, or raise an error as the package does."""
    numbers = RandomBuffer(random)
    for _ in range(LAYOUT_ATTEMPTS):
        points: list[Point] = []
        for slot in placements.slots:
            tried, point = _first_free(slot, numbers.pairs(OBJECT_ATTEMPTS), points)
            numbers.consume(tried)
            if point is None:
                break
            points.append(point)
        else:
            numbers.return_unused()
            return dict(zip(placements.radii, points, strict=True))
    raise RuntimeError(
        f"Found no layout for {', '.join(placements.radii)} within "
        f"{placements.extents} in {LAYOUT_ATTEMPTS} attempts. Make the extents larger, "
        "make the keep-out radii smaller, or use fewer objects."
    )


def sample_goal(
    placements: Placements, others: Mapping[str, Point], random: np.random.RandomState
) -> Point | None:
    """Return a goal position clear of `others`; None if no attempt succeeds."""
    slot, points = placements.slot("goal", list(others)), list(others.values())
    for _ in range(GOAL_ATTEMPTS):
        pair = random.random_sample(), random.random_sample()
        point = _place(slot, pair, points)
        if point is not None:
            return point
    return None


def _first_free(
    slot: Slot, pairs: np.ndarray, points: list[Point]
) -> tuple[int, Point | None]:
    """Return how many candidates were tried, and the first free one or None."""
    for index, pair in enumerate(pairs[:SCALAR_CANDIDATES].tolist()):
        point = _place(slot, pair, points)
        if point is not None:
            return index + 1, point
    candidates = np.array(slot.low) + np.array(slot.range) * pairs
    square = np.square(candidates[:, None] - np.array(points))
    distances = np.sqrt(square[..., 0] + square[..., 1])
    free = np.all(distances >= np.array(slot.min_distances), axis=1)
    index = int(free.argmax())
    if not free[index]:
        return len(pairs), None
    return index + 1, (float(candidates[index, 0]), float(candidates[index, 1]))


def _place(slot: Slot, pair: Sequence[float], points: Sequence[Point]) -> Point | None:
    """Map two numbers in [0, 1) to a position; return None if it is too near others."""
    (x_low, y_low), (x_range, y_range), min_distances = slot
    x, y = x_low + x_range * pair[0], y_low + y_range * pair[1]
    for (other_x, other_y), min_distance in zip(points, min_distances, strict=True):
        # Numerics: `dx * dx` rounds like NumPy's square, but `dx ** 2` may not.
        dx, dy = x - other_x, y - other_y
        if math.sqrt(dx * dx + dy * dy) < min_distance:
            return None
    return x, y
