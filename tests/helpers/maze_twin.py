"""A slow GuardedMaze in plain Python, written from its specification, not from the JAX code.

It simulates one maze in double precision.
"""

import math
from dataclasses import dataclass, field

SMALL = [
    "########",
    "#.....B#",
    "#..###.#",
    "#....#P#",
    "#....#.#",
    "#....#G#",
    "#....R.#",
    "########",
]


@dataclass
class Twin:
    x: float
    y: float
    guard: bool
    drawing: list[str] = field(default_factory=lambda: SMALL)
    charge_each_entry: bool = False
    noise_scale: float = 0.2
    time: int = 0
    charged: set[str] = field(default_factory=set)
    bonus_is_gone: bool = False
    near_edge: bool = False
    """Whether rounding may decide in which cell a point of the last step lies."""

    def letter(self, x: float, y: float) -> str:
        for value in (x, y):
            if abs(value + 0.5 - round(value + 0.5)) < 1e-5:
                self.near_edge = True
        row = len(self.drawing) - 1 - math.floor(y + 0.5)
        return self.drawing[row][math.floor(x + 0.5)]

    def step(self, action, noise):
        """Take a step and return reward, cost, terminated, truncated, moved and path."""
        self.near_edge = False
        was_in = self.letter(self.x, self.y)
        proposed = []
        for value, move, deviation, size in zip(
            (self.x, self.y),
            action,
            noise,
            (len(self.drawing[0]), len(self.drawing)),
            strict=True,
        ):
            move = min(max(move, -1.0), 1.0)
            target = value + move + self.noise_scale * deviation
            proposed.append(min(max(target, 0.0), size - 1.0))
        middle = self.letter((self.x + proposed[0]) / 2, (self.y + proposed[1]) / 2)
        moved = middle != "#" and self.letter(*proposed) != "#"
        touched = set()
        if moved:
            self.x, self.y = proposed
            touched.add(middle)
        here = self.letter(self.x, self.y)
        touched.add(here)

        cost = 0.0
        for block, price in (("R", 20.0 if self.guard else 2.0), ("P", 4.0)):
            if block in touched:
                is_free = (
                    was_in == block if self.charge_each_entry else block in self.charged
                )
                if not is_free:
                    cost += price
                self.charged.add(block)

        if here == "G":
            reward = 2.0 * len(self.drawing)
        elif self.time < 4 * len(self.drawing):
            reward = -1.0
        else:
            reward = 0.0
        if here == "B" and not self.bonus_is_gone:
            reward += 1.0
            self.bonus_is_gone = True

        self.time += 1
        terminated = here == "G"
        truncated = not terminated and self.time == 100
        if "R" in self.charged:
            path = -1
        elif terminated:
            path = 1
        else:
            path = 0
        return reward, cost, terminated, truncated, moved, path
