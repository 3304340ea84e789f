"""Draw what policies do: their paths through the maze, or ten days of a building.

A run is shown with the policy that it delivers or, if there is none, with the policy of its
newest checkpoint. A saved evaluation of a rule (a hand-coded baseline) is shown with the rule.
All policies of an environment start from the same initial states. A note names runs without
a checkpoint. Only GuardedMaze and CityLearn have pictures. Drawing needs matplotlib.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count as count_from
from pathlib import Path
from typing import Any

import jax
import numpy as np

from orac import envs
from orac.config.schema import Config
from orac.core.agent import deployed_policy
from orac.envs.base import Environment
from orac.envs.baselines import make_baseline
from orac.evaluation.rollout import Recording, record_episodes
from orac.reports.charts import COLOURS, INK
from orac.reports.matplotlib_figures import new_figure, save_figure
from orac.reports.run_reader import Group, Results, Run, count
from orac.runs.atomic_io import make_directory
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import safe_name
from orac.training import delivery, device_loop
from orac.training.delivery import certified_index, delivered, uses_mean
from orac.training.state import compiled_policy, learner_for, without_seed

_EPISODES, _MAX_RUNS = 5, 10
"""Number of episodes per run, and maximum number of runs per group, drawn in the maze."""
_MAX_BUILDINGS, _HOURS = 8, 24 * 10
"""Maximum number of groups whose building is drawn, and number of hours shown."""
_MAX_NAMED = 3
"""A note names at most this many runs without a checkpoint and counts the others."""

Recorded = tuple[Any, Recording]
"""Environment and recorded episodes of one run."""


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure with its title, and a name for its file."""

    name: str
    title: str
    figure: Any


def save_pictures(
    results: Results, directory: Path, suffix: str = ".png"
) -> list[Path]:
    """Write the pictures of all environments to files, and return their paths."""
    make_directory(directory)
    written = []
    for env_id, groups in results.by_env().items():
        for picture in behaviour_pictures(groups)[0]:
            path = directory / f"{safe_name(f'{env_id}-{picture.name}')}{suffix}"
            save_figure(picture.figure, path)
            written.append(path)
    return written


def behaviour_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Return pictures of one environment's groups, and notes on pictures that are missing."""
    env_id = groups[0].env_id
    if env_id.startswith("orac/GuardedMaze"):
        return _maze_pictures(groups)
    if env_id.startswith("orac/CityLearn"):
        return _building_pictures(groups)
    return [], []


def _record(
    groups: Sequence[Group], max_runs: int, episodes: int
) -> tuple[dict[str, list[Recorded]], list[str]]:
    """Record episodes of the first `max_runs` runs of each group.

    Returns the recordings by the group's label, and notes on runs that have no recording.
    """
    recorded: dict[str, list[Recorded]] = {}
    without_checkpoint: dict[str, None] = {}
    notes = []
    for group in groups:
        # A hand-coded rule behaves the same for every seed.
        for run in group.runs[: 1 if group.is_rule else max_runs]:
            try:
                env = make_env(run)
                policy = make_policy(run, env)
                if policy is None:
                    without_checkpoint[str(_training_path(run))] = None
                    continue
                found = env, record_episodes(env, policy, episodes)
                recorded.setdefault(group.label, []).append(found)
            except (ValueError, OSError) as error:
                notes.append(f"No picture of {run.path}: {error}")
    if without_checkpoint:
        paths = [*without_checkpoint]
        more = len(paths) - _MAX_NAMED
        listed = ", ".join(paths[:_MAX_NAMED])
        listed += f" and {more} more" if more > 0 else ""
        verb = "has" if len(paths) == 1 else "have"
        notes.insert(0, f"No picture of {listed}, which {verb} no checkpoint.")
    return recorded, notes


def make_env(run: Run) -> Environment:
    """Make the JAX environment of a run."""
    return envs.make(run.config.env.id, **dict(run.config.env.params))


def make_policy(run: Run, env: Environment) -> Callable[[Any], Any] | None:
    """Return a function from observations to actions: the policy of a run.

    For a saved evaluation of a rule, it is the rule. Returns None for a run without a
    checkpoint.
    """
    if run.rule is not None:
        return jax.jit(make_baseline(run.config.env.id, run.rule, env))
    config = without_seed(run.config)
    if config.agent.encoder is not None:
        raise ValueError(
            f"its encoder, {config.agent.encoder}, is code that a report does not import."
        )
    template = _state_template(env, config)
    loaded = Checkpoints(_training_path(run) / "checkpoints").load_latest(
        template, part=True
    )
    if loaded is None:
        return None
    state = loaded.state
    policy = deployed_policy(state.agent)
    place = certified_index(_training_path(run), state.candidates)
    best = delivered(state.candidates, place) if state.candidates else None
    mean_action = uses_mean(state.agent, config)
    if best is not None:
        policy, mean_action = best.policy, not best.samples
    act, steps = compiled_policy(env.spec, config, mean_action), count_from()
    return lambda observations: act(policy, jax.random.key(next(steps)), observations)


