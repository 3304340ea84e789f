"""Costs of the last evaluations as a chart: one row a group, VaR and CVaR marked."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from orac.core.risk import cvar
from orac.evaluation.result import cost_column, risk_of_episodes, value_at_risk
from orac.reports.figures import COLOURS, INK
from orac.reports.html.drawing import (
    AXIS,
    HEIGHT,
    Chart,
    limit_shape,
    make_layout,
    rounded,
)
from orac.reports.html.tables import number
from orac.reports.run_groups import Group
from orac.reports.seed_statistics import cost_bins, limits, pooled_costs, tail_of

_ROW = 130
_GAP = 0.38
"""Share of a row that its two lines of words take."""


def distribution_chart(
    groups: Sequence[Group], name: str, tails: Sequence[float]
) -> Chart:
    """Share of episodes by cost, one row a group, with VaR, CVaR and limit marked."""
    known = [(i, g, pooled_costs(g, name)) for i, g in enumerate(groups)]
    known = [(i, group, costs) for i, group, costs in known if len(costs)]
    edges = cost_bins([costs for _, _, costs in known])
    column = cost_column(name)
    layout = make_layout(
        f"{column} of an episode", hovermode="closest", showlegend=False
    )
    layout |= {"height": max(HEIGHT, 80 + _ROW * len(known)), "bargap": 0}
    data: list[dict[str, Any]] = []
    shapes, labels = [], []
    for row, (i, group, costs) in enumerate(known):
        axis = "y" if row == 0 else f"y{row + 1}"
        bottom, top = 1 - (row + 1) / len(known), 1 - (row + _GAP) / len(known)
        layout["yaxis" + axis[1:]] = {
            **AXIS,
            "domain": [max(bottom, 0), top],
            "range": [0, 1],
            "tickformat": ".0%",
            "nticks": 3,
        }
        colour = COLOURS[i % len(COLOURS)]
        data += _distribution_traces(group, costs, edges, axis, colour)
        marks = limits([group], name)
        tail = tail_of(group, name, tails)
        shapes += [limit_shape("x", mark, axis) for mark in marks]
        data += _risk_traces(costs, tail, axis)
        labels.append(_row_label(group, costs, tail, marks, top))
    layout |= {"shapes": shapes, "annotations": labels}
    # Rows share the one cost axis below the last of them.
    ends = [edges[0], edges[-1], *limits(groups, name)]
    pad = 0.03 * (max(ends) - min(ends))
    layout["xaxis"] |= {
        "anchor": f"y{len(known)}" if len(known) > 1 else "y",
        "range": [float(min(ends) - pad), float(max(ends) + pad)],
    }
    title = f"{column.capitalize()} in the last evaluation, all seeds together"
    return Chart(title, data, layout)


def _distribution_traces(
    group: Group, costs: np.ndarray, edges: np.ndarray, axis: str, colour: str
) -> list[dict[str, Any]]:
    counts = np.histogram(costs, edges)[0]
    full = counts > 0
    centres, widths = (edges[:-1] + edges[1:])[full] / 2, np.diff(edges)[full]
    return [
        {
            "type": "bar",
            "name": html.escape(group.label),
            "x": rounded(centres),
            "y": rounded(counts[full] / len(costs)),
            "width": rounded(widths),
            "yaxis": axis,
            "marker": {"color": colour},
            "text": [f"{n:,} of {len(costs):,} episodes" for n in counts[full]],
            "textposition": "none",
            "hovertemplate": "cost %{x:.4~g}: %{y:.1%}, %{text}<extra></extra>",
        }
    ]


def _risk_traces(costs: np.ndarray, tail: float, axis: str) -> list[dict[str, Any]]:
    """Stems of unequal height: VaR and CVaR often fall on the same cost."""
    risk = risk_of_episodes(costs, cvar(tail))
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": rounded(np.array([x, x])),
            "y": [0, top],
            "yaxis": axis,
            "line": {"color": INK, "dash": dash, "width": 1.6},
            "marker": {"symbol": symbol, "size": [0, 9], "color": INK, "opacity": 1},
            "hovertemplate": f"{word} at {tail:g}: {x:.4g}<extra></extra>",
        }
        for word, x, top, dash, symbol in (
            ("VaR", value_at_risk(costs, tail), 0.9, "dash", "triangle-down"),
            ("CVaR", risk, 0.6, "solid", "diamond"),
        )
    ]


def _row_label(
    group: Group, costs: np.ndarray, tail: float, marks: Sequence[float], top: float
) -> dict[str, Any]:
    risk, quantile = risk_of_episodes(costs, cvar(tail)), value_at_risk(costs, tail)
    words = [f"▼ VaR {number(quantile)}", f"◆ CVaR {number(risk)} at {tail:g}"]
    words += [f"┊ limit {mark:g}" for mark in marks]
    return {
        "text": f"<b>{html.escape(group.label)}</b><br>{'  '.join(words)}",
        **{"xref": "paper", "yref": "paper", "x": 0, "y": top},
        **{"xanchor": "left", "yanchor": "bottom", "showarrow": False},
        "align": "left",
        "font": {"size": 12},
    }
