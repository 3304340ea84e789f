"""Compute the charts of reports and figures from groups of runs.

A chart contains only data: both `matplotlib_figures` and `plotly_figures` can draw it.
Learning curves and performance profiles are `LineChart`s, and cost distributions are
`CostHistogram`s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from orac.config.schema import Constraint
from orac.core.risk import cvar
from orac.evaluation.cvar_bounds import round_up
from orac.evaluation.episodes import cost_column, risk_of_episodes, value_at_risk
from orac.evaluation.seed_intervals import performance_profile
from orac.reports.report_metrics import (
    Curve,
    Metric,
    SeedCurve,
    average_curves,
    common_tails,
    evaluation_curve,
    last_evaluation,
    metric_curve,
    objective_metrics,
    seed_values,
    single_run_curve,
)
from orac.reports.run_reader import Group, Run, constraints_of, cost_names, count

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
INK = "#222222"


@dataclass(frozen=True, eq=False)
class Line:
    """One group in a line chart."""

    label: str
    num_seeds: int
    curve: Curve
    seed_curves: tuple[SeedCurve, ...] = ()
    """Curve of each seed, which HTML pages draw faintly; empty for a single seed, for a rule
    (a hand-coded baseline) and for a performance profile."""


@dataclass(frozen=True)
class Mark:
    """The policy that a run delivers, as a point of a line chart."""

    label: str
    """Label of the run's group."""
    x: float
    y: float
    text: str
    """Text that appears when the pointer is over the mark."""


@dataclass(frozen=True, eq=False)
class LineChart:
    """Lines with bands, and limits to compare them with."""

    title: str
    x_title: str
    lines: tuple[Line, ...]
    limits: tuple[float, ...] = ()
    limit_axis: Literal["x", "y"] = "y"
    """Axis to which the limits belong."""
    is_share: bool = False
    """Whether the y axis shows shares from 0 to 1."""
    is_stepped: bool = False
    """Whether values are constant between points."""
    note: str = ""
    marks: tuple[Mark, ...] = ()
    wide_until: int = 0
    """If above 0, the chart has the page's width and its x axis goes from 0 to this step."""

    @property
    def x_range(self) -> tuple[float, float] | None:
        """Range of the x axis; None if the drawing library chooses it.

        The axis of a wide chart starts at 0. So does the axis of a chart whose points all
        have the same x, because it would otherwise show only a tiny range around them.
        """
        steps = np.concatenate([[], *(line.curve.x for line in self.lines)])
        end = self.wide_until or (steps[0] if len(np.unique(steps)) == 1 else 0)
        return (0.0, 1.01 * float(end)) if end > 0 else None

    @property
    def y_range(self) -> tuple[float, float] | None:
        """Range of the y axis; None if it is chosen from the values when they are drawn.

        If all values are the same number, and it is not negative, the axis starts just below
        0. Otherwise it would show numbers far below 0, which a multiplier cannot have.
        """
        curves = [line.curve for line in self.lines]
        seeds = [y for line in self.lines for _, y in line.seed_curves]
        points = [*self.limits, *(mark.y for mark in self.marks)]
        drawn = [y for curve in curves for y in (curve.low, curve.mean, curve.high)]
        values = np.concatenate([points, *drawn, *seeds])
        values = np.unique(values[np.isfinite(values)])
        if len(values) != 1 or values[0] < 0:
            return None
        top = 2.0 * float(values[0]) or 1.0
        return -0.02 * top, top


@dataclass(frozen=True, eq=False)
class HistogramRow:
    """Distribution of the episode costs of one group, or of one evaluation."""

    label: str
    num_seeds: int
    """Number of evaluated seeds in the group; 0 for a single evaluation, which has no group."""
    counts: np.ndarray
    """Number of episodes in each bin."""
    var: float
    cvar: float
    tail: float
    limits: tuple[float, ...]

    @property
    def stems(self) -> list[tuple[str, float, float, str]]:
        """Name, cost, height and label of the marks at VaR and CVaR.

        The heights differ, so that both marks are visible if VaR equals CVaR.
        """
        label = f"CVaR {self.cvar:.4g} at tail {self.tail:g}"
        var = ("VaR", self.var, 0.9, f"VaR {self.var:.4g}")
        return [var, ("CVaR", self.cvar, 0.6, label)]


@dataclass(frozen=True, eq=False)
class CostHistogram:
    """Distributions of a cost, one row per group."""

    title: str
    x_title: str
    x_range: tuple[float, float]
    edges: np.ndarray
    """Edges of the bins, which all rows share."""
    rows: tuple[HistogramRow, ...]


Chart = LineChart | CostHistogram


