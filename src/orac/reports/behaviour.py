"""Pictures of what policies do: paths through the maze, days of a building.

A run's policy is the mean action of its newest checkpoint, loaded without the replay. All
policies of an environment are recorded from the same initial states. A run without a
checkpoint is noted and has no picture. Only GuardedMaze and CityLearn have pictures.
Needs matplotlib.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from orac import envs
from orac.config.schema import Config
from orac.envs.base import Environment
from orac.envs.baselines import make_baseline
from orac.evaluation.rollout import Recording, record_episodes
from orac.reports.charts import COLOURS, INK
from orac.reports.figures import STYLE, import_matplotlib, make_figure
from orac.reports.run_reader import Group, Results, Run, count
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import safe_name
from orac.training import device_loop
from orac.training.state import compiled_policy, learner_for, without_seed

_EPISODES = 5
"""Episodes of each run in the maze."""
_MAX_RUNS = 10
"""Runs of a group that are drawn in the maze."""
_MAX_BUILDINGS = 8
"""Groups whose building is drawn."""
_HOURS = 24 * 10
_MAX_NAMED = 3
"""A note names at most this many runs without a checkpoint and counts the others."""

Policy = Callable[[Any], Any]
"""Function from a batch of observations to actions in the environment's box."""


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure with its title, and a name for its file."""

    name: str
    title: str
    figure: Any

    def to_png(self) -> bytes:
        """Return the picture as a PNG file."""
        stream = io.BytesIO()
        self.figure.savefig(stream, format="png", dpi=110)
        return stream.getvalue()


def save_pictures(
    results: Results, directory: Path, suffix: str = ".png"
) -> list[Path]:
    """Write every picture of every environment to a file, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for env_id, groups in results.by_env().items():
        for picture in behaviour_pictures(groups)[0]:
            name = safe_name(f"{env_id}-{picture.name}")
            path = directory / f"{name}{suffix}"
            picture.figure.savefig(path)
            written.append(path)
    return written


def behaviour_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Return pictures of one environment's groups, and notes on what is missing."""
    env_id = groups[0].env_id
    if env_id.startswith("orac/GuardedMaze"):
        return _maze_pictures(groups)
    if env_id.startswith("orac/CityLearn"):
        return _building_pictures(groups)
    return [], []


@dataclass
class _Recorder:
    """Records episodes of runs, and collects notes on runs that cannot be played."""

    _without_checkpoint: dict[Path, None] = field(default_factory=dict)
    _errors: list[str] = field(default_factory=list)

    def record(self, run: Run, episodes: int) -> tuple[Any, Recording] | None:
        """Return the environment and the recorded episodes, or None."""
        try:
            env = make_env(run)
            policy = make_policy(run, env)
            if policy is not None:
                return env, record_episodes(env, policy, episodes)
            self._without_checkpoint[_training_path(run)] = None
        except (ValueError, OSError) as error:
            self._errors.append(f"No picture of {run.path}: {error}")
        return None

    def notes(self) -> list[str]:
        """Return one note on all runs without a checkpoint, and one per other failure."""
        paths = [*map(str, self._without_checkpoint)]
        if not paths:
            return self._errors
        more = len(paths) - _MAX_NAMED
        listed = ", ".join(paths[:_MAX_NAMED]) + (
            f" and {more} more" if more > 0 else ""
        )
        verb = "has" if len(paths) == 1 else "have"
        note = f"No picture without a policy: {listed} {verb} no checkpoint."
        return [note, *self._errors]


def make_env(run: Run) -> Environment:
    """Make the JAX environment of a run."""
    return envs.make(run.config.env.id, **dict(run.config.env.params))


def make_policy(run: Run, env: Environment) -> Policy | None:
    """Return the policy of a run or rule; None for a run without a checkpoint."""
    if run.rule is not None:
        return jax.jit(make_baseline(run.config.env.id, run.rule, env))
    config = without_seed(run.config)
    template = _state_template(env, config)
    loaded = Checkpoints(_training_path(run) / "checkpoints").load_latest(template)
    if loaded is None:
        return None
    agent, key = loaded.state.agent, jax.random.key(0)
    mean_action = compiled_policy(env.spec, config, True)
    return lambda observations: mean_action(agent, key, observations)


def _training_path(run: Run) -> Path:
    """Return the directory of the run that trained the policy."""
    return Path((run.meta.get("evaluated") or {}).get("run", run.path))


