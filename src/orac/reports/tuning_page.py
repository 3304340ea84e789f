"""Make the HTML page of `orac tune`.

One chart per constraint shows the reward of each trial against its risk. One chart per
parameter shows the reward against the parameter's value.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orac.reports.charts import COLOURS
from orac.reports.html import figure, fill_page
from orac.reports.plotly_figures import chart_layout, limit_line
from orac.reports.tables import Table, to_html

WITHIN, ABOVE = "within the limits", "above a limit"


@dataclass(frozen=True)
class Point:
    """Result of one trial that finished all of its steps."""

    number: int
    reward: float
    risks: tuple[float, ...]
    feasible: bool
    """Whether all risks are within their limits."""
    values: dict[str, Any]
    """Value of each parameter by its name, in the form that Optuna stores."""


@dataclass(frozen=True)
class Axis:
    """One parameter of the search space."""

    name: str
    """Name of the parameter, which is its key in `Point.values`."""
    title: str
    log: bool = False
    """Whether the axis is logarithmic."""
    choices: tuple[str, ...] = ()
    """Values of the parameter as JSON text, in the order of the axis; empty for a range."""


def make_page(
    title: str,
    tables: Sequence[Table],
    points: Sequence[Point],
    axes: Sequence[Axis],
    limits: Sequence[tuple[str, float]],
    config: str,
) -> str:
    """Return the whole page as HTML.

    `limits` has the name and the limit of each constraint. `config` is the best config as
    YAML, or empty if no trial is within the limits.
    """
    plots, figures = list[dict[str, Any]](), ""
    for m, (name, limit) in enumerate(limits):
        data = _traces(points, [point.risks[m] for point in points])
        layout = chart_layout(f"measured risk of {name}", hovermode="closest")
        layout["yaxis"] |= {"title": {"text": "reward"}}
        layout["shapes"] = [limit_line("x", limit)]
        note = f"Each point is a trial. The dotted line is the limit, {limit:g}."
        figures += figure(f"Reward and risk of {name}", note, len(plots))
        plots.append({"data": data, "layout": layout})
    for axis in axes:
        data = _traces(points, [point.values.get(axis.name) for point in points])
        layout = chart_layout(html.escape(axis.name), hovermode="closest")
        layout["yaxis"] |= {"title": {"text": "reward"}}
        if axis.choices:
            order = {"categoryorder": "array", "categoryarray": [*axis.choices]}
            layout["xaxis"] |= {"type": "category", **order}
        elif axis.log:
            layout["xaxis"] |= {"type": "log", "exponentformat": "e"}
        figures += figure(f"Reward by {axis.title}", "", len(plots))
        plots.append({"data": data, "layout": layout})
    sections = [
        f"<section>{''.join(map(to_html, tables))}</section>",
        f"<section><h2>Trials</h2><div class=charts>{figures}</div></section>",
    ]
    if config:
        sections.append(
            "<section><h2>Best config</h2><details><summary>best.yaml</summary>"
            f"<pre>{html.escape(config)}</pre></details></section>"
        )
    return fill_page(f"<p>{html.escape(title)}</p>", sections, plots)


def shown_value(value: Any) -> str:
    """Return a number with three significant digits, or the text of a choice unchanged."""
    return value if isinstance(value, str) else f"{value:.3g}"


def _traces(points: Sequence[Point], xs: Sequence[Any]) -> list[dict[str, Any]]:
    """Return plotly traces of the trials, with `xs` as their x values.

    One trace has the trials within the limits, and one has those above a limit. Trials
    without an x value (None) are left out.
    """
    styles = (
        (True, WITHIN, {"color": COLOURS[0], "size": 8}),
        (False, ABOVE, {"color": COLOURS[1], "size": 8, "symbol": "circle-open"}),
    )
    traces = []
    for feasible, name, marker in styles:
        shown = [
            (x, point)
            for x, point in zip(xs, points, strict=True)
            if point.feasible is feasible and x is not None
        ]
        if not shown:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [x for x, _ in shown],
                "y": [point.reward for _, point in shown],
                "text": [
                    f"trial {p.number}: {html.escape(shown_value(x))}" for x, p in shown
                ],
                "hovertemplate": "%{text}, reward %{y:.4~g}<extra></extra>",
                "marker": marker,
            }
        )
    return traces
