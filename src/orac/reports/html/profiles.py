"""Performance profiles as charts: how many seeds reach what, not only on average.

`aggregates.performance_profile` has the numbers. A cost's profile is read from the left:
the sooner it falls, the better. Rules are left out: their seeds are no trainings.
"""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from orac.evaluation.aggregates import performance_profile
from orac.reports.figures import COLOURS
from orac.reports.html.drawing import (
    DASHES,
    Chart,
    faint,
    height_for,
    limit_shape,
    make_layout,
    rounded,
)
from orac.reports.metrics import Measure, common_tails, decisive_measures
from orac.reports.run_groups import Group
from orac.reports.seed_statistics import limits, seed_values

_POINTS = 80


def profile_charts(groups: Sequence[Group]) -> list[Chart]:
    """A chart for the reward, and one for the risk of each cost."""
    tails = common_tails(groups)
    # Numbers keep a group's colour, whoever is left out.
    known = [
        (i, group, seed_values(group, tails))
        for i, group in enumerate(groups)
        if len(group.evaluated) > 1 and not group.is_rule
    ]
    charts = [_profile(measure, groups, known) for measure in decisive_measures(groups)]
    return [chart for chart in charts if chart is not None]


def _profile(
    measure: Measure,
    groups: Sequence[Group],
    known: Sequence[tuple[int, Group, dict[str, np.ndarray]]],
) -> Chart | None:
    scored = [
        (i, group, values[measure.key])
        for i, group, values in known
        if measure.key in values and np.isfinite(values[measure.key]).all()
    ]
    if not scored:
        return None
    marks = limits(groups, measure.cost) if measure.cost else []
    ends = np.concatenate([*(values for _, _, values in scored), marks])
    pad = 0.05 * (np.ptp(ends) or abs(ends[0]) or 1.0)
    thresholds = np.linspace(ends.min() - pad, ends.max() + pad, _POINTS)
    behind: list[dict[str, Any]] = []
    front: list[dict[str, Any]] = []
    for i, group, values in scored:
        band, line = _traces(i, group, values, thresholds)
        behind.append(band)
        front.append(line)
    layout = make_layout(measure.title, hovermode="x unified")
    layout["height"] = height_for(len(front))
    layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    layout["shapes"] = [limit_shape("x", mark) for mark in marks]
    side = (
        "higher curves are better" if measure.higher_is_better else "lower are better"
    )
    title = f"Share of seeds with a {measure.title} above x ({side})"
    return Chart(title, behind + front, layout, _left_out(groups, scored))


def _left_out(groups: Sequence[Group], scored: Sequence[tuple[int, Any, Any]]) -> str:
    shown = {number for number, _, _ in scored}
    words = []
    for number, group in enumerate(groups):
        if number in shown:
            continue
        if group.is_rule:
            why = "a rule"
        elif len(group.evaluated) < 2:
            why = "one seed" if group.evaluated else "no evaluation"
        else:
            why = "not a number for each seed"
        words.append(f"{group.label} ({why})")
    return f"Left out: {', '.join(words)}." if words else ""


def _traces(
    number: int, group: Group, values: np.ndarray, thresholds: np.ndarray
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The band behind and the line before it."""
    profile = performance_profile(values, thresholds)
    assert profile.low is not None and profile.high is not None
    colour = COLOURS[number % len(COLOURS)]
    style = {"type": "scatter", "mode": "lines", "legendgroup": str(number)}
    ends = np.concatenate([profile.high, profile.low[::-1]])
    band = {
        **style,
        "x": rounded(np.concatenate([thresholds, thresholds[::-1]])),
        "y": rounded(ends, 3),
        "fill": "toself",
        "fillcolor": faint(colour),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    points = zip(profile.estimate, profile.low, profile.high, strict=True)
    line = {
        **style,
        "name": f"{html.escape(group.label)} ({profile.n} seeds)",
        "x": rounded(thresholds),
        "y": rounded(profile.estimate, 3),
        "text": [f"{x:.0%} [{low:.0%}, {high:.0%}]" for x, low, high in points],
        "hovertemplate": "%{text}",
        "line": {"color": colour, "dash": DASHES[number % len(DASHES)], "shape": "hv"},
    }
    return band, line
