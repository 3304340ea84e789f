"""Maps of GuardedMaze: two named maps, and a parser for maps drawn as text.

A map is drawn with one character per cell. As in a plot, y grows upwards:

    # wall   . free   s start   R red (guarded)   P pink   B bonus   G goal

Cell (i, j) is centred on the point (i, j). The outermost cells must be walls, so that no
agent leaves the map. This module contains only geometry: no rewards, no costs, no JAX.
"""

import functools
from collections import deque
from dataclasses import dataclass

import numpy as np

from orac.config.validation import did_you_mean

WALL, RED, PINK, BONUS, GOAL = 1, 2, 4, 8, 16
"""Flags of one cell in `MazeMap.flags`."""

_FLAG_OF = {"#": WALL, ".": 0, "s": 0, "R": RED, "P": PINK, "B": BONUS, "G": GOAL}

Cell = tuple[int, int]
Box = tuple[float, float, float, float]
"""A rectangle: (x_low, y_low, x_high, y_high)."""


@dataclass(frozen=True)
class MazeMap:
    """A parsed and checked map."""

    rows: tuple[str, ...]
    """Rows of equal width, the top row first."""
    start_box: Box
    """Rectangle from which the start of an episode is drawn uniformly."""
    time_limit: int
    """Default maximum number of steps of an episode."""

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def height(self) -> int:
        return len(self.rows)

    @property
    def side(self) -> int:
        """Length of the longer side."""
        return max(self.width, self.height)

    def letter(self, cell: Cell) -> str:
        """Return the character of a cell."""
        x, y = cell
        return self.rows[self.height - 1 - y][x]

    def cells(self, letter: str) -> tuple[Cell, ...]:
        """Return all cells with this character."""
        return _cells(self.rows, letter)

    def flags(self) -> np.ndarray:
        """Return the flags of all cells as a new array indexed [x, y]."""
        columns = zip(*reversed(self.rows), strict=True)
        return np.array([[_FLAG_OF[c] for c in column] for column in columns], np.int32)


# This is the maze of Greenberg et al. 2022 (arXiv 2205.05138) with ORAC's bonus and pink
# cells.
# Choice: the paper does not state the pink cell's position. (6, 4) is halfway between the
# bonus and the goal.
_SMALL = """
    # # # # # # # #
    # . . . . . B #
    # . . # # # . #
    # s s s s # P #
    # s s s s # . #
    # s s s s # G #
    # s s s s R . #
    # # # # # # # #
"""

# This is the larger maze of the same authors ("mode 2"). It has no bonus or pink cell.
_LARGE = """
    ################
    #..............#
    #..............#
    #....########..#
    #....########..#
    #..........##..#
    #..........##..#
    #######....##..#
    #######....##..#
    #ssssss....##..#
    #ssssss....##GG#
    #ssssss....##GG#
    #ssssss....RR..#
    #ssssss....RR..#
    #ssssss....RR..#
    ################
"""

# Drawing, start box and time limit of each map. If the box is None, it is computed from the
# start cells. The box of the small maze is given, because it ends inside the fourth row and
# column of start cells.
_NAMED: dict[str, tuple[str, Box | None, int | None]] = {
    "8x8": (_SMALL, (0.6, 0.6, 3.6, 3.6), 100),
    "16x16": (_LARGE, None, 1920),
}


