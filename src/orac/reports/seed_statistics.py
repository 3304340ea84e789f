"""What groups of runs say: numbers of the last evaluation, curves over seeds, costs.

CVaR is `evaluation.risk_of_episodes`, intervals are those of `statistics`, and seeds are
the unit of both. Knows nothing of files, figures or pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orac.core.risk import RiskMeasure, cvar
from orac.envs.registry import metrics_of
from orac.evaluation.intervals import Interval, mean_band, mean_interval
from orac.evaluation.result import Episodes, cost_column, risk_of_episodes, summarise
from orac.reports.metrics import bounds_of, common_tails
from orac.reports.run_groups import Group
from orac.reports.run_reader import Run, cost_names, is_cost

_OWN_COLUMNS = ("env_steps", "episode", "reward", "length")


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean over seeds at each step; bounds are NaN where only one seed got there."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray

    @property
    def stretches(self) -> list[slice]:
        """Neighbouring steps that have an interval, together."""
        known = np.isfinite(self.low)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], known, [0]])))
        return [slice(int(start), int(end)) for start, end in edges.reshape(-1, 2)]

    @property
    def lone_points(self) -> np.ndarray:
        """Where a step has an interval and its neighbours have none."""
        alone = [x.start for x in self.stretches if x.stop - x.start == 1]
        return np.array(alone, int)


def last_evaluation(run: Run) -> Episodes:
    """The episodes of its last evaluation: what the table is about."""
    last = run.evaluations["env_steps"] == run.evaluated_at[-1]
    columns = {name: values[last] for name, values in run.evaluations.items()}
    names = cost_names(run)
    costs = [columns[cost_column(name)] for name in names]
    return Episodes(
        columns["reward"],
        np.stack(costs, axis=1) if costs else np.zeros((int(last.sum()), 0)),
        columns["length"],
        {
            name: values
            for name, values in columns.items()
            if name not in _OWN_COLUMNS and not is_cost(name)
        },
    )


def seed_values(
    group: Group, tails: dict[str, list[float]] | None = None
) -> dict[str, np.ndarray]:
    """Each number of the last evaluation, one value per evaluated run.

    All are NaN for a run whose last evaluation has an episode that is not finite: what
    the others of its episodes say is not what the policy does.
    """
    tails = common_tails([group]) if tails is None else tails
    wanted = sorted({tail for values in tails.values() for tail in values})
    rows = [_summary(run, wanted) for run in group.evaluated]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: np.array([row.get(key, np.nan) for row in rows]) for key in keys}


def _summary(run: Run, tails: Sequence[float]) -> dict[str, float]:
    if not run.has_finite_end:
        return {}
    constraints, names = run.config.constraints, cost_names(run)
    metrics = metrics_of(run.config.env.id)
    return summarise(last_evaluation(run), constraints, names, metrics, tails)


def interval(
    values: np.ndarray | None,
    level: float = 0.95,
    key: str = "",
    group: Group | None = None,
) -> Interval | None:
    """Over the seeds, cut as `bounds_of` says; None where a seed has no such number."""
    if values is None or not len(values) or not np.isfinite(values).all():
        return None
    return mean_interval(values, level, bounds_of(key, values, group))


def key_interval(
    known: dict[str, np.ndarray],
    key: str,
    level: float = 0.95,
    group: Group | None = None,
) -> Interval | None:
    """The interval of one of the `seed_values`, which are the group's."""
    return interval(known.get(key), level, key, group)