def _training_path(run: Run) -> Path:
    """Return the directory of the run that trained the policy."""
    return Path((run.meta.get("evaluated") or {}).get("run", run.path))


@lru_cache(maxsize=32)
def _state_template(env: Environment, config: Config) -> Any:
    """Return a template of the parts of a training state that pictures need.

    The template is the same for all seeds. It has no replay and no measured episodes. Only
    the candidates are real arrays; all other arrays have only a shape and a type.
    """
    learner = learner_for(env.spec, config)
    make = partial(device_loop.init, env=env, learner=learner, config=config)
    state = jax.eval_shape(make, jax.random.key(0))
    # The candidates are made here, because `eval_shape` would turn their float64 arrays
    # into float32.
    candidates = delivery.init(state.agent, config) if state.candidates else ()
    return state._replace(replay=(), measured=(), candidates=candidates)


def _maze_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    recorded, notes = _record(groups, _MAX_RUNS, _EPISODES)
    if not recorded:
        return [], notes
    title = (
        f"Paths of each agent's policy, {_EPISODES} episodes per seed, with the same "
        "initial states for all"
    )
    figure = _plot_paths(recorded, [group.label for group in groups])
    return [Picture("paths", title, figure)], notes


def _plot_paths(recorded: dict[str, list[Recorded]], labels: Sequence[str]) -> Any:
    """Draw one maze per group. The index of a group's label in `labels` sets its colour."""
    from orac.envs.maze.drawing import draw_map, to_trajectories

    columns = 2 if len(recorded) == 4 else min(len(recorded), 3)
    rows = -(-len(recorded) // columns)
    size = (3.4 * columns, 3.7 * rows + 0.5)
    with new_figure(rows, columns, size) as (figure, grid):
        for axes in grid.flat[len(recorded) :]:
            axes.set_visible(False)
        for axes, (label, runs) in zip(grid.flat, recorded.items(), strict=False):
            draw_map(axes, runs[0][0])
            axes.grid(visible=False)
            colour = COLOURS[labels.index(label) % len(COLOURS)]
            for path in (path for run in runs for path in to_trajectories(*run, "")):
                x, y = path.positions.T
                style = "--" if path.guard else "-"
                axes.plot(x, y, style, color=colour, lw=1.1, alpha=0.75)
                axes.plot(x[:1], y[:1], ">", color=colour, ms=4)
                axes.plot(x[-1:], y[-1:], "s", color=colour, ms=4)
                paid = np.flatnonzero(path.costs) + 1
                axes.plot(x[paid], y[paid], "X", color="white", mec=INK, mew=0.8, ms=6)
            axes.set_title(f"{label} ({count(len(runs), 'seed')})\n{_outcomes(runs)}")
        for style, label in (
            ("-", "no guard"),
            ("--", "a guard was present"),
            (">", "start"),
            ("s", "end"),
        ):
            grid[0][0].plot([], [], style, color=INK, label=label)
        grid[0][0].plot([], [], "X", color="white", mec=INK, label="cost paid")
        figure.legend(loc="outside lower center", ncols=5)
    return figure


def _outcomes(runs: Sequence[Recorded]) -> str:
    """Return one line for each outcome that occurred, with its number of episodes."""
    lines = []
    for metric in runs[0][0].spec.metrics:
        codes = np.concatenate([found.metrics[metric.name] for _, found in runs])
        counts = [(label.title, (codes == label.code).sum()) for label in metric.labels]
        lines += [f"{number} {title}" for title, number in counts if number]
    return "\n".join(lines)


def _building_pictures(groups: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """Draw ten days of one building for the first seed of each group.

    All pictures show the same outages.
    """
    from orac.envs.citylearn.drawing import plot_episode

    recorded, notes = _record(groups[:_MAX_BUILDINGS], 1, 1)
    seeds = {group.label: group.runs[0].config.seed for group in groups}
    pictures = []
    for label, [(env, recording)] in recorded.items():
        figure = plot_episode(env, recording.observations[:, 0], hours=(0, _HOURS))
        # A page shows two pictures per row. Their text is larger if the figure is smaller.
        figure.set_size_inches(8.0, 6.0)
        title = f"{label}, seed {seeds[label]}: the first ten days"
        pictures.append(Picture(f"days-{label}", title, figure))
    if len(groups) > _MAX_BUILDINGS:
        notes.append(f"Only the first {_MAX_BUILDINGS} groups have pictures.")
    return pictures, notes