@functools.lru_cache(maxsize=64)
def load_map(
    map: str,
    start_box: Box | None = None,
    pink_cell: Cell | None = None,
) -> MazeMap:
    """Return a named map, or parse a map that is drawn as text with several lines.

    `start_box` replaces the map's start box and `pink_cell` moves its pink cell. On a drawn
    map, episodes start in the rectangle of the `s` cells, at least 0.1 away from its edge,
    and have a time limit of 100 steps for every 8 cells of the map's longer side.
    """
    if "\n" in map:
        text, own_box, time_limit = map, None, None
    elif map in _NAMED:
        text, own_box, time_limit = _NAMED[map]
    else:
        raise ValueError(
            f"map must be {', '.join(_NAMED)} or a drawing with several lines; got "
            f"{map!r}.{did_you_mean(map, _NAMED)}"
        )
    rows = _parse_rows(text)
    # The box is computed before the pink cell moves, which may replace an `s` cell.
    box = start_box or own_box or _box_of_start_cells(rows)
    if pink_cell is not None:
        rows = _move_pink(rows, pink_cell)
    _check_start_reaches_goal(rows, box)
    side = max(len(rows), len(rows[0]))
    return MazeMap(rows, box, time_limit or 100 * side // 8)


def cell_of(coordinate: float) -> int:
    """Return the index of the cell in which a coordinate lies; halves are rounded up."""
    return int(np.floor(coordinate + 0.5))


def _parse_rows(text: str) -> tuple[str, ...]:
    rows = tuple("".join(line.split()) for line in text.splitlines() if line.strip())
    if not rows:
        raise ValueError("The map has no rows: draw it with one line per row.")
    unknown = sorted(set("".join(rows)) - set(_FLAG_OF))
    if unknown:
        raise ValueError(
            f"A map is drawn with {' '.join(_FLAG_OF)}, got {' '.join(unknown)}."
        )
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise ValueError(
            f"All rows of a map must have the same width, got {sorted(widths)}."
        )
    ring = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    if set(ring) != {"#"}:
        raise ValueError(
            "The outer ring of a map must be wall (#), so that no agent leaves the map."
        )
    if not any("G" in row for row in rows):
        raise ValueError("The map has no goal: draw at least one G.")
    return rows


def _cells(rows: tuple[str, ...], letter: str) -> tuple[Cell, ...]:
    return tuple(
        (x, y)
        for y, row in enumerate(reversed(rows))
        for x, character in enumerate(row)
        if character == letter
    )


def _move_pink(rows: tuple[str, ...], cell: Cell) -> tuple[str, ...]:
    x, y = cell
    line = len(rows) - 1 - y
    inside = 0 <= x < len(rows[0]) and 0 <= line < len(rows)
    letter = rows[line][x] if inside else ""
    if letter not in (".", "s", "P"):
        names = {"#": "a wall", "R": "red", "B": "the bonus cell", "G": "the goal"}
        raise ValueError(
            f"pink_cell must be a free cell (x, y) of the map, got {cell}, which is "
            f"{names.get(letter, 'outside the map')}. On the 8x8 map, choose (6, 3), (6, 4) "
            "or (6, 5), which lie on the long path."
        )
    cleared = [row.replace("P", ".") for row in rows]
    cleared[line] = cleared[line][:x] + "P" + cleared[line][x + 1 :]
    return tuple(cleared)


def _box_of_start_cells(rows: tuple[str, ...]) -> Box:
    cells = _cells(rows, "s")
    if not cells:
        raise ValueError("The map has no start: draw s cells, or pass start_box.")
    (x_low, y_low), (x_high, y_high) = np.min(cells, 0), np.max(cells, 0)
    if len(cells) != (x_high - x_low + 1) * (y_high - y_low + 1):
        raise ValueError(
            f"The s cells must fill one rectangle, got {len(cells)} cells between "
            f"({x_low}, {y_low}) and ({x_high}, {y_high})."
        )
    return (
        float(x_low - 0.4),
        float(y_low - 0.4),
        float(x_high + 0.4),
        float(y_high + 0.4),
    )


def _check_start_reaches_goal(rows: tuple[str, ...], box: Box) -> None:
    x_low, y_low, x_high, y_high = box
    if not (x_low <= x_high and y_low <= y_high):
        raise ValueError(
            f"start_box must be (x_low, y_low, x_high, y_high), got {box}."
        )
    walls, reached = set(_cells(rows, "#")), set(_cells(rows, "G"))
    queue = deque(reached)
    while queue:
        x, y = queue.popleft()
        # Only cells that share a side count as connected, because a diagonal move between
        # two walls succeeds only with the right noise.
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if cell not in walls and cell not in reached:
                reached.add(cell)
                queue.append(cell)
    for x in range(cell_of(x_low), cell_of(x_high) + 1):
        for y in range(cell_of(y_low), cell_of(y_high) + 1):
            if not (0 <= x < len(rows[0]) and 0 <= y < len(rows)) or (x, y) in walls:
                raise ValueError(
                    f"start_box {box} touches cell ({x}, {y}), which is a wall or "
                    "outside the map; an episode must start in a free cell."
                )
            if (x, y) not in reached:
                raise ValueError(
                    f"The goal cannot be reached from the start cell ({x}, {y}): "
                    "open a way through the walls."
                )