def report_charts(groups: Sequence[Group]) -> list[Chart]:
    """Return the charts of one environment's groups, without empty charts."""
    charts = [
        *overview_charts(groups),
        *(cost_histogram(groups, name) for name in cost_names(groups)),
        *profile_charts(groups),
        *training_charts(groups),
        *constraint_charts(groups),
    ]
    return [c for c in charts if (c.lines if isinstance(c, LineChart) else c.rows)]


def overview_charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return the charts of measured risk and multiplier, then the learning curves.

    A CVaR that is shown as the measured risk is not repeated among the learning curves.
    """
    # If all groups limit the same CVaR of a cost, it is shown as the measured risk.
    shown = {
        _cvar_title(cost_column(c.name), c.tail)
        for c in constraints_of(groups)
        if c.risk == "cvar" and _measures(groups, c.name) == str(c.measure)
    }
    learning = [one for one in learning_charts(groups) if one.title not in shown]
    return [*measured_charts(groups), *learning]


def measured_charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return two charts per constrained cost: its measured risk, and its multiplier.

    The measured risk is the constrained risk of the episodes of each evaluation. Stars mark
    the policies that the runs deliver.
    """
    charts = []
    end = _last_step(groups)
    for name in dict.fromkeys(c.name for c in constraints_of(groups)):
        lines, marks = [], []
        for group in groups:
            for place, constraint in enumerate(group.config.constraints):
                if constraint.name == name:
                    lines.append(_measured_line(group, constraint, end))
                    marks += [_delivered_mark(group, run, place) for run in group.runs]
        shown = tuple(mark for mark in marks if mark is not None)
        note = (
            "Lines show the risk of the whole episodes of each evaluation. Bands are 95 % "
            "intervals over seeds or, for a single seed, over the episodes of the evaluation."
        )
        if shown:
            note += (
                " A star marks the policy that a run delivers, at its measured risk."
            )
        chart = LineChart(
            f"Measured risk of {cost_column(name)} ({_measures(groups, name)})",
            "environment steps",
            tuple(line for line in lines if line is not None),
            tuple(_limits(groups, name)),
            note=note,
            marks=shown,
        )
        key = f"constraint/multiplier/{name}"
        pair = chart, _metric_chart(f"Multiplier of {name}", groups, key)
        # A page shows the two charts one below the other, with equal x axes.
        charts += [replace(one, wide_until=end) for one in pair]
    return charts


def _last_step(groups: Sequence[Group]) -> int:
    """Return the largest number of steps of a run, or 0 if there is no run."""
    return max([0, *(run.steps for group in groups for run in group.runs)])


def _measures(groups: Sequence[Group], name: str) -> str:
    """Return the risk measures in the constraints on a cost, as text."""
    constraints = [c for c in constraints_of(groups) if c.name == name]
    return ", ".join(dict.fromkeys(str(c.measure) for c in constraints))


def _measured_line(group: Group, constraint: Constraint, end: int) -> Line | None:
    """Return the line of a group's constrained risk in its evaluations; None without any.

    The line of a rule extends to step `end`.
    """
    column, measure = cost_column(constraint.name), constraint.measure
    read = partial(evaluation_curve, column=column, measure=measure)
    line = _group_line(group, column, read, "interval", end)
    if line is None or group.is_rule or len(group.runs) != 1:
        return line
    return replace(line, curve=single_run_curve(group.runs[0], column, measure))


def _delivered_mark(group: Group, run: Run, place: int) -> Mark | None:
    """Return the mark of the policy that a run delivers.

    `place` is the index of the constraint. Returns None if the run delivers no policy, or if
    its measured risk is not the constrained risk of the chart (SAC-Lagrangian measures the
    mean).
    """
    policy, config = run.delivered, run.config
    constraint = config.constraints[place]
    if policy is None or config.limited_measure(constraint) != constraint.measure:
        return None
    certified = ""
    if policy.bounds:
        certified = f", certified below {round_up(policy.bounds[place])}"
    return Mark(
        group.label,
        policy.step,
        policy.risk[place],
        f"delivered by seed {run.config.seed}: {policy.risk[place]:.4g} on "
        f"{policy.episodes:,} episodes{certified}",
    )


def learning_charts(
    groups: Sequence[Group],
    heading: str = "",
    tails: Sequence[float] | None = None,
    band: str = "interval",
) -> list[LineChart]:
    """Return charts of reward, mean cost and CVaR of cost in evaluations against steps.

    `heading` is the first part of the first title. `tails` are the tails of CVaR; by default,
    each cost has those of its constraints. `band` is one of `report_metrics.BANDS`.
    Groups without runs are left out.
    """
    groups = [group for group in groups if group.runs]
    known_tails = common_tails(groups)
    title = f"{heading}: reward" if heading else "Reward per episode"
    wanted: list[tuple[str, str, Any, list[float]]] = [(title, "reward", None, [])]
    for name in cost_names(groups):
        column, limits = cost_column(name), _limits(groups, name)
        wanted.append((f"Mean {column} per episode", column, None, limits))
        for tail in known_tails.get(name, ()) if tails is None else tails:
            wanted.append((_cvar_title(column, tail), column, cvar(tail), limits))
    charts = []
    for title, column, measure, limits in wanted:
        read = partial(evaluation_curve, column=column, measure=measure)
        charts.append(curve_chart(title, groups, column, read, limits, band))
    return charts