@lru_cache(maxsize=32)
def _state_template(env: Environment, config: Config) -> Any:
    """Return the shapes of a training state, which all seeds of a group share."""
    learner = learner_for(env.spec, config)
    make = partial(device_loop.init, env=env, learner=learner, config=config)
    return jax.eval_shape(make, jax.random.key(0))._replace(replay=())


def _maze_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    recorder = _Recorder()
    recorded = {}
    for group in groups:
        # A rule behaves the same whatever the seed.
        runs = group.runs[: 1 if group.is_rule else _MAX_RUNS]
        found = [x for run in runs if (x := recorder.record(run, _EPISODES))]
        if found:
            recorded[group.label] = found
    if not recorded:
        return [], recorder.notes()
    title = (
        f"Paths of each agent's mean action, {_EPISODES} episodes per seed, with the same "
        "initial states for all"
    )
    labels = [group.label for group in groups]
    return [Picture("paths", title, plot_paths(recorded, labels))], recorder.notes()


def plot_paths(
    recorded: dict[str, list[tuple[Any, Recording]]], labels: Sequence[str]
) -> Any:
    """Draw one maze per group with the paths of its runs.

    `recorded` has the environment and the episodes of each run, by label. A group has the
    colour of its label's place in `labels`.
    """
    from orac.envs.maze.drawing import draw_map

    matplotlib = import_matplotlib()
    columns = 2 if len(recorded) == 4 else min(len(recorded), 3)
    rows = -(-len(recorded) // columns)
    size = (3.4 * columns, 3.7 * rows + 0.5)
    with matplotlib.rc_context(STYLE):
        figure, grid = make_figure(matplotlib, rows, columns, size)
        for axes in grid.flat[len(recorded) :]:
            axes.set_visible(False)
        for axes, (label, runs) in zip(grid.flat, recorded.items(), strict=False):
            draw_map(axes, runs[0][0])
            axes.grid(visible=False)
            for env, recording in runs:
                colour = COLOURS[labels.index(label) % len(COLOURS)]
                _draw_paths(axes, env, recording, colour)
            axes.set_title(f"{label} ({count(len(runs), 'seed')})\n{_outcomes(runs)}")
        for style, label in (
            ("-", "no guard there"),
            ("--", "a guard was there"),
            (">", "start"),
            ("s", "end"),
        ):
            grid[0][0].plot([], [], style, color=INK, label=label)
        grid[0][0].plot([], [], "X", color="white", mec=INK, label="a cost is paid")
        figure.legend(loc="outside lower center", ncols=5)
    return figure


def _draw_paths(axes: Any, env: Any, recording: Recording, colour: str) -> None:
    from orac.envs.maze.drawing import to_trajectories

    for trajectory in to_trajectories(env, recording, ""):
        x, y = trajectory.positions.T
        style = "--" if trajectory.guard else "-"
        axes.plot(x, y, style, color=colour, lw=1.1, alpha=0.75)
        axes.plot(x[:1], y[:1], ">", color=colour, ms=4)
        axes.plot(x[-1:], y[-1:], "s", color=colour, ms=4)
        paid = np.flatnonzero(trajectory.costs) + 1
        axes.plot(x[paid], y[paid], "X", color="white", mec=INK, mew=0.8, ms=6)


def _outcomes(runs: Sequence[tuple[Any, Recording]]) -> str:
    """Return lines with the number of episodes for each label of the env's metrics."""
    lines = []
    for metric in runs[0][0].spec.metrics:
        codes = np.concatenate(
            [recording.metrics[metric.name] for _, recording in runs]
        )
        counts = [(label.title, (codes == label.code).sum()) for label in metric.labels]
        lines += [f"{number} {title}" for title, number in counts if number]
    return "\n".join(lines)


def _building_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Draw ten days of one building for each group's first seed, with the same outages."""
    from orac.envs.citylearn.drawing import plot_episode

    recorder = _Recorder()
    pictures = []
    for group in groups[:_MAX_BUILDINGS]:
        found = recorder.record(group.runs[0], 1)
        if found is None:
            continue
        env, recording = found
        title = f"{group.label}, seed {group.runs[0].config.seed}: the first ten days"
        figure = plot_episode(env, recording.observations[:, 0], hours=(0, _HOURS))
        # A page shows two pictures per row; smaller figures keep their text readable.
        figure.set_size_inches(8.0, 6.0)
        pictures.append(Picture(f"days-{group.label}", title, figure))
    notes = recorder.notes()
    if len(groups) > _MAX_BUILDINGS:
        notes.append(f"Only the first {_MAX_BUILDINGS} groups have pictures.")
    return pictures, notes
