"""The HTML report: one file with tables, plotly charts, pictures and configs.

The page opens offline: plotly.js is inlined once, and a content security policy in the
page's head makes the browser refuse every request. Text from runs is always escaped.
Charts are described by `charts`; here they become plotly's data, as plain lists and
dicts, so that only `plotly_source` needs the Python package.
"""

import base64
import html
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from orac.config import serialization
from orac.config.validation import import_extra
from orac.reports import behaviour, charts
from orac.reports.charts import COLOURS, INK, Chart, CostHistogram, Line, LineChart
from orac.reports.run_reader import Group, Results, count, full_label
from orac.reports.seed_statistics import Curve, SeedCurve
from orac.reports.tables import Table, to_html

_PICTURE_BYTES = 3_000_000
"""Total size of the PNG files that a page includes; further files are only named."""
_PNG = b"\x89PNG\r\n\x1a\n"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
_AXIS = {"gridcolor": "#E6E6E6", "zeroline": False, "automargin": True}
_DASHES = ("solid", "dash", "dashdot", "dot")
_HEIGHT = 340
_HISTOGRAM_ROW = 130
"""Height of one group in a histogram, in pixels."""
_HISTOGRAM_GAP = 0.38
"""Fraction of that height for the two lines of text above the bars."""
_MAX_POINTS = 250
"""Points of a curve; longer curves are thinned out."""


@dataclass(frozen=True)
class PageTables:
    """Tables of a page."""

    by_env: dict[str, tuple[list[Table], list[Table]]]
    """By environment id: tables above the charts, and tables below."""
    configs: Table | None
    runs: Table


def make_page(results: Results, tables: PageTables, roots: Sequence[Path]) -> str:
    """Return the whole page as text; PNG files in `roots` are included."""
    plots: list[dict[str, Any]] = []
    sections = []
    for env_id, groups in results.by_env().items():
        labels = [group.label for group in groups]
        figures = ""
        for chart in charts.report_charts(groups):
            figures += _figure(chart, len(plots))
            plots.append(to_plotly(chart, labels))
        above, below = tables.by_env[env_id]
        sections.append(
            f"<section><h2>{html.escape(env_id)}</h2>{''.join(map(to_html, above))}"
            f"<div class=charts>{figures}</div>{_behaviour(groups)}"
            f"{''.join(map(to_html, below))}</section>"
        )
    sections += [
        _pictures(results, roots),
        _configs(tables.configs, results.groups),
        f"<section><h2>Runs</h2>{to_html(tables.runs)}</section>",
    ]
    template = files("orac.reports").joinpath("page.html").read_text(encoding="utf-8")
    data = json.dumps(plots, allow_nan=False, separators=(",", ":"))
    parts = {
        "@POLICY@": _POLICY,
        "@LEAD@": _lead(results),
        "@SECTIONS@": "\n".join(sections),
        # Only "<" could end the surrounding script element early.
        "@CHARTS@": data.replace("<", "\\u003c"),
        "@PLOTLY@": plotly_source(),
    }
    # Fill in from left to right, so that names inside the inserted text are not replaced.
    text = []
    for name, part in parts.items():
        before, _, template = template.partition(name)
        text += [before, part]
    return "".join([*text, template])


def plotly_source() -> str:
    """Return the source of plotly.js."""
    advice = "Tables do not need it: use --format markdown, latex or csv."
    plotly = import_extra("The HTML report", "report", "plotly.offline", advice=advice)
    return plotly.get_plotlyjs()


def _lead(results: Results) -> str:
    runs = sum(len(group.runs) for group in results.groups)
    text = (
        f"{count(runs, 'run')} in {count(len(results.groups), 'group')} of equal configs, "
        f"{count(len(results.by_env()), 'environment')}. Made on "
        f"{time.strftime('%Y-%m-%d')}."
    )
    return f"<p>{text}</p>{_notes(results.notes)}"


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<ul class=notes>{items}</ul>" if items else ""


