"""Interactive charts as plotly's own data: plain lists and dicts, ready for JSON.

plotly.js is bundled once by `page`; nothing here needs the Python package. Numbers are
rounded to what a screen can show, which keeps a report small. Same colours and dashes
as the figures for print.
"""

import html
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orac.evaluation.result import cost_column
from orac.reports.figures import COLOURS
from orac.reports.html.distributions import distribution_chart
from orac.reports.html.drawing import (
    DASHES,
    Chart,
    faint,
    height_for,
    limit_label,
    limit_shape,
    make_layout,
    rounded,
)
from orac.reports.html.profiles import profile_charts
from orac.reports.metrics import common_tails
from orac.reports.run_groups import Group
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import (
    Curve,
    cvar_curve,
    evaluation_curve,
    group_curve,
    last_step,
    limits,
    metric_curve,
)

_MOST_POINTS = 250
ReadCurve = Callable[[Run], tuple[np.ndarray, np.ndarray]]


def world_charts(groups: Sequence[Group]) -> list[Chart]:
    """All charts of one environment: evaluations, costs, then what training did."""
    names = list(dict.fromkeys(n for group in groups for n in group.cost_names))
    tails = common_tails(groups)
    charts = [
        curve_chart(
            "Reward per episode", groups, lambda run: evaluation_curve(run, "reward")
        )
    ]
    for name in names:
        column, at = cost_column(name), limits(groups, name)

        def mean_cost(run: Run, column: str = column) -> Any:
            return evaluation_curve(run, column)

        title = f"Mean {column} per episode"
        charts.append(curve_chart(title, groups, mean_cost, at, column))
        for tail in tails.get(name, ()):

            def risk(run: Run, name: str = name, tail: float = tail) -> Any:
                return cvar_curve(run, name, tail)

            title = f"CVaR of {column}, worst {100 * tail:g} % of episodes"
            charts.append(curve_chart(title, groups, risk, at, column))
        charts.append(distribution_chart(groups, name, tails.get(name, [])))
    charts += [*profile_charts(groups), *training_charts(groups)]
    return [chart for chart in charts if chart.data]


def training_charts(groups: Sequence[Group]) -> list[Chart]:
    """Reward while training, cost paid so far, multiplier, and the critics' risk."""
    columns = dict.fromkeys(
        key for g in groups for run in g.runs for key in run.metrics
    )
    wanted = [("train/reward", "Reward while training", [])]
    wanted += [
        (key, f"Total {key.removeprefix('train/cumulative_')} paid while training", [])
        for key in columns
        if key.startswith("train/cumulative_")
    ]
    for name in dict.fromkeys(c.name for g in groups for c in g.config.constraints):
        curves = [
            metric_curve(run, f"constraint/limit/{name}")[1][-1:]
            for group in groups
            for run in group.runs
        ]
        at = np.unique(np.round(np.concatenate([np.empty(0), *curves]), 6)).tolist()
        title = f"Risk of {name} that the critics see, in their units"
        wanted.append((f"constraint/multiplier/{name}", f"Multiplier of {name}", []))
        wanted.append((f"constraint/risk/{name}", title, at))

    def chart(key: str, title: str, marks: list[float]) -> Chart:
        return curve_chart(
            title, groups, lambda run: metric_curve(run, key), marks, key
        )

    return [chart(*entry) for entry in wanted]


