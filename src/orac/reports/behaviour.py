"""Pictures of what policies do: paths through the maze, hours of a building.

Each group's policies are played from the same starts. A run without a checkpoint has no
picture, and is told; so is an environment that nobody draws. Needs matplotlib.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from orac.envs.citylearn.env import CityLearn
from orac.envs.maze.env import GuardedMaze, position_of
from orac.evaluation.rollout import Recording, record_episodes
from orac.reports.figures import COLOURS, INK, STYLE, import_matplotlib, make_figure
from orac.reports.playing import NoCheckpoint, policy_of, world_of
from orac.reports.run_groups import Group, Results
from orac.reports.run_reader import Run
from orac.runs.directory import safe_name

EPISODES = 5
"""Episodes that each run plays in the maze."""
MOST_HOURS = 24 * 10
_MOST_RUNS = 10
"""Runs of a group that are played."""
_DPI = 110
_MONTH_SIZE = (8.0, 6.0)
_MOST_MONTHS = 8
"""Groups whose building is drawn."""
_MOST_NAMED = 3
"""Runs without a checkpoint that are named; others are counted."""


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows, and a word for its file."""

    name: str
    title: str
    figure: Any


def world_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Pictures of one environment's groups, and sentences on what is missing."""
    env_id = groups[0].env_id
    if env_id.startswith("orac/GuardedMaze"):
        return _maze_pictures(groups)
    if env_id.startswith("orac/CityLearn"):
        return _building_pictures(groups)
    return [], []


def _played(run: Run, episodes: int) -> tuple[Any, Recording]:
    env = world_of(run)
    return env, record_episodes(env, policy_of(run, env), episodes)


class _Missing:
    """A picture is no reason to have no report: what cannot be played is told."""

    def __init__(self) -> None:
        self._bare: list[Path] = []
        self._told: list[str] = []

    def try_to_play(self, run: Run, episodes: int) -> tuple[Any, Recording] | None:
        try:
            return _played(run, episodes)
        except NoCheckpoint as error:
            self._bare.append(error.path)
        except (ValueError, OSError) as error:
            self._told.append(f"No picture of {run.path}: {error}")
        return None

    def sentences(self) -> list[str]:
        """One for all runs that have no checkpoint, and one for each other failure."""
        if not self._bare:
            return self._told
        paths = [str(path) for path in dict.fromkeys(self._bare)]
        names = ", ".join(paths[:_MOST_NAMED])
        more = len(paths) - _MOST_NAMED
        some = f"{names} and {more} more" if more > 0 else names
        word = "has" if len(paths) == 1 else "have"
        return [
            f"No picture without a policy: {some} {word} no checkpoint.",
            *self._told,
        ]


def _maze_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    missing = _Missing()
    found = []
    for number, group in enumerate(groups):
        # A rule does the same whatever its seed.
        runs = group.runs[: 1 if group.is_rule else _MOST_RUNS]
        played = [x for run in runs if (x := missing.try_to_play(run, EPISODES))]
        if played:
            found.append((number, group.label, played))
    if not found:
        return [], missing.sentences()
    title = (
        f"Paths of each agent's mean action, {EPISODES} episodes a seed, the same starts "
        "for all"
    )
    return [Picture("paths", title, plot_paths(found))], missing.sentences()


def plot_paths(
    found: Sequence[tuple[int, str, Sequence[tuple[Any, Recording]]]],
) -> Any:
    """One maze a group, each with the paths of its runs; a cross where a cost is paid."""
    from orac.envs.maze.drawing import draw_map

    matplotlib = import_matplotlib()
    columns = 2 if len(found) == 4 else min(len(found), 3)
    rows = -(-len(found) // columns)
    size = (3.4 * columns, 3.7 * rows + 0.5)
    with matplotlib.rc_context(STYLE):
        figure, grid = make_figure(matplotlib, rows, columns, size)
        for axes in grid.flat[len(found) :]:
            axes.set_visible(False)
        for axes, (number, label, played) in zip(grid.flat, found, strict=False):
            draw_map(axes, played[0][0])
            axes.grid(visible=False)
            for env, recording in played:
                _draw_paths(axes, env, recording, COLOURS[number % len(COLOURS)])
            axes.set_title(f"{label}, {_seeds(len(played))}\n{_ends(played)}")
        _draw_key(matplotlib, figure)
    return figure


def _draw_paths(axes: Any, env: GuardedMaze, recording: Recording, colour: str) -> None:
    for i, length in enumerate(recording.lengths):
        seen = recording.observations[: length + 1, i]
        x, y = np.asarray(position_of(jnp.asarray(seen), env)).T
        guarded = recording.metrics["guard_present"][i] > 0.5
        style = "--" if guarded else "-"
        axes.plot(x, y, style, color=colour, lw=1.1, alpha=0.75)
        axes.plot(x[:1], y[:1], ">", color=colour, ms=4)
        axes.plot(x[-1:], y[-1:], "s", color=colour, ms=4)
        paid = np.flatnonzero(recording.costs[:length, i, 0]) + 1
        axes.plot(x[paid], y[paid], "X", color="white", mec=INK, mew=0.8, ms=6)


def _ends(played: Sequence[tuple[Any, Recording]]) -> str:
    paths = np.concatenate([r.metrics["path"] for _, r in played])
    words = [("long path", 1), ("guarded cell", -1), ("never arrive", 0)]
    shares = [(word, (paths == kind).sum()) for word, kind in words]
    return ", ".join(f"{count} {word}" for word, count in shares if count)


def _draw_key(matplotlib: Any, figure: Any) -> None:
    marks = [
        ("-", "", "no guard there"),
        ("--", "", "a guard was there"),
        ("", ">", "start"),
        ("", "s", "end"),
        ("", "X", "a cost is paid"),
    ]
    lines = [
        matplotlib.lines.Line2D(
            [], [], ls=style, marker=mark, color=INK, label=label, mfc=fill, mec=INK
        )
        for style, mark, label in marks
        for fill in ["white" if mark == "X" else INK]
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=5)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _building_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Ten days of one building under each group's first seed, the same outages for all."""
    from orac.envs.citylearn.drawing import plot_episode

    missing = _Missing()
    pictures = []
    for group in groups[:_MOST_MONTHS]:
        found = missing.try_to_play(group.runs[0], 1)
        if found is None:
            continue
        env, recording = found
        assert isinstance(env, CityLearn)
        title = f"{group.label}, seed {group.runs[0].config.seed}: the first ten days"
        figure = plot_episode(env, recording.observations[:, 0], hours=(0, MOST_HOURS))
        # A page shows two side by side: smaller figures have letters that can be read.
        figure.set_size_inches(*_MONTH_SIZE)
        pictures.append(Picture(f"days-{group.label}", title, figure))
    told = missing.sentences()
    if len(groups) > _MOST_MONTHS:
        told.append(f"The first {_MOST_MONTHS} groups have pictures; others have none.")
    return pictures, told


def save_pictures(found: Results, directory: Path, suffix: str = ".png") -> list[Path]:
    """Every picture of every environment as a file; the paths written."""
    written = []
    for env_id, groups in found.worlds().items():
        for picture in world_pictures(groups)[0]:
            name = safe_name(f"{env_id}-{picture.name}")
            path = directory / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.figure.savefig(path)
            written.append(path)
    return written


def to_png(picture: Picture) -> bytes:
    """As a PNG file's bytes, for a page."""
    stream = io.BytesIO()
    picture.figure.savefig(stream, format="png", dpi=_DPI)
    return stream.getvalue()
