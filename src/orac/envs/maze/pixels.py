"""One GuardedMaze as an image, in plain NumPy: what `render_mode="rgb_array"` returns.

Cells have a colour and a letter, so that nothing rests on telling red from green. The
guard is not drawn: whoever learns from the picture must not see it. Figures and
animations for people are in `maze_drawing`.
"""

from typing import Any

import numpy as np

from orac.envs.maze.maps import MazeMap

CELL_PIXELS = 40

# Okabe and Ito's palette, which every kind of colour vision tells apart.
COLOURS = {
    "#": "#4D4D4D",
    ".": "#FFFFFF",
    "s": "#FFFFFF",
    "R": "#D55E00",
    "P": "#CC79A7",
    "B": "#F0E442",
    "G": "#009E73",
}
AGENT_COLOUR = "#0072B2"
START_COLOUR = "#56B4E9"

_GLYPHS = {
    "R": "XX. X.X XX. X.X X.X",
    "P": "XXX X.X XXX X.. X..",
    "B": "XX. X.X XX. X.X XX.",
    "G": "XXX X.. X.X X.X XXX",
}


def draw_state(state: Any, layout: MazeMap) -> np.ndarray:
    """The maze and the agent in it, as uint8 of height, width and RGB."""
    image = _draw_map(layout)
    x, y = np.asarray(state.xy).tolist()
    rows, columns = np.indices(image.shape[:2])
    distance = np.hypot(columns - _pixel(x), rows - _pixel(y)) / CELL_PIXELS
    image[distance < 0.28] = 255
    image[distance < 0.22] = _rgb(AGENT_COLOUR)
    return image[::-1].copy()


def _draw_map(layout: MazeMap) -> np.ndarray:
    """The map with its first row at the bottom, as coordinates grow."""
    size = CELL_PIXELS
    image = np.zeros((layout.height * size, layout.width * size, 3), np.uint8)
    for x, y in np.ndindex(layout.width, layout.height):
        letter = layout.letter((x, y))
        cell = image[y * size : (y + 1) * size, x * size : (x + 1) * size]
        cell[:] = _rgb(COLOURS[letter])
        if letter != "#":
            cell[0], cell[:, 0] = 225, 225
        if letter in _GLYPHS:
            _stamp(cell, _GLYPHS[letter])
    _outline(image, *(_pixel(value) for value in layout.start_box))
    return image


def _outline(image: np.ndarray, left: int, bottom: int, right: int, top: int) -> None:
    box = image[bottom : top + 1, left : right + 1]
    for edge in (box[:2], box[-2:], box[:, :2], box[:, -2:]):
        edge[:] = _rgb(START_COLOUR)


def _stamp(cell: np.ndarray, glyph: str) -> None:
    dots = np.array([[dot == "X" for dot in row] for row in glyph.split()])[::-1]
    scale = CELL_PIXELS // 10
    mask = dots.repeat(scale, 0).repeat(scale, 1)
    low, left = ((CELL_PIXELS - length) // 2 for length in mask.shape)
    cell[low : low + mask.shape[0], left : left + mask.shape[1]][mask] = 0


def _pixel(coordinate: float) -> int:
    return round((coordinate + 0.5) * CELL_PIXELS)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
