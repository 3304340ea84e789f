"""Build the rows of a run's logs, and write logs and checkpoints.

`metrics_row` and `episode_rows` make the rows of metrics.csv and episodes.csv. If the
multiplier follows episodes, the loop adds `measurement.metrics` to the former. A `RunLogger`
writes to a run directory, and a `MemoryLogger` writes no files.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from orac.config.serialization import to_dict
from orac.core import agent as agent_core
from orac.evaluation.episodes import cost_column
from orac.runs.csv_log import CsvLog
from orac.runs.directory import RunDirectory
from orac.runs.trackers import Tracker, open_trackers
from orac.training.saving import restore_checkpoint, save_checkpoint
from orac.training.train_step import StepReport

NO_CHECKPOINTS = "This run has no checkpoints. To get them, call learn(out=...)."


@runtime_checkable
class Logger(Protocol):
    """The interface that the training loop needs to write logs and checkpoints."""

    def write_metrics(self, row: dict[str, float]) -> None: ...

    def write_episodes(self, rows: Sequence[dict[str, float]]) -> None: ...

    def write_evaluation(
        self, rows: Sequence[dict[str, float]], summary: dict[str, float], step: int
    ) -> None: ...

    def write_timings(
        self, step: int, steps: int, trained: float, evaluated: float
    ) -> None: ...

    def save(self, step: int, runner: Any, counters: Any) -> None: ...

    def newest_checkpoint(self) -> str:
        """Return a sentence about the newest checkpoint, for an error message."""
        ...

    def close(self) -> None: ...


class MemoryLogger:
    """A logger that writes no files. It stores metrics and evaluations in memory, for plots."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []
        self.evaluations: list[dict[str, float]] = []

    def write_metrics(self, row: dict[str, float]) -> None:
        self.metrics.append(row)

    def write_episodes(self, rows: Sequence[dict[str, float]]) -> None:
        pass

    def write_evaluation(
        self, rows: Sequence[dict[str, float]], summary: dict[str, float], step: int
    ) -> None:
        self.evaluations += rows

    def write_timings(
        self, step: int, steps: int, trained: float, evaluated: float
    ) -> None:
        pass

    def save(self, step: int, runner: Any, counters: Any) -> None:
        pass

    def newest_checkpoint(self) -> str:
        return NO_CHECKPOINTS

    def close(self) -> None:
        pass


class RunLogger:
    """A logger that writes CSV files and checkpoints to one run directory.

    It also sends metrics to trackers, such as TensorBoard.
    """

    def __init__(
        self,
        run: RunDirectory,
        runner: Any,
        trackers: Iterable[str] = ("tensorboard",),
    ) -> None:
        self.run = run
        training = runner.config.training
        self.checkpoints = run.checkpoints(include_replay=training.keep_replay)
        self._saved_step: int | None = None
        self._logs: dict[str, CsvLog] = {}
        self._tracker_names = tuple(trackers)
        self._config = to_dict(runner.config)
        self._trackers: list[Tracker] | None = None

    def restore(self, runner: Any, counters: Any) -> list[str]:
        """Restore the newest intact checkpoint and return messages for the user.

        The logs are truncated to their length at that checkpoint. If there is no checkpoint,
        the run starts again from its config.
        """
        step, messages = restore_checkpoint(
            self.run, self.checkpoints, runner, counters
        )
        self._saved_step = step
        return messages

    def _append(self, name: str, row: dict[str, Any]) -> None:
        # The first row defines the columns, because a run's metrics depend on its config.
        if name not in self._logs:
            self._logs[name] = self.run.log(name, row)
        self._logs[name].append(row)

    def _track(self, step: int, row: dict[str, float]) -> None:
        if self._trackers is None:
            self._trackers = open_trackers(
                self._tracker_names, self.run.path, self._config, self._saved_step or 0
            )
        # Leave out metrics without a value, for example before an episode has ended.
        known = {name: value for name, value in row.items() if math.isfinite(value)}
        for tracker in self._trackers:
            tracker.log(step, known)

    def write_metrics(self, row: dict[str, float]) -> None:
        # An empty cell means that there is no value; `nan` would look like a failure.
        cells = {name: None if math.isnan(v) else v for name, v in row.items()}
        self._append("metrics", cells)
        self._logs["metrics"].flush()
        self._track(int(row["env_steps"]), row)

    def write_episodes(self, rows: Sequence[dict[str, float]]) -> None:
        for row in rows:
            self._append("episodes", row)

    def write_evaluation(
        self, rows: Sequence[dict[str, float]], summary: dict[str, float], step: int
    ) -> None:
        for row in rows:
            self._append("evaluations", row)
        self._track(step, {f"evaluation/{name}": v for name, v in summary.items()})

    def write_timings(
        self, step: int, steps: int, trained: float, evaluated: float
    ) -> None:
        self._append(
            "timings",
            {
                "env_steps": step,
                "train_seconds": trained,
                "evaluate_seconds": evaluated,
                "steps_per_second": steps / trained if trained else 0.0,
            },
        )

    def save(self, step: int, runner: Any, counters: Any) -> None:
        save_checkpoint(self.run, self.checkpoints, step, runner, counters)
        self._saved_step = step

    def newest_checkpoint(self) -> str:
        return self.checkpoints.newest_checkpoint()

    def close(self) -> None:
        for tracker in self._trackers or ():
            tracker.close()
        self.run.close()


