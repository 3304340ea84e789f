"""GuardedMaze for people: a figure of the maze with labelled trajectories in it.

Needs matplotlib, imported when something is drawn. Colours are Okabe and Ito's, and each
comes with a letter, a hatching or a line style, so that none is needed to read the
picture. Draws what it is given; `maze_controllers.record_episode` plays an episode.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orac.envs.maze.env import GuardedMaze, goal_reward, num_paid_steps
from orac.envs.maze.pixels import COLOURS, START_COLOUR

_HATCHES = {"R": "///", "P": "...", "B": "", "G": "xx"}
_LINES = (
    ("#0072B2", "-", "o"),
    ("#E69F00", "--", "D"),
    ("#000000", "-.", "^"),
    ("#56B4E9", ":", "v"),
)
_COST_STYLE = {"marker": "X", "s": 160, "c": "#FFFFFF", "edgecolors": "#000000"}
_LETTER_STYLE = {"ha": "right", "fontsize": 10, "weight": "bold", "zorder": 6}
_FIGURE_SIZE = (9.6, 6.0)
_MAP_PLACE = (0.04, 0.13, 0.5, 0.8)


class Trajectory(NamedTuple):
    """One episode as it was."""

    label: str
    positions: np.ndarray
    """Every place from the start on: one more than there are steps."""
    rewards: np.ndarray
    costs: np.ndarray
    guard: bool | None = None
    """Whether a guard was there, which the agent did not know; None leaves it untold."""


def plot_trajectories(
    params: GuardedMaze, trajectories: Sequence[Trajectory] = (), title: str = ""
) -> Any:
    """A matplotlib figure of the maze, with any number of episodes drawn into it."""
    figure, axes = make_figure(params, title)
    for number, trajectory in enumerate(trajectories):
        draw_trajectory(axes, trajectory, number)
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


def guard_words(trajectory: Trajectory) -> str:
    """The end of a sentence: whether a guard was there, if that is told."""
    if trajectory.guard is None:
        return ""
    return ", a guard was there" if trajectory.guard else ", no guard was there"


def draw_trajectory(axes: Any, trajectory: Trajectory, number: int) -> list[Any]:
    """Draw the `number`-th episode of a figure; what was drawn, so that it can go again."""
    colour, style, marker = _LINES[number % len(_LINES)]
    label = (
        f"{trajectory.label}\n{len(trajectory.rewards)} steps, return "
        f"{trajectory.rewards.sum():+g}, cost {trajectory.costs.sum():g}"
        f"{guard_words(trajectory)}"
    )
    x, y = np.asarray(trajectory.positions).T
    artists = axes.plot(
        x, y, style, color=colour, marker=marker, markersize=4, lw=2, label=label
    )
    halo = {"color": colour, "markeredgecolor": "white", "zorder": 4}
    artists += axes.plot(x[0], y[0], ">", markersize=12, **halo)
    artists += axes.plot(x[-1], y[-1], "s", markersize=11, **halo)
    for step in np.flatnonzero(trajectory.costs):
        at = x[step + 1], y[step + 1]
        artists.append(axes.scatter(*at, zorder=5, **_COST_STYLE))
        artists.append(_cost_tag(axes, at, trajectory.costs[step], number))
    return artists


def _cost_tag(axes: Any, at: tuple[float, float], cost: float, number: int) -> Any:
    # Tags of several trajectories stand one above the other instead of hiding each other.
    return axes.annotate(
        f"cost {cost:g}",
        at,
        xytext=(12, 10 + 20 * number),
        textcoords="offset points",
        fontsize=10,
        weight="bold",
        zorder=6,
        bbox={"boxstyle": "round", "fc": "white", "ec": _LINES[number % 4][0]},
    )


def make_figure(params: GuardedMaze, title: str) -> tuple[Any, Any]:
    """A figure of the empty maze with its legend, and the axes to draw episodes in."""
    matplotlib = import_matplotlib()
    figure = matplotlib.figure.Figure(figsize=_FIGURE_SIZE, dpi=100)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.add_axes(_MAP_PLACE)
    draw_map(axes, params)
    axes.set_title(title, fontsize=13, loc="left", pad=10)
    _draw_legend(figure, matplotlib, params)
    return figure, axes


def draw_map(axes: Any, params: GuardedMaze) -> None:
    """The empty maze into axes of any figure: cells, their letters, the start."""
    matplotlib, layout = import_matplotlib(), params.layout
    axes.set_xlim(-0.5, layout.width - 0.5)
    axes.set_ylim(-0.5, layout.height - 0.5)
    axes.set_aspect("equal", anchor="NW")
    axes.set_xticks(range(layout.width))
    axes.set_yticks(range(layout.height))
    axes.tick_params(length=0)
    for x, y in np.ndindex(layout.width, layout.height):
        letter = layout.letter((x, y))
        axes.add_patch(_cell_patch(matplotlib, letter, (x, y)))
        beside = (x + 1, y), (x, y - 1)
        if letter in _HATCHES and letter not in map(layout.letter, beside):
            axes.text(x + 0.42, y - 0.42, letter, **_LETTER_STYLE)
    axes.add_patch(_start_patch(matplotlib, params))


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


def _start_patch(matplotlib: Any, params: GuardedMaze) -> Any:
    x_low, y_low, x_high, y_high = params.layout.start_box
    return matplotlib.patches.Rectangle(
        (x_low, y_low),
        x_high - x_low,
        y_high - y_low,
        facecolor=(*_fraction(START_COLOUR), 0.15),
        edgecolor=START_COLOUR,
        linestyle=(0, (4, 2)),
        linewidth=1.6,
    )


def _fraction(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def _draw_legend(figure: Any, matplotlib: Any, params: GuardedMaze) -> None:
    """What each kind of cell means, to the right of the map."""
    start = _start_patch(matplotlib, params)
    nothing = matplotlib.patches.Patch(alpha=0.0)
    meanings = _meanings(params)
    shown = [letter for letter in meanings if params.layout.cells(letter)]
    patches = [_cell_patch(matplotlib, letter, (0, 0)) for letter in shown]
    note = (
        f"Each of the first {num_paid_steps(params)} steps gives reward "
        f"{params.step_reward:+g}.\nEvery move is a little noisy."
    )
    figure.legend(
        handles=[start, *patches, nothing],
        labels=["the box where episodes start", *map(meanings.get, shown), note],
        loc="upper left",
        bbox_to_anchor=(0.56, 0.94),
        frameon=False,
        fontsize=10.5,
        handlelength=1.8,
        handleheight=1.8,
        labelspacing=1.0,
    )


def _meanings(params: GuardedMaze) -> dict[str, str]:
    return {
        "G": f"G, goal: reward {goal_reward(params):+g}, and the episode ends",
        "R": f"R, red: cost {params.red_cost:g}, or {params.guard_cost:g} with a guard,\n"
        f"who is there in {params.guard_probability:.0%} of the episodes, unseen",
        "P": f"P, pink: cost {params.pink_cost:g}, always",
        "B": f"B, bonus: reward {params.bonus:+g}, once an episode",
        "#": "wall",
    }


def import_matplotlib() -> Any:
    """matplotlib, with the parts used here loaded."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise ImportError(
            'Drawing the maze needs matplotlib: pip install "orac-rl[plots]"'
        ) from error
    return matplotlib
