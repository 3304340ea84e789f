"""Define the metrics of a report, and compute their statistics over seeds.

A `Metric` has a title and a valid range, and says whether higher or lower values are better.
`seed_values` returns the values of a group's last evaluations, with the keys of
`evaluation.episodes.summarise`, and `average_curves` averages learning curves. For means and
intervals, each seed is one sample (see `evaluation.seed_intervals`); only `single_run_curve`
uses the episodes of one run as samples. Intervals over seeds are clipped to the range that
`valid_range` returns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from orac import envs
from orac.config.schema import EnvConfig, RiskMeasure
from orac.envs.base import Better
from orac.envs.registry import metrics_of
from orac.evaluation.episodes import (
    Episodes,
    cost_column,
    cost_noun,
    risk_of_episodes,
    sample_weights,
    summarise,
)
from orac.evaluation.seed_intervals import Interval, mean_band, mean_interval
from orac.reports.run_reader import (
    Group,
    RecordedRun,
    Run,
    constraints_of,
    cost_names,
    is_cost_column,
)

LEVEL = 0.95
"""Confidence level of every interval of a report."""
BANDS = ("interval", "half-std")
"""Kinds of bands: 95 % interval of the mean, or half a standard deviation each way."""
BOOTSTRAP_DRAWS = 2_000_000
"""Maximum number of episodes drawn for a bootstrap interval. At least 40 resamples are drawn,
even if this is exceeded."""
_NON_NEGATIVE = ("cost", "length", "episodes", "train/", "constraint/multiplier")
"""Prefixes of the keys of numbers that normally are not negative."""
_EPISODE_COLUMNS = ("env_steps", "episode", "reward", "length")
"""Columns of evaluations.csv that are neither costs nor the environment's own metrics."""

SeedValues = Mapping[str, np.ndarray]
"""Arrays with one value per evaluated run of a group, by key."""
Statistic = Callable[[np.ndarray, float, tuple[float, float]], Interval]
"""Function of values, level and bounds, such as `mean_interval`."""
SeedCurve = tuple[np.ndarray, np.ndarray]
"""Environment steps and values of one run."""


@dataclass(frozen=True)
class Metric:
    """One number of a report."""

    key: str
    """Key of the number in the summary of an evaluation."""
    title: str
    better: Better = "lower"
    """Better direction; empty if there is none."""
    cost: str = ""
    """Name of a cost if the metric is its constrained risk; otherwise empty."""
    low: float = -math.inf
    """Smallest possible value."""
    high: float = math.inf
    """Largest possible value."""


REWARD = Metric("reward/mean", "reward", "higher")


def summary_metrics(groups: Sequence[Group]) -> list[Metric]:
    """Return the metrics in the table of results of one environment: reward, then costs."""
    found = [REWARD]
    tails = common_tails(groups)
    for name in cost_names(groups):
        column, noun = cost_column(name), cost_noun(name)
        risks = {c.risk for c in constraints_of(groups) if c.name == name}
        titles = {"mean": f"mean {noun}"}
        for tail in tails.get(name, ()):
            titles[f"cvar_{tail:g}"] = _cvar_title(noun, tail)
        if risks - {"cvar", "mean"}:
            titles["risk"] = f"constrained risk of {noun}"
        if risks:
            titles["violation_rate"] = f"P({noun} > limit)"
        titles["worst"] = f"worst {noun}"
        found += [Metric(f"{column}/{key}", title) for key, title in titles.items()]
    return found


def _cvar_title(noun: str, tail: float) -> str:
    return f"CVaR of {noun} at tail {tail:g}"


def objective_metrics(groups: Sequence[Group]) -> list[Metric]:
    """Return the metrics of the training's objective: the reward and each constrained risk."""
    found = [REWARD]
    titles: dict[str, set[str]] = {}
    for constraint in constraints_of(groups):
        noun = cost_noun(constraint.name)
        title = f"{constraint.measure} of {noun}"
        if constraint.risk == "cvar" and constraint.tail < 1:
            title = _cvar_title(noun, constraint.tail)
        titles.setdefault(constraint.name, set()).add(title)
    for name, several in titles.items():
        title = (
            several.pop()
            if len(several) == 1
            else f"constrained risk of {cost_noun(name)}"
        )
        found.append(Metric(f"{cost_column(name)}/risk", title, cost=name))
    return found


def env_metrics(env_id: str, values: Sequence[SeedValues]) -> list[Metric]:
    """Return the environment's own metrics that occur in `values`, the groups' `seed_values`.

    A metric that the environment does not declare has its name as title, and no better
    direction.
    """
    declared = _declared_metrics(env_id)
    keys = dict.fromkeys(k for known in values for k in known if k.startswith("env/"))
    return [declared.get(k, Metric(k, k.removeprefix("env/"), "")) for k in keys]


