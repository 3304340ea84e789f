"""Drawings of GuardedMaze: an image of one state, and pictures of trajectories.

`draw_state` makes the image that `render_mode="rgb_array"` returns and needs only NumPy.
`draw_text` draws for a terminal. `plot_trajectories` needs matplotlib, which is imported
when the function is called. The colours are those of Okabe and Ito, which people with
colour vision deficiencies can tell apart. In figures, cells and lines also differ by
letters, hatching or line styles, so that the figures can be read without colours.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orac.config.validation import import_extra
from orac.envs.maze.maps import MazeMap

CELL_PIXELS = 40
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
_HATCHES = {"R": "///", "P": "...", "B": "", "G": "xx"}
_LINES = (
    ("#0072B2", "-", "o"),
    ("#E69F00", "--", "D"),
    ("#000000", "-.", "^"),
    ("#56B4E9", ":", "v"),
)
_COST_STYLE = {"marker": "X", "s": 160, "c": "#FFFFFF", "edgecolors": "#000000"}
_LETTER_STYLE = {"ha": "right", "fontsize": 10, "weight": "bold", "zorder": 6}

Maze = Any
"""A `GuardedMaze`. Its module imports this one, so the class cannot be imported here."""


class Trajectory(NamedTuple):
    """One recorded episode."""

    label: str
    positions: np.ndarray
    """Positions including the start, so there is one more position than steps."""
    rewards: np.ndarray
    costs: np.ndarray
    guard: bool | None = None
    """Whether there was a guard, which the agent did not observe; None if unknown."""


TEXT_COLUMNS, TEXT_ROWS = 4, 2
"""Columns and rows of characters per cell in a terminal, where a character is about twice
as high as wide."""


def draw_text(layout: MazeMap, paths: Sequence[np.ndarray]) -> Any:
    """Return a drawing of the maze and of paths through it as rich's `Text`, for a terminal.

    Each path is an array of positions. The colours are the same as in the other drawings,
    and red, pink, bonus and goal cells also show their letter.
    """
    from rich.style import Style
    from rich.text import Text

    columns, rows = layout.width * TEXT_COLUMNS, layout.height * TEXT_ROWS
    signs = np.full((rows, columns), " ")
    for letter in _GLYPHS:
        for x, y in layout.cells(letter):
            signs[y * TEXT_ROWS + 1, x * TEXT_COLUMNS] = letter
    dots = np.zeros((rows, columns), bool)
    for path in paths:
        # Points are added between two positions, so that a long step leaves no gap.
        share = np.linspace(0, 1, 8)[:, None, None]
        points = path[:-1] * (1 - share) + path[1:] * share
        # Cell (i, j) is centred on the point (i, j).
        cells = (points.reshape(-1, 2) + 0.5) * (TEXT_COLUMNS, TEXT_ROWS)
        x, y = cells.astype(int).T
        inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
        dots[y[inside], x[inside]] = True
    text = Text()
    for row in reversed(range(rows)):
        for column in range(columns):
            letter = layout.letter((column // TEXT_COLUMNS, row // TEXT_ROWS))
            colour = AGENT_COLOUR if dots[row, column] else "#000000"
            style = Style(color=colour, bgcolor=COLOURS[letter], bold=True)
            sign = "\u25cf" if dots[row, column] else str(signs[row, column])
            text.append(sign, style)
        text.append("\n")
    return text


def draw_state(state: Any, layout: MazeMap) -> np.ndarray:
    """Return a uint8 image of the maze and the agent with shape (height, width, 3).

    The guard is not drawn, because agents that learn from images must not see it.
    """
    size = CELL_PIXELS
    # Row 0 of this array is the bottom of the maze. The last line flips the image.
    image = np.zeros((layout.height * size, layout.width * size, 3), np.uint8)
    for x, y in np.ndindex(layout.width, layout.height):
        letter = layout.letter((x, y))
        cell = image[y * size : (y + 1) * size, x * size : (x + 1) * size]
        cell[:] = _rgb(COLOURS[letter])
        if letter != "#":
            cell[0], cell[:, 0] = 225, 225
        if letter in _GLYPHS:
            glyph = [[dot == "X" for dot in row] for row in _GLYPHS[letter].split()]
            mask = np.array(glyph)[::-1].repeat(size // 10, 0).repeat(size // 10, 1)
            low, left = ((size - length) // 2 for length in mask.shape)
            cell[low : low + mask.shape[0], left : left + mask.shape[1]][mask] = 0
    left, bottom, right, top = map(_pixel, layout.start_box)
    box = image[bottom : top + 1, left : right + 1]
    for edge in (box[:2], box[-2:], box[:, :2], box[:, -2:]):
        edge[:] = _rgb(START_COLOUR)
    x, y = np.asarray(state.xy).tolist()
    rows, columns = np.indices(image.shape[:2])
    distance = np.hypot(columns - _pixel(x), rows - _pixel(y)) / size
    image[distance < 0.28] = 255
    image[distance < 0.22] = _rgb(AGENT_COLOUR)
    return image[::-1].copy()


def _pixel(coordinate: float) -> int:
    return round((coordinate + 0.5) * CELL_PIXELS)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def to_trajectories(maze: Maze, recording: Any, label: str) -> list[Trajectory]:
    """Return the episodes of a `Recording` (see `orac.evaluation.rollout`) of this maze."""
    positions = np.asarray(maze.position_of(recording.observations))
    return [
        Trajectory(
            label,
            positions[: length + 1, i],
            recording.rewards[:length, i],
            recording.costs[:length, i, 0],
            bool(recording.metrics["guard_present"][i]),
        )
        for i, length in enumerate(recording.lengths)
    ]


def plot_trajectories(
    maze: Maze, trajectories: Sequence[Trajectory] = (), title: str = ""
) -> Any:
    """Return a matplotlib figure of the maze with any number of episodes drawn into it."""
    matplotlib = import_matplotlib()
    figure = matplotlib.figure.Figure(figsize=(9.6, 6.0), dpi=100)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.add_axes((0.04, 0.13, 0.5, 0.8))
    draw_map(axes, maze)
    axes.set_title(title, fontsize=13, loc="left", pad=10)
    _draw_legend(figure, matplotlib, maze)
    for number, trajectory in enumerate(trajectories):
        _draw_trajectory(axes, trajectory, number)
    if trajectories:
        for marker, meaning in (
            (">", "start of an episode"),
            ("s", "end of an episode"),
        ):
            axes.plot([], [], marker, color="#777777", markersize=10, label=meaning)
        axes.scatter([], [], label="a cost is paid here", **_COST_STYLE)
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="upper left",
            bbox_to_anchor=(0.56, 0.47),
            frameon=False,
            fontsize=10 if len(trajectories) <= len(_LINES) else 8,
            handlelength=3.0,
        )
    return figure


def _draw_trajectory(axes: Any, trajectory: Trajectory, number: int) -> None:
    """Draw an episode in the `number`-th line style."""
    colour, style, marker = _LINES[number % len(_LINES)]
    guard = {None: "", True: ", a guard was present", False: ", no guard was present"}
    label = (
        f"{trajectory.label}\n{len(trajectory.rewards)} steps, return "
        f"{trajectory.rewards.sum():+g}, cost {trajectory.costs.sum():g}"
        f"{guard[trajectory.guard]}"
    )
    x, y = np.asarray(trajectory.positions).T
    axes.plot(x, y, style, color=colour, marker=marker, markersize=4, lw=2, label=label)
    halo = {"color": colour, "markeredgecolor": "white", "zorder": 4}
    axes.plot(x[0], y[0], ">", markersize=12, **halo)
    axes.plot(x[-1], y[-1], "s", markersize=11, **halo)
    for step in np.flatnonzero(trajectory.costs):
        point = x[step + 1], y[step + 1]
        axes.scatter(*point, zorder=5, **_COST_STYLE)
        # The label is below the point, because the goal of the named maps is above their
        # red and pink cells or far below them. The offset grows with the number, so that
        # labels of two episodes do not overlap.
        axes.annotate(
            f"cost {trajectory.costs[step]:g}",
            point,
            xytext=(12, -10 - 16 * number),
            va="top",
            textcoords="offset points",
            fontsize=10,
            weight="bold",
            zorder=6,
            bbox={"boxstyle": "round", "fc": "white", "ec": colour},
        )


def draw_map(axes: Any, maze: Maze) -> None:
    """Draw the cells, their letters and the start box of the maze into matplotlib axes."""
    matplotlib, layout = import_matplotlib(), maze.layout
    axes.set_xlim(-0.5, layout.width - 0.5)
    axes.set_ylim(-0.5, layout.height - 0.5)
    axes.set_aspect("equal", anchor="NW")
    axes.set_xticks([])
    axes.set_yticks([])
    for x, y in np.ndindex(layout.width, layout.height):
        letter = layout.letter((x, y))
        axes.add_patch(_cell_patch(matplotlib, letter, (x, y)))
        # In a block of cells with the same letter, only the lower right cell shows it.
        neighbours = (x + 1, y), (x, y - 1)
        if letter in _HATCHES and letter not in map(layout.letter, neighbours):
            axes.text(x + 0.42, y - 0.42, letter, **_LETTER_STYLE)
    axes.add_patch(_start_patch(matplotlib, layout))


def _cell_patch(matplotlib: Any, letter: str, centre: tuple[int, int]) -> Any:
    corner = centre[0] - 0.5, centre[1] - 0.5
    return matplotlib.patches.Rectangle(
        corner,
        1,
        1,
        facecolor=COLOURS[letter],
        hatch=_HATCHES.get(letter, ""),
        edgecolor="#4D4D4D" if letter == "#" else "#DDDDDD",
        linewidth=0.6,
    )


def _start_patch(matplotlib: Any, layout: MazeMap) -> Any:
    x_low, y_low, x_high, y_high = layout.start_box
    return matplotlib.patches.Rectangle(
        (x_low, y_low),
        x_high - x_low,
        y_high - y_low,
        facecolor=(*(value / 255 for value in _rgb(START_COLOUR)), 0.15),
        edgecolor=START_COLOUR,
        linestyle=(0, (4, 2)),
        linewidth=1.6,
    )


def _draw_legend(figure: Any, matplotlib: Any, maze: Maze) -> None:
    """Explain the kinds of cells to the right of the map."""
    meanings = {
        "G": f"G, goal: reward {maze.reward_at_goal:+g}, and the episode ends",
        "R": f"R, red: cost {maze.red_cost:g}, or {maze.guard_cost:g} with a guard, who is\n"
        f"present, but invisible, in {maze.guard_probability:.0%} of the episodes",
        "P": f"P, pink: cost {maze.pink_cost:g}, always",
        "B": f"B, bonus: reward {maze.bonus:+g}, once per episode",
        "#": "wall",
    }
    shown = [letter for letter in meanings if maze.layout.cells(letter)]
    note = (
        f"Each of the first {maze.paid_steps} steps gives reward "
        f"{maze.step_reward:+g}.\nEvery move is a little noisy."
    )
    figure.legend(
        handles=[
            _start_patch(matplotlib, maze.layout),
            *(_cell_patch(matplotlib, letter, (0, 0)) for letter in shown),
            matplotlib.patches.Patch(alpha=0.0),
        ],
        labels=["the box where episodes start", *map(meanings.get, shown), note],
        loc="upper left",
        bbox_to_anchor=(0.56, 0.94),
        frameon=False,
        fontsize=10.5,
        handlelength=1.8,
        handleheight=1.8,
        labelspacing=1.0,
    )


def import_matplotlib() -> Any:
    """Return matplotlib with the submodules that drawing needs."""
    parts = ("backends.backend_agg", "figure", "patches")
    names = ("matplotlib", *(f"matplotlib.{part}" for part in parts))
    return import_extra("Drawing the maze", "plots", *names)