def evaluation_curve(
    run: Run, column: str, measure: RiskMeasure | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the mean (or the risk) of a column in each evaluation.

    NaN where an episode is not finite.
    """
    if not len(run.evaluations.get(column, ())):
        return np.empty(0), np.empty(0)
    steps, starts = np.unique(run.evaluations["env_steps"], return_index=True)
    parts = np.split(run.evaluations[column], starts[1:])
    broken = run.not_finite
    value = np.mean if measure is None else partial(risk_of_episodes, measure=measure)
    known = [
        np.nan if step in broken else value(part)
        for step, part in zip(steps, parts, strict=True)
    ]
    return steps, np.array(known)


def metric_curve(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a column of metrics.csv, without rows that have none."""
    if name not in run.metrics:
        return np.empty(0), np.empty(0)
    known = np.isfinite(run.metrics[name])
    return run.metrics["env_steps"][known], run.metrics[name][known]


def average(
    curves: Sequence[tuple[np.ndarray, np.ndarray]],
    level: float = 0.95,
    key: str = "",
    group: Group | None = None,
) -> Curve:
    """Mean and interval over seeds at every step that any of them reached.

    `key` is that of the number in the summary or the metrics; with the group whose it is
    it says where intervals end, as in `bounds_of`.
    """
    steps = np.unique(np.concatenate([[], *(steps for steps, _ in curves)]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (at, known) in zip(values, curves, strict=True):
        row[np.searchsorted(steps, at)] = known
    there = np.isfinite(values)
    bounds = bounds_of(key, values[there], group) if there.any() else (-np.inf, np.inf)
    mean, low, high = np.full((3, len(steps)), np.nan)
    # Seeds may stop at different steps: each set of seeds has its own stretch.
    for pattern in np.unique(there, axis=1).T:
        if not pattern.any():
            continue
        stretch = (there == pattern[:, None]).all(axis=0)
        band = mean_band(values[np.ix_(pattern, stretch)], level, bounds)
        mean[stretch] = band.estimate
        if band.low is not None and band.high is not None:
            low[stretch], high[stretch] = band.low, band.high
    return Curve(steps, mean, low, high, there.sum(axis=0))


def group_curve(
    group: Group, curves: Sequence[Sequence[np.ndarray]], end: float, key: str = ""
) -> Curve:
    """A group's `average`; a rule does not learn, and is level up to step `end`."""
    pairs = [(steps, values) for steps, values in curves]
    mean = average(pairs, key=key, group=group)
    if not group.is_rule or len(mean.steps) != 1 or end <= mean.steps[0]:
        return mean
    parts = mean.mean, mean.low, mean.high, mean.seeds
    return Curve(np.array([0.0, end]), *(np.repeat(part, 2) for part in parts))


def last_step(groups: Sequence[Group]) -> float:
    """How far the longest run came."""
    return max((run.steps for group in groups for run in group.runs), default=0)


def pooled_costs(group: Group, name: str) -> np.ndarray:
    """Costs of every seed's last evaluation together, of those that are all finite."""
    parts = [
        episodes.cost[:, cost_names(run).index(name)]
        for run in group.evaluated
        if name in cost_names(run) and run.has_finite_end
        for episodes in [last_evaluation(run)]
    ]
    return np.concatenate([np.empty(0), *parts])


def cost_bins(costs: Sequence[np.ndarray]) -> np.ndarray:
    """Edges of common bins: one per whole number where costs are such, else 40."""
    values = np.concatenate([np.zeros(1), *costs])
    low, high = float(values.min()), float(values.max())
    if (values == np.round(values)).all() and high - low <= 60:
        return np.arange(low, high + 2) - 0.5
    return np.linspace(low, high if high > low else low + 1, 41)


def tail_of(group: Group, name: str, tails: Sequence[float]) -> float:
    """The tail by which a group's cost is judged: its own, else the strictest known."""
    own = [c.tail for c in group.config.constraints if c.name == name and c.tail < 1]
    return next(iter([*own, *tails, 1.0]))


def limits(groups: Sequence[Group], name: str) -> list[float]:
    """Every limit on the episode risk of a cost, once."""
    return sorted(
        {c.limit for g in groups for c in g.config.constraints if c.name == name}
    )


def cvar_curve(run: Run, name: str, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and CVaR of a cost in each evaluation."""
    return evaluation_curve(run, cost_column(name), cvar(tail))