@lru_cache(maxsize=64)
def _declared_metrics(env_id: str) -> dict[str, Metric]:
    """Return the metrics that an environment declares, and shares of their labels, by key."""
    found = []
    for spec in metrics_of(env_id):
        low = -math.inf if spec.low is None else spec.low
        high = math.inf if spec.high is None else spec.high
        key = f"env/{spec.name}"
        found.append(Metric(key, spec.title, spec.better, low=low, high=high))
        found += [
            Metric(f"{key}_{label.name}", label.title, label.better, low=0, high=1)
            for label in spec.labels
        ]
    return {metric.key: metric for metric in found}


def common_tails(groups: Sequence[Group]) -> dict[str, list[float]]:
    """Return the CVaR tails of the constraints of all groups, by the name of the cost.

    A tail of 1 is the mean and is left out.
    """
    tails: dict[str, set[float]] = {}
    for constraint in constraints_of(groups):
        tails.setdefault(constraint.name, set()).add(constraint.tail)
    return {name: sorted(x for x in values if x < 1) for name, values in tails.items()}


def valid_range(key: str, values: np.ndarray, group: Group) -> tuple[float, float]:
    """Return the range in which a mean of the values must lie.

    Shares are in [0, 1], and the environment's own metrics in their declared range. Costs,
    lengths, counts and multipliers are at least 0, unless one of the values is negative.
    Lengths and costs are at most the maximum that the group's environment declares, unless a
    value is larger.
    """
    if key.endswith("/violation_rate"):
        return 0.0, 1.0
    if key in (declared := _declared_metrics(group.env_id)):
        return declared[key].low, declared[key].high
    # A user's environment may have negative costs: 0 is a bound only if none occurred.
    non_negative = key.startswith(_NON_NEGATIVE) and "reward" not in key
    maxima = _declared_maxima(group.config.env)
    # The key of the cost `speed`, `cost/speed/mean`, also starts with the column of the cost
    # `cost`. So the longest column that matches is the right one.
    columns = [name for name in maxima if key == name or key.startswith(f"{name}/")]
    high = maxima[max(columns, key=len)] if columns else math.inf
    # Numerics: float32 sums may exceed the maximum by rounding. A larger excess shows that
    # the declared maximum is wrong.
    holds = values.max() <= high + 1e-6 * abs(high)
    low = 0.0 if non_negative and values.min() >= 0 else -math.inf
    return low, max(high, float(values.max())) if holds else math.inf


@lru_cache(maxsize=64)
def _declared_maxima(env: EnvConfig) -> dict[str, float]:
    """Return the declared maxima of an episode's length and costs, by column."""
    if not envs.is_jax_env(env.id):
        return {"length": env.episode_length} if env.episode_length else {}
    try:
        spec = envs.make(env.id, **dict(env.params)).spec
    except (ValueError, TypeError, OSError):
        # Another version with other parameters made the run, so no maximum is known.
        return {}
    costs = zip(spec.cost_names, spec.cost_bounds or (), strict=False)
    found = {cost_column(name): float(bound) for name, bound in costs}
    return found | ({"length": spec.episode_length} if spec.episode_length else {})


def last_evaluation(run: Run) -> Episodes:
    """Return the episodes of a run's last evaluation."""
    last = run.evaluations["env_steps"] == run.evaluation_steps[-1]
    columns = {name: values[last] for name, values in run.evaluations.items()}
    costs = [columns[cost_column(name)] for name in run.cost_names]
    cost = np.stack(costs, axis=1) if costs else np.zeros((int(last.sum()), 0))
    own = [x for x in columns if x not in _EPISODE_COLUMNS and not is_cost_column(x)]
    metrics = {name: columns[name] for name in own}
    return Episodes(columns["reward"], cost, columns["length"], metrics)


def seed_values(
    group: Group, tails: dict[str, list[float]] | None = None
) -> dict[str, np.ndarray]:
    """Return the numbers of the last evaluations by key, with one value per evaluated run.

    `tails` are the CVaR tails by cost. By default, each cost has the tails of the group's
    constraints. All values of a run are NaN if its last evaluation has a non-finite episode,
    because the finite episodes by themselves would misrepresent the policy.
    """
    tails = common_tails([group]) if tails is None else tails
    wanted = sorted({tail for values in tails.values() for tail in values})
    declared = metrics_of(group.env_id)
    rows: list[dict[str, float]] = [{} for _ in group.evaluated]
    for row, run in zip(rows, group.evaluated, strict=True):
        if isinstance(run, RecordedRun):
            row |= run.summary
        elif run.last_evaluation_is_finite:
            about = run.config.constraints, run.cost_names, declared, wanted
            row |= summarise(last_evaluation(run), *about)
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: np.array([row.get(key, np.nan) for row in rows]) for key in keys}