def _figure(chart: Chart, number: int) -> str:
    title = html.escape(chart.title)
    text = chart.note if isinstance(chart, LineChart) else ""
    note = f"<p class=note>{html.escape(text)}</p>" if text else ""
    return (
        f"<figure><figcaption>{title}</figcaption>"
        f'<div class=chart id="chart-{number}" role=img aria-label="{title}"></div>'
        f"{note}</figure>"
    )


def _behaviour(groups: Sequence[Group]) -> str:
    """Return pictures of the policies' behaviour, from episodes that are played now."""
    try:
        pictures, notes = behaviour.behaviour_pictures(groups)
    except ImportError as error:
        pictures, notes = [], [f"No pictures of the policies: {error}"]
    images = [_image(picture.to_png(), picture.title) for picture in pictures]
    return _image_grid(images) + _notes(notes)


def _image(data: bytes, caption: str) -> str:
    source, text = base64.b64encode(data).decode(), html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{source}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _image_grid(images: Sequence[str]) -> str:
    return f"<div class=pictures>{''.join(images)}</div>" if images else ""


def _pictures(results: Results, roots: Sequence[Path]) -> str:
    """Return the PNG files in the directories of the report, its runs and their parents."""
    runs = [run.path for group in results.groups for run in group.runs]
    places = dict.fromkeys([*roots, *(path.parent for path in runs), *runs])
    found = {file.resolve(): file for p in places for file in sorted(p.glob("*.png"))}
    images, left_out, bytes_left = [], [], _PICTURE_BYTES
    for path in found.values():
        data = path.read_bytes()
        if not data.startswith(_PNG):
            continue
        if len(data) > bytes_left:
            left_out.append(html.escape(str(path)))
            continue
        bytes_left -= len(data)
        images.append(_image(data, str(path)))
    if not images and not left_out:
        return ""
    note = (
        f"<p class=note>Left out for size: {', '.join(left_out)}</p>"
        if left_out
        else ""
    )
    return f"<section><h2>Pictures</h2>{_image_grid(images)}{note}</section>"


def _configs(table: Table | None, groups: Sequence[Group]) -> str:
    lead = to_html(table) if table else "<p>All runs have the same config.</p>"
    whole = "".join(
        f"<details><summary>{html.escape(full_label(group, groups))}</summary>"
        f"<pre>{html.escape(serialization.dump(group.config))}</pre></details>"
        for group in groups
    )
    return f"<section><h2>Configs</h2>{lead}<h3>In full</h3>{whole}</section>"


def to_plotly(chart: Chart, labels: Sequence[str]) -> dict[str, Any]:
    """Return a chart as plotly's data and layout.

    Each group has the colour and dashes of its label's place in `labels`.
    """
    if isinstance(chart, CostHistogram):
        return _histogram(chart, labels)
    behind, front = [], []
    for line in chart.lines:
        place = labels.index(line.label)
        style = {
            "type": "scatter",
            "legendgroup": str(place),
            "line": {"color": COLOURS[place % len(COLOURS)]},
        }
        behind += [_seed_trace(curve, style) for curve in line.seed_curves]
        curve = line.curve[_thin(len(line.curve.x))]
        behind += _band_traces(curve, style)
        dash = _DASHES[place % len(_DASHES)]
        front.append(_mean_trace(line, curve, style, dash, chart))
    layout = _layout(chart.x_title, hovermode="x unified")
    # On narrow screens the legend has one row per line.
    layout["height"] = _HEIGHT + 20 * max(len(front) - 2, 0)
    if chart.is_share:
        layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    layout["shapes"] = [_limit_line(chart.limit_axis, limit) for limit in chart.limits]
    if chart.limit_axis == "y":
        layout["annotations"] = [
            {
                "text": f"limit {limit:.4g}",
                **{"xref": "paper", "x": 1, "xanchor": "right"},
                **{"yref": "y", "y": limit, "yanchor": "bottom", "showarrow": False},
                "font": {"size": 11},
            }
            for limit in chart.limits
        ]
    return {"data": behind + front, "layout": layout}