def _cvar_title(column: str, tail: float) -> str:
    return f"CVaR of {column}, worst {100 * tail:g} % of episodes"


def training_charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return charts of the reward during training, and of the total cost paid so far."""
    columns = dict.fromkeys(k for g in groups for run in g.runs for k in run.metrics)
    titles = {"train/reward": "Reward while training"} | {
        key: f"Total {key.removeprefix('train/cumulative_')} paid while training"
        for key in columns
        if key.startswith("train/cumulative_")
    }
    return [_metric_chart(title, groups, key) for key, title in titles.items()]


def constraint_charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return the charts of each constraint's risk that show why its multiplier changes.

    If the multiplier is adjusted to measured episodes, one chart shows the risk in the
    window of the last measured episodes of the deployed policy. Another chart shows the risk
    that the critics predict, in the critics' units (discounted costs).
    """
    charts = []
    runs = [run for group in groups for run in group.runs]
    for name in dict.fromkeys(c.name for c in constraints_of(groups)):
        window = f"measured/risk/{name}"
        if any(window in run.metrics for run in runs):
            title = f"Risk of {name} in the multiplier's window"
            charts.append(_metric_chart(title, groups, window, _limits(groups, name)))
        last = [metric_curve(run, f"constraint/limit/{name}")[1][-1:] for run in runs]
        limits = np.unique(np.round(np.concatenate([[], *last]), 6)).tolist()
        title, key = f"Risk of {name} in the critics' units", f"constraint/risk/{name}"
        charts.append(_metric_chart(title, groups, key, limits))
    return charts


def _metric_chart(
    title: str, groups: Sequence[Group], key: str, limits: Sequence[float] = ()
) -> LineChart:
    """Return the chart of a column of metrics.csv."""
    return curve_chart(title, groups, key, partial(metric_curve, name=key), limits)


def curve_chart(
    title: str,
    groups: Sequence[Group],
    key: str,
    read: Callable[[Run], SeedCurve],
    limits: Sequence[float] = (),
    band: str = "interval",
    is_share: bool = False,
) -> LineChart:
    """Return the chart of a number against environment steps, averaged over seeds.

    `read` returns the curve of one run. `key` is the key of the number, from which
    `report_metrics.valid_range` finds its range. `band` is one of `report_metrics.BANDS`.
    """
    end = _last_step(groups)
    lines = [_group_line(group, key, read, band, end) for group in groups]
    lines = tuple(line for line in lines if line is not None)
    return LineChart(
        title, "environment steps", lines, tuple(limits), is_share=is_share
    )


def _group_line(
    group: Group, key: str, read: Callable[[Run], SeedCurve], band: str, end: int
) -> Line | None:
    """Return the line of one group; None if the group has no values.

    The line of a rule extends to step `end`.
    """
    curves = [curve for run in group.runs if len((curve := read(run))[0])]
    if not curves:
        return None
    mean = average_curves(curves, group, key, band)
    if group.is_rule and len(mean.x) == 1 and end > mean.x[0]:
        # A rule does not learn, so its line is horizontal.
        mean = replace(mean[[0, 0]], x=np.array([0.0, end]))
    shown = curves if len(curves) > 1 and not group.is_rule else ()
    return Line(group.label, len(curves), mean, tuple(shown))