def curve_chart(
    title: str,
    groups: Sequence[Group],
    read: ReadCurve,
    marks: Sequence[float] = (),
    key: str = "",
) -> Chart:
    """Mean over seeds with its interval, each seed thinly behind it, and the limits.

    `key` says between what the interval may lie, as in `measures.bounds_of`.
    """
    behind: list[dict[str, Any]] = []
    front: list[dict[str, Any]] = []
    for i, group in enumerate(groups):
        curves = [_thin(*curve) for run in group.runs if len((curve := read(run))[0])]
        if not curves:
            continue
        style = {"legendgroup": str(i), "line": {"color": COLOURS[i % len(COLOURS)]}}
        if len(curves) > 1 and not group.is_rule:
            behind += [_seed_trace(curve, style) for curve in curves]
        mean = group_curve(group, curves, last_step(groups), key)
        behind += _band_traces(mean, style)
        front.append(_mean_trace(mean, group.label, len(curves), i, style))
    layout = make_layout("environment steps", hovermode="x unified")
    layout["height"] = height_for(len(front))
    layout["shapes"] = [limit_shape("y", mark) for mark in marks if front]
    layout["annotations"] = [limit_label("y", mark) for mark in marks if front]
    return Chart(title, behind + front, layout)


def _thin(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every k-th point, counted from the last one, which always stays."""
    every = -(-len(steps) // _MOST_POINTS)
    return steps[::-1][::every][::-1], values[::-1][::every][::-1]


def _mean_trace(
    curve: Curve, label: str, seeds: int, number_: int, style: dict[str, Any]
) -> dict[str, Any]:
    numbers = (curve.mean, curve.low, curve.high, curve.seeds)
    bounds = zip(*(values.tolist() for values in numbers), strict=True)
    dash = DASHES[number_ % len(DASHES)]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.steps) <= 60 else "lines",
        # plotly reads a little HTML in names: a label must not become a tag.
        "name": f"{html.escape(label)} ({seeds} seed{'s' * (seeds != 1)})",
        "x": curve.steps.astype(int).tolist(),
        "y": rounded(curve.mean),
        "text": [_hover(*point) for point in bounds],
        "hovertemplate": "%{text}",
        "marker": {"size": 4},
        **style,
        "line": {**style["line"], "dash": dash, "width": 2},
    }


def _hover(mean: float, low: float, high: float, seeds: int) -> str:
    if not np.isfinite(low):
        why = "one seed" if seeds == 1 else f"all {seeds} seeds equal"
        return f"{mean:.4g} ({why})"
    return f"{mean:.4g} [{low:.4g}, {high:.4g}], {seeds} seeds"


def _seed_trace(
    curve: tuple[np.ndarray, np.ndarray], style: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": curve[0].astype(int).tolist(),
        "y": rounded(curve[1]),
        "opacity": 0.25,
        "hoverinfo": "skip",
        "showlegend": False,
        **style,
        "line": {**style["line"], "width": 0.8},
    }


def _band_traces(curve: Curve, style: dict[str, Any]) -> list[dict[str, Any]]:
    """The interval as outlines, one a stretch of steps; a step alone has an error bar."""
    bars = _bar_trace(curve, style) if len(curve.lone_points) else None
    stretches = [part for part in curve.stretches if part.stop - part.start > 1]
    if not stretches:
        return [bars] if bars else []
    gap = np.full(1, np.nan)
    x, y = [], []
    for part in stretches:
        steps = curve.steps[part]
        x += [steps, steps[::-1], gap]
        y += [curve.high[part], curve.low[part][::-1], gap]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded(np.concatenate(x[:-1]), 12),
            "y": rounded(np.concatenate(y[:-1])),
            "fill": "toself",
            "fillcolor": faint(style["line"]["color"]),
            "hoverinfo": "skip",
            "showlegend": False,
            **style,
            "line": {"width": 0},
        },
        *([bars] if bars else []),
    ]


def _bar_trace(curve: Curve, style: dict[str, Any]) -> dict[str, Any]:
    """Error bars where an outline would have no area."""
    at, colour = curve.lone_points, style["line"]["color"]
    mean, low, high = curve.mean[at], curve.low[at], curve.high[at]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(curve.steps[at], 12),
        "y": rounded(mean),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(high - mean),
            "arrayminus": rounded(mean - low),
            "color": colour,
            "thickness": 1.5,
        },
        "marker": {"size": 4, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
        **style,
    }
