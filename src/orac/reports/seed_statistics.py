"""Statistics over the seeds of a group: last evaluations and learning curves.

Seeds are the unit of every mean and interval (see `evaluation.intervals`). The risk of
episodes is `evaluation.result.risk_of_episodes`. Intervals are cut at
`metrics.bounds_of`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orac.config.schema import RiskMeasure
from orac.core.risk import cvar
from orac.envs.registry import metrics_of
from orac.evaluation.intervals import Interval, mean_band, mean_interval
from orac.evaluation.result import Episodes, cost_column, risk_of_episodes, summarise
from orac.reports.metrics import bounds_of, common_tails
from orac.reports.run_reader import Group, Run, is_cost_column

SeedCurve = tuple[np.ndarray, np.ndarray]
"""Environment steps and values of one run."""
BANDS = ("interval", "half-std")
"""Bands of a curve: 95 % interval of the mean, or half a standard deviation each way."""
_EPISODE_COLUMNS = ("env_steps", "episode", "reward", "length")


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean over seeds at each point; `low` and `high` are NaN where there is no band."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray
    """Number of seeds at each point."""

    def __getitem__(self, points: slice | list[int]) -> "Curve":
        """Return the curve at some of its points."""
        fields = self.x, self.mean, self.low, self.high, self.seeds
        return Curve(*(values[points] for values in fields))

    @property
    def stretches(self) -> list[slice]:
        """Ranges of neighbouring points that have a band."""
        known = np.isfinite(self.low)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], known, [0]])))
        return [slice(int(start), int(end)) for start, end in edges.reshape(-1, 2)]

    @property
    def lone_points(self) -> np.ndarray:
        """Points with a band whose neighbours have none, so that no area can be drawn."""
        lone = [part.start for part in self.stretches if part.stop - part.start == 1]
        return np.array(lone, int)


def last_evaluation(run: Run) -> Episodes:
    """Return the episodes of a run's last evaluation."""
    last = run.evaluations["env_steps"] == run.evaluation_steps[-1]
    columns = {name: values[last] for name, values in run.evaluations.items()}
    costs = [columns[cost_column(name)] for name in run.cost_names]
    return Episodes(
        columns["reward"],
        np.stack(costs, axis=1) if costs else np.zeros((int(last.sum()), 0)),
        columns["length"],
        {
            name: values
            for name, values in columns.items()
            if name not in _EPISODE_COLUMNS and not is_cost_column(name)
        },
    )


def seed_values(
    group: Group, tails: dict[str, list[float]] | None = None
) -> dict[str, np.ndarray]:
    """Return each number of the last evaluation, with one value per evaluated run.

    `tails` are the CVaR tails by cost, those of the group's constraints by default. A run
    whose last evaluation has a non-finite episode has NaN everywhere, because the finite
    episodes by themselves would misrepresent the policy.
    """
    tails = common_tails([group]) if tails is None else tails
    wanted = sorted({tail for values in tails.values() for tail in values})
    rows = [
        summarise(
            last_evaluation(run),
            run.config.constraints,
            run.cost_names,
            metrics_of(run.config.env.id),
            wanted,
        )
        if run.last_evaluation_is_finite
        else {}
        for run in group.evaluated
    ]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: np.array([row.get(key, np.nan) for row in rows]) for key in keys}


def seed_mean(
    values: Mapping[str, np.ndarray], key: str, group: Group, level: float = 0.95
) -> Interval | None:
    """Return the mean over seeds of one of the group's `seed_values`, with its interval.

    Returns None if any seed has no such number.
    """
    numbers = values.get(key, np.empty(0))
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    return mean_interval(numbers, level, bounds_of(key, numbers, group))


def evaluation_curve(
    run: Run, column: str, measure: RiskMeasure | None = None
) -> SeedCurve:
    """Return the steps of the evaluations and the mean, or risk, of a column in each.

    The value is NaN for an evaluation with a non-finite episode.
    """
    if not len(run.evaluations.get(column, ())):
        return np.empty(0), np.empty(0)
    steps, starts = np.unique(run.evaluations["env_steps"], return_index=True)
    parts = np.split(run.evaluations[column], starts[1:])
    broken = run.non_finite_episodes
    value = np.mean if measure is None else partial(risk_of_episodes, measure=measure)
    values = [
        np.nan if step in broken else value(part)
        for step, part in zip(steps, parts, strict=True)
    ]
    return steps, np.array(values)


def cvar_curve(run: Run, name: str, tail: float) -> SeedCurve:
    """Return the steps of the evaluations and the CVaR of a cost in each."""
    return evaluation_curve(run, cost_column(name), cvar(tail))


def metric_curve(run: Run, name: str) -> SeedCurve:
    """Return the steps and values of a column of metrics.csv, without missing values."""
    if name not in run.metrics:
        return np.empty(0), np.empty(0)
    known = np.isfinite(run.metrics[name])
    return run.metrics["env_steps"][known], run.metrics[name][known]


def average_curves(
    curves: Sequence[SeedCurve], group: Group, key: str, band: str = "interval"
) -> Curve:
    """Return mean and band over seeds at every step that any of them reached.

    `key` names the number, so that `metrics.bounds_of` can cut the band.
    """
    steps = np.unique(np.concatenate([[], *(steps for steps, _ in curves)]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (at, known) in zip(values, curves, strict=True):
        row[np.searchsorted(steps, at)] = known
    finite = np.isfinite(values)
    bounds = bounds_of(key, values[finite], group) if finite.any() else (0.0, 0.0)
    mean, low, high = np.full((3, len(steps)), np.nan)
    # Seeds may stop at different steps: each subset of seeds has its own steps.
    for seeds in np.unique(finite, axis=1).T:
        if not seeds.any():
            continue
        part = (finite == seeds[:, None]).all(axis=0)
        there = values[np.ix_(seeds, part)]
        mean[part] = there.mean(axis=0)
        if seeds.sum() == 1:
            continue
        if band == "interval":
            found = mean_band(there, bounds=bounds)
            low[part], high[part] = found.low, found.high
        else:
            half = there.std(axis=0) / 2
            ends = np.clip([mean[part] - half, mean[part] + half], *bounds)
            low[part], high[part] = ends
    return Curve(steps, mean, low, high, finite.sum(axis=0))