def profile_charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return performance profiles, which show the share of seeds above each value.

    There is one chart for the reward and one for each constrained risk. Groups with fewer
    than two evaluated seeds are left out, and so are rules (hand-coded baselines), because
    their seeds are not training runs.
    """
    tails = common_tails(groups)
    values = {
        group.label: seed_values(group, tails)
        for group in groups
        if len(group.evaluated) > 1 and not group.is_rule
    }
    charts = []
    for metric in objective_metrics(groups):
        scores = {
            label: known[metric.key]
            for label, known in values.items()
            if metric.key in known and np.isfinite(known[metric.key]).all()
        }
        if scores:
            others = [group for group in groups if group.label not in scores]
            chart = _profile_chart(metric, scores, _limits(groups, metric.cost))
            charts.append(replace(chart, note=_left_out_note(others)))
    return charts


def _profile_chart(
    metric: Metric, scores: dict[str, np.ndarray], limits: Sequence[float]
) -> LineChart:
    ends = np.concatenate([*scores.values(), limits])
    pad = 0.05 * (np.ptp(ends) or abs(ends[0]) or 1.0)
    thresholds = np.linspace(ends.min() - pad, ends.max() + pad, num=80)
    lines = []
    for label, values in scores.items():
        profile = performance_profile(values, thresholds)
        assert profile.low is not None and profile.high is not None
        seeds = np.full(len(thresholds), profile.n)
        curve = Curve(thresholds, profile.estimate, profile.low, profile.high, seeds)
        lines.append(Line(label, profile.n, curve))
    side = f"{metric.better} curves are better"
    title = f"Share of seeds with a {metric.title} above x ({side})"
    shape = {"limit_axis": "x", "is_share": True, "is_stepped": True}
    return LineChart(title, metric.title, tuple(lines), tuple(limits), **shape)


def _left_out_note(groups: Sequence[Group]) -> str:
    reasons = ("no evaluation", "one seed", "a seed without this number")
    parts = [
        f"{x.label} ({'hand-coded' if x.is_rule else reasons[min(len(x.evaluated), 2)]})"
        for x in groups
    ]
    return f"Left out: {', '.join(parts)}." if parts else ""


def cost_histogram(groups: Sequence[Group], name: str) -> CostHistogram:
    """Return the distribution of a cost in the last evaluations, with VaR and CVaR.

    The episodes of all seeds of a group are pooled.
    """
    pooled = [(g, costs) for g in groups if len(costs := pooled_costs(g, name))]
    edges = cost_bins([costs for _, costs in pooled])
    tails = common_tails(groups).get(name, [])
    rows = []
    for group, costs in pooled:
        own = [c.tail for c in group.config.constraints if c.name == name]
        tail = next(iter([*(tail for tail in own if tail < 1), *tails, 1.0]))
        limits, seeds = tuple(_limits([group], name)), len(group.evaluated)
        rows.append(_histogram_row(group.label, seeds, costs, edges, tail, limits))
    title = "in the last evaluation, all seeds together"
    return _histogram(name, title, edges, rows)


def evaluation_histogram(
    costs: np.ndarray, name: str, constraint: Constraint | None
) -> CostHistogram:
    """Return the distribution of a cost in one evaluation, with VaR, CVaR and limit."""
    edges = cost_bins([costs])
    tail = constraint.tail if constraint else 1.0
    limits = (constraint.limit,) if constraint else ()
    title = f"of {count(len(costs), 'episode')}"
    label = f"{cost_column(name).capitalize()} {title}"
    row = _histogram_row(label, 0, costs, edges, tail, limits)
    return _histogram(name, title, edges, [row])


def _histogram_row(
    label: str,
    seeds: int,
    costs: np.ndarray,
    edges: np.ndarray,
    tail: float,
    limits: tuple[float, ...],
) -> HistogramRow:
    counts = np.histogram(costs, edges)[0]
    risks = value_at_risk(costs, tail), risk_of_episodes(costs, cvar(tail)), tail
    return HistogramRow(label, seeds, counts, *risks, limits)


def _histogram(
    name: str, title: str, edges: np.ndarray, rows: Sequence[HistogramRow]
) -> CostHistogram:
    """Make a chart of rows with the same bins. Its x axis shows all bins and limits."""
    ends = [edges[0], edges[-1], *(limit for row in rows for limit in row.limits)]
    pad = 0.03 * (max(ends) - min(ends))
    column = cost_column(name)
    x_range = float(min(ends) - pad), float(max(ends) + pad)
    title = f"{column.capitalize()} {title}"
    return CostHistogram(title, f"{column} of an episode", x_range, edges, tuple(rows))


def pooled_costs(group: Group, name: str) -> np.ndarray:
    """Return one cost of every episode in the last evaluations of a group's runs.

    Evaluations with a non-finite episode are left out.
    """
    parts = [
        last_evaluation(run).cost[:, run.cost_names.index(name)]
        for run in group.evaluated
        if name in run.cost_names and run.last_evaluation_is_finite
    ]
    return np.concatenate([np.empty(0), *parts])


def cost_bins(costs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the edges of bins for 0 and all of these costs.

    There is one bin per whole number if all costs are whole numbers within a range of 60,
    and otherwise there are 40 bins.
    """
    values = np.concatenate([np.zeros(1), *costs])
    low, high = float(values.min()), float(values.max())
    if (values == np.round(values)).all() and high - low <= 60:
        return np.arange(low, high + 2) - 0.5
    return np.linspace(low, high if high > low else low + 1, 41)


def _limits(groups: Sequence[Group], name: str) -> list[float]:
    """Return all limits on the risk of a cost, in ascending order."""
    return sorted({c.limit for c in constraints_of(groups) if c.name == name})