def seed_mean(
    values: SeedValues, key: str, group: Group, statistic: Statistic = mean_interval
) -> Interval | None:
    """Return the mean of `values[key]` over seeds, with its interval.

    Returns None if a seed has no such number. `statistic` can be another function, such as
    `interquartile_mean`.
    """
    numbers = values.get(key, np.empty(0))
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    return statistic(numbers, LEVEL, valid_range(key, numbers, group))


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve with the mean over seeds, or the value of one run, at each point.

    `low` and `high` are NaN where there is no band.
    """

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    """Number of seeds, or of episodes, at each point."""
    unit: str = "seed"
    """What `count` counts: "seed", or "episode" for the curve of a single run."""

    def __getitem__(self, points: slice | list[int]) -> "Curve":
        """Return the curve at some of its points."""
        fields = self.x, self.mean, self.low, self.high, self.count
        x, mean, low, high, count = (values[points] for values in fields)
        return Curve(x, mean, low, high, count, self.unit)

    @property
    def stretches(self) -> list[slice]:
        """Index ranges of consecutive points that have a band."""
        known = np.isfinite(self.low)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], known, [0]])))
        return [slice(int(start), int(end)) for start, end in edges.reshape(-1, 2)]

    @property
    def lone_points(self) -> np.ndarray:
        """Indices of points with a band whose neighbours have none.

        Such a point needs an error bar, because a band has no area there.
        """
        lone = [part.start for part in self.stretches if part.stop - part.start == 1]
        return np.array(lone, int)


def evaluation_curve(
    run: Run, column: str, measure: RiskMeasure | None = None
) -> SeedCurve:
    """Return the steps of a run's evaluations, and the mean of a column in each.

    With `measure`, this risk measure of the column is returned instead of the mean. The value
    is NaN for an evaluation with a non-finite episode. For a `RecordedRun`, `measure` must be
    a CVaR.
    """
    if isinstance(run, RecordedRun):
        statistic = "mean" if measure is None else f"cvar_{measure.parameter:g}"
        return recorded_curve(run, f"{column}/{statistic}")
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


def recorded_curve(run: Run, key: str) -> SeedCurve:
    """Return the steps of a recorded run's evaluations, and one number of each.

    Both arrays are empty if the record does not have this number.
    """
    if not isinstance(run, RecordedRun) or key not in run.curves:
        return np.empty(0), np.empty(0)
    return run.evaluation_steps, run.curves[key]


def single_run_curve(run: Run, column: str, measure: RiskMeasure) -> Curve:
    """Return the risk in each evaluation of one run, with a band over its episodes.

    The band is a 95 % bootstrap interval, which shows how much the risk would vary if other
    episodes were played.
    """
    steps, values = evaluation_curve(run, column, measure)
    known = np.isfinite(values)
    ends, counts = np.full((2, len(steps)), np.nan), np.zeros(len(steps), int)
    for i in np.flatnonzero(known):
        costs = run.evaluations[column][run.evaluations["env_steps"] == steps[i]]
        ends[:, i], counts[i] = bootstrap_interval(costs, measure), len(costs)
    low, high = ends[:, known]
    return Curve(steps[known], values[known], low, high, counts[known], "episode")


def bootstrap_interval(costs: np.ndarray, measure: RiskMeasure) -> np.ndarray:
    """Return the ends of a percentile bootstrap interval of the risk of these costs."""
    resamples = max(min(400, BOOTSTRAP_DRAWS // len(costs)), 40)
    drawn = np.random.default_rng(0).choice(costs, (resamples, len(costs)))
    risks = np.sort(drawn, axis=1) @ sample_weights(measure, len(costs))
    return np.quantile(risks, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])


def metric_curve(run: Run, name: str) -> SeedCurve:
    """Return the steps and values of a column of metrics.csv, without missing values."""
    if name not in run.metrics:
        return np.empty(0), np.empty(0)
    known = np.isfinite(run.metrics[name])
    return run.metrics["env_steps"][known], run.metrics[name][known]


def average_curves(
    curves: Sequence[SeedCurve], group: Group, key: str, band: str = "interval"
) -> Curve:
    """Return the mean over seeds and its band at every step at which a seed has a value.

    The band is clipped to the range that `valid_range` returns for `key`, the key of the
    number that the curves show. `band` is one of `BANDS`.
    """
    steps = np.unique(np.concatenate([[], *(steps for steps, _ in curves)]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (at, known) in zip(values, curves, strict=True):
        row[np.searchsorted(steps, at)] = known
    finite = np.isfinite(values)
    bounds = valid_range(key, values[finite], group) if finite.any() else (0.0, 0.0)
    mean, low, high = np.full((3, len(steps)), np.nan)
    # Not every seed has a value at every step. Steps at which the same seeds have values
    # are computed together.
    for seeds in np.unique(finite, axis=1).T:
        if not seeds.any():
            continue
        part = (finite == seeds[:, None]).all(axis=0)
        there = values[np.ix_(seeds, part)]
        mean[part] = there.mean(axis=0)
        if seeds.sum() == 1:
            continue
        if band == "interval":
            found = mean_band(there, LEVEL, bounds)
            low[part], high[part] = found.low, found.high
        else:
            half = there.std(axis=0) / 2
            ends = [mean[part] - half, mean[part] + half]
            low[part], high[part] = np.clip(ends, *bounds)
    return Curve(steps, mean, low, high, finite.sum(axis=0))