def _thin(length: int) -> slice:
    """Return every k-th point of a curve, so that the last one is included."""
    step = max(-(-length // _MAX_POINTS), 1)
    return slice((length - 1) % step, None, step)


def _mean_trace(
    line: Line, curve: Curve, style: dict[str, Any], dash: str, chart: LineChart
) -> dict[str, Any]:
    bounds = zip(curve.low.tolist(), curve.high.tolist(), strict=True)
    points = zip(curve.mean.tolist(), bounds, curve.seeds.tolist(), strict=True)
    shape = {"shape": "hv"} if chart.is_stepped else {}
    spec = ".0%" if chart.is_share else ".4g"
    return {
        **style,
        "mode": "lines+markers" if len(curve.x) <= 60 else "lines",
        # plotly interprets some HTML in names.
        "name": f"{html.escape(line.label)} ({count(line.num_seeds, 'seed')})",
        "x": _rounded(curve.x, 12),
        "y": _rounded(curve.mean),
        "text": [_hover(*point, spec) for point in points],
        "hovertemplate": "%{text}",
        "marker": {"size": 4},
        "line": {**style["line"], "dash": dash, "width": 2, **shape},
    }


def _hover(mean: float, bounds: tuple[float, float], seeds: int, spec: str) -> str:
    low, high = bounds
    if not np.isfinite(low):
        reason = "one seed" if seeds == 1 else f"all {seeds} seeds equal"
        return f"{mean:{spec}} ({reason})"
    return f"{mean:{spec}} [{low:{spec}}, {high:{spec}}], {seeds} seeds"


def _seed_trace(curve: SeedCurve, style: dict[str, Any]) -> dict[str, Any]:
    points = _thin(len(curve[0]))
    return {
        **style,
        "mode": "lines",
        "x": _rounded(curve[0][points], 12),
        "y": _rounded(curve[1][points]),
        "opacity": 0.25,
        "hoverinfo": "skip",
        "showlegend": False,
        "line": {**style["line"], "width": 0.8},
    }


def _band_traces(curve: Curve, style: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the band as outlines, and as error bars where a point has no neighbour."""
    traces = []
    gap = np.full(1, np.nan)
    x, y = [], []
    for part in curve.stretches:
        if part.stop - part.start > 1:
            x += [curve.x[part], curve.x[part][::-1], gap]
            y += [curve.high[part], curve.low[part][::-1], gap]
    colour = style["line"]["color"]
    hidden = {**style, "hoverinfo": "skip", "showlegend": False}
    if x:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        outline = {
            **hidden,
            "mode": "lines",
            "x": _rounded(np.concatenate(x[:-1]), 12),
            "y": _rounded(np.concatenate(y[:-1])),
            "fill": "toself",
            "fillcolor": f"rgba({red},{green},{blue},0.15)",
            "line": {"width": 0},
        }
        traces.append(outline)
    at = curve.lone_points
    if len(at):
        mean, low, high = curve.mean[at], curve.low[at], curve.high[at]
        bars = {
            **hidden,
            "mode": "markers",
            "x": _rounded(curve.x[at], 12),
            "y": _rounded(mean),
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": _rounded(high - mean),
                "arrayminus": _rounded(mean - low),
                "color": colour,
                "thickness": 1.5,
            },
            "marker": {"size": 4, "color": colour},
        }
        traces.append(bars)
    return traces


def _histogram(chart: CostHistogram, labels: Sequence[str]) -> dict[str, Any]:
    """Return one row of bars per group, with VaR, CVaR and limits."""
    rows = len(chart.rows)
    layout = _layout(chart.x_title, hovermode="closest", showlegend=False)
    layout |= {"height": max(_HEIGHT, 80 + _HISTOGRAM_ROW * rows), "bargap": 0}
    data, shapes, texts = [], [], []
    for i, row in enumerate(chart.rows):
        axis = "y" if i == 0 else f"y{i + 1}"
        bottom, top = 1 - (i + 1) / rows, 1 - (i + _HISTOGRAM_GAP) / rows
        layout["yaxis" + axis[1:]] = {
            **_AXIS,
            "domain": [max(bottom, 0), top],
            "range": [0, 1],
            "tickformat": ".0%",
            "nticks": 3,
        }
        full, total = row.counts > 0, row.counts.sum()
        bars = {
            "type": "bar",
            "name": html.escape(row.label),
            "x": _rounded((chart.edges[:-1] + chart.edges[1:])[full] / 2),
            "y": _rounded(row.counts[full] / total),
            "width": _rounded(np.diff(chart.edges)[full]),
            "yaxis": axis,
            "marker": {"color": COLOURS[labels.index(row.label) % len(COLOURS)]},
            "text": [f"{n:,} of {total:,} episodes" for n in row.counts[full]],
            "textposition": "none",
            "hovertemplate": "cost %{x:.4~g}: %{y:.1%}, %{text}<extra></extra>",
        }
        stems = [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": _rounded(np.array([x, x])),
                "y": [0, height],
                "yaxis": axis,
                "line": {"color": INK, "dash": dash, "width": 1.6},
                "marker": {
                    "symbol": symbol,
                    "size": [0, 9],
                    "color": INK,
                    "opacity": 1,
                },
                "hovertemplate": f"{name} at {row.tail:g}: {x:.4g}<extra></extra>",
            }
            for name, x, height, dash, symbol in (
                ("VaR", row.var, charts.VAR_HEIGHT, "dash", "triangle-down"),
                ("CVaR", row.cvar, charts.CVAR_HEIGHT, "solid", "diamond"),
            )
        ]
        data += [bars, *stems]
        shapes += [_limit_line("x", limit, axis) for limit in row.limits]
        legend = [f"▼ {row.var_label}", f"◆ {row.cvar_label}"]
        legend += [f"┊ limit {limit:g}" for limit in row.limits]
        text = {
            "text": f"<b>{html.escape(row.label)}</b><br>{'  '.join(legend)}",
            **{"xref": "paper", "yref": "paper", "x": 0, "y": top},
            **{"xanchor": "left", "yanchor": "bottom", "showarrow": False},
            "align": "left",
            "font": {"size": 12},
        }
        texts.append(text)
    layout |= {"shapes": shapes, "annotations": texts}
    # All rows share the cost axis below the last one.
    anchor = f"y{rows}" if rows > 1 else "y"
    layout["xaxis"] |= {"anchor": anchor, "range": [*chart.x_range]}
    return {"data": data, "layout": layout}


def _limit_line(axis: str, value: float, other: str = "y") -> dict[str, Any]:
    line = {"color": INK, "dash": "dot", "width": 1.5}
    if axis == "x":
        ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": f"{other} domain"}
        return {"type": "line", "xref": "x", **ends, "line": line}
    ends = {"x0": 0, "x1": 1, "y0": value, "y1": value, "xref": "paper"}
    return {"type": "line", "yref": "y", **ends, "line": line}


def _layout(x_title: str, **more: Any) -> dict[str, Any]:
    transparent = "rgba(0,0,0,0)"
    return {
        "margin": {"l": 48, "r": 12, "t": 30, "b": 40},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": transparent,
        "plot_bgcolor": transparent,
        "xaxis": {**_AXIS, "title": {"text": x_title, "standoff": 8}},
        "yaxis": dict(_AXIS),
        "legend": {"orientation": "h", "y": -0.24, "x": 0},
        "hoverlabel": {"namelength": -1},
        "modebar": {"bgcolor": transparent, "color": "#AAAAAA", "activecolor": INK},
        **more,
    }


def _rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """Round to significant digits, which keeps the page small; non-finite becomes None."""
    short = [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
    return [int(x) if x is not None and x.is_integer() else x for x in short]