def metrics_row(
    report: StepReport, counters: Any, step: int, runner: Any
) -> dict[str, float]:
    """Return a row of metrics.csv: sums over the run, and means since the previous row.

    If no episode has ended since then, the mean reward and costs of the previous row are
    repeated. The new episodes are added to `counters`. A NaN always means that there was
    nothing to average, because the health checks stop a run if a measured number is NaN.
    """
    names = runner.spec.cost_names
    ended = report.ended
    rewards, costs = report.totals.reward[ended], report.totals.cost[ended]
    counters.episodes += len(rewards)
    limits = {c.name: c.limit for c in runner.config.constraints}
    if not counters.cumulative_cost:
        counters.cumulative_cost = [0.0] * len(names)
        counters.violations = [0] * len(names)
        counters.last_cost = [math.nan] * len(names)
    if len(rewards):
        counters.last_reward = float(rewards.mean(dtype=np.float64))
    row: dict[str, float] = {
        "env_steps": step,
        "gradient_steps": int(runner.state.agent.gradient_steps),
        "episodes": counters.episodes,
        "train/reward": counters.last_reward,
    }
    for m, name in enumerate(names):
        cost = float(report.cost[:, m].sum(dtype=np.float64))
        counters.cumulative_cost[m] += cost
        if len(rewards):
            counters.last_cost[m] = float(costs[:, m].mean(dtype=np.float64))
        over = costs[:, m] > limits.get(name, math.inf)
        counters.violations[m] += int(over.sum())
        column = cost_column(name)
        row[f"train/{column}"] = counters.last_cost[m]
        row[f"train/cumulative_{column}"] = counters.cumulative_cost[m]
        row[f"train/violations_{column}"] = counters.violations[m]
    updated = report.updated
    known = {} if updated.any() else constraint_metrics_without_update(runner)
    for name, values in sorted(report.metrics.items()):
        if updated.any():
            row[name] = float(values[updated].mean(dtype=np.float64))
        else:
            row[name] = known.get(name, math.nan)
    return row


def constraint_metrics_without_update(runner: Any) -> dict[str, float]:
    """Return the metrics of the constraints for a row without updates.

    The risk is NaN, unless `agent.multiplier.states` is `starts`.
    """
    learner = runner.learner
    unknown = jnp.full((learner.problem.num_constraints, 1), jnp.nan)
    metrics = agent_core.constraint_metrics(runner.state.agent, unknown, learner)
    return {name: float(value) for name, value in metrics.items()}


def episode_rows(
    report: StepReport, first_round: int, runner: Any
) -> list[dict[str, float]]:
    """Return one row per training episode that ended in these rounds, in order of time.

    `first_round` is the number of rounds before the report.
    """
    num_envs = runner.config.training.num_envs
    rows: list[dict[str, float]] = []
    for i, env in np.argwhere(report.ended):
        totals = report.totals
        row: dict[str, float] = {
            "env_steps": (first_round + int(i) + 1) * num_envs,
            "env": int(env),
            "reward": float(totals.reward[i, env]),
        }
        for m, name in enumerate(runner.spec.cost_names):
            row[cost_column(name)] = float(totals.cost[i, env, m])
        row["length"] = int(totals.length[i, env])
        for name in runner.spec.metric_names:
            row[name] = float(report.env_metrics[name][i, env])
        rows.append(row)
    return rows
