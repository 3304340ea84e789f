"""Convert charts to plotly's data and layout, for HTML pages.

Data and layout are plain lists and dicts, so this module does not need the package plotly.
The labels of groups and the hover texts are escaped, because plotly interprets some HTML.
"""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from orac.reports.charts import COLOURS, INK, Chart, CostHistogram
from orac.reports.report_metrics import Curve
from orac.reports.run_reader import count

_AXIS = {"gridcolor": "#E6E6E6", "zeroline": False, "automargin": True}
_DASHES = ("solid", "dash", "dashdot", "dot")
_HEIGHT = 340
_HISTOGRAM_ROW, _HISTOGRAM_GAP = 130, 0.38
"""Height of a histogram's row in pixels, and the fraction of it reserved for text."""
_MAX_POINTS = 250
"""Maximum number of points that are drawn per curve."""
_HIDDEN = {"hoverinfo": "skip", "showlegend": False}
"""Settings of traces that have no hover text and no entry in the legend."""


def to_plotly(chart: Chart, labels: Sequence[str]) -> dict[str, Any]:
    """Return a chart as plotly's data and layout.

    The index of a group's label in `labels` sets its colour and dashes.
    """
    if isinstance(chart, CostHistogram):
        return _histogram(chart, labels)
    behind, front = [], []
    shape = {"shape": "hv"} if chart.is_stepped else {}
    for line in chart.lines:
        place = labels.index(line.label)
        colour = COLOURS[place % len(COLOURS)]
        style = {"legendgroup": str(place), "line": {"color": colour}}
        faint = {"opacity": 0.25, "line": {"color": colour, "width": 0.8}}
        for x, y in line.seed_curves:
            points = x[_thin(len(x))], y[_thin(len(x))]
            behind.append(_trace(*points, "lines", **{**style, **_HIDDEN, **faint}))
        curve = line.curve[_thin(len(line.curve.x))]
        behind += _band_traces(curve, style)
        dash = _DASHES[place % len(_DASHES)]
        mean = {
            **style,
            "name": f"{html.escape(line.label)} ({count(line.num_seeds, 'seed')})",
            "text": _hover_texts(curve, ".0%" if chart.is_share else ".4g"),
            "hovertemplate": "%{text}",
            "marker": {"size": 4},
            "line": {"color": colour, "dash": dash, "width": 2, **shape},
        }
        mode = "lines+markers" if len(curve.x) <= 60 else "lines"
        front.append(_trace(curve.x, curve.mean, mode, **mean))
    for mark in chart.marks:
        place = labels.index(mark.label)
        colour, outline = COLOURS[place % len(COLOURS)], {"color": INK, "width": 1}
        star = {
            **{"legendgroup": str(place), "showlegend": False},
            **{
                "text": [html.escape(mark.text)],
                "hovertemplate": "%{text}<extra></extra>",
            },
            "marker": {"symbol": "star", "size": 13, "color": colour, "line": outline},
        }
        front.append(_trace(np.array([mark.x]), np.array([mark.y]), "markers", **star))
    layout = chart_layout(chart.x_title, hovermode="x unified")
    # On narrow screens the legend has one row per line, so more lines need more height.
    layout["height"] = _HEIGHT + 20 * max(len(chart.lines) - 2, 0)
    if chart.x_range:
        layout["xaxis"]["range"] = [*chart.x_range]
    if chart.y_range:
        layout["yaxis"]["range"] = [*chart.y_range]
    if chart.wide_until:
        layout["margin"] |= {"l": 60}
        layout["yaxis"]["automargin"] = False
    if chart.is_share:
        layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    layout["shapes"] = [limit_line(chart.limit_axis, limit) for limit in chart.limits]
    if chart.limit_axis == "y":
        right = {"xref": "paper", "x": 1, "xanchor": "right", "font": {"size": 11}}
        above = {"yref": "y", "yanchor": "bottom", "showarrow": False}
        layout["annotations"] = [
            {"text": f"limit {limit:.4g}", "y": limit, **right, **above}
            for limit in chart.limits
        ]
    return {"data": behind + front, "layout": layout}


def _thin(length: int) -> slice:
    """Return a slice that selects at most `_MAX_POINTS` points, the last one included."""
    step = max(-(-length // _MAX_POINTS), 1)
    return slice((length - 1) % step, None, step)


def _trace(x: np.ndarray, y: np.ndarray, mode: str, **more: Any) -> dict[str, Any]:
    points = {"x": _rounded(x, 12), "y": _rounded(y)}
    return {"type": "scatter", "mode": mode, **points, **more}


def _hover_texts(curve: Curve, spec: str) -> list[str]:
    """Return the hover text of each point: mean, interval, and number of seeds or episodes."""
    texts, unit = [], curve.unit
    columns = curve.mean, curve.low, curve.high, curve.count
    for mean, low, high, number in zip(*(x.tolist() for x in columns), strict=True):
        if np.isfinite(low):
            band = f"[{low:{spec}}, {high:{spec}}]"
            texts.append(f"{mean:{spec}} {band}, {count(number, unit)}")
        else:
            reason = (
                f"one {unit}" if number == 1 else f"same value for all {number} {unit}s"
            )
            texts.append(f"{mean:{spec}} ({reason})")
    return texts


def _band_traces(curve: Curve, style: dict[str, Any]) -> list[dict[str, Any]]:
    """Return traces of a curve's band: filled areas, and error bars at lone points."""
    traces = []
    gap = np.full(1, np.nan)
    x, y = [], []
    for part in curve.stretches:
        if part.stop - part.start > 1:
            x += [curve.x[part], curve.x[part][::-1], gap]
            y += [curve.high[part], curve.low[part][::-1], gap]
    colour = style["line"]["color"]
    if x:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        fill = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.15)"}
        outline = {**style, **_HIDDEN, **fill, "line": {"width": 0}}
        ends = np.concatenate(x[:-1]), np.concatenate(y[:-1])
        traces.append(_trace(*ends, "lines", **outline))
    at = curve.lone_points
    if len(at):
        mean, low, high = curve.mean[at], curve.low[at], curve.high[at]
        bars = {
            **{"type": "data", "symmetric": False, "color": colour, "thickness": 1.5},
            **{"array": _rounded(high - mean), "arrayminus": _rounded(mean - low)},
        }
        marker = {"size": 4, "color": colour}
        dots = {**style, **_HIDDEN, "error_y": bars, "marker": marker}
        traces.append(_trace(curve.x[at], mean, "markers", **dots))
    return traces


def _histogram(chart: CostHistogram, labels: Sequence[str]) -> dict[str, Any]:
    """Return one row of bars per group, with VaR, CVaR and limits."""
    rows = len(chart.rows)
    layout = chart_layout(chart.x_title, hovermode="closest", showlegend=False)
    layout |= {"height": max(_HEIGHT, 80 + _HISTOGRAM_ROW * rows), "bargap": 0}
    layout |= {"shapes": [], "annotations": []}
    data = []
    for i, row in enumerate(chart.rows):
        axis = "y" if i == 0 else f"y{i + 1}"
        bottom, top = 1 - (i + 1) / rows, 1 - (i + _HISTOGRAM_GAP) / rows
        layout["yaxis" + axis[1:]] = {
            **_AXIS,
            **{"domain": [max(bottom, 0), top], "range": [0, 1]},
            **{"tickformat": ".0%", "nticks": 3},
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
        data.append(bars)
        styles = ("dash", "triangle-down"), ("solid", "diamond")
        for stem, (dash, symbol) in zip(row.stems, styles, strict=True):
            name, cost, height, _ = stem
            mark = {
                "type": "scatter",
                "mode": "lines+markers",
                "x": _rounded(np.array([cost, cost])),
                "y": [0, height],
                "yaxis": axis,
                "line": {"color": INK, "dash": dash, "width": 1.6},
                "marker": {
                    "symbol": symbol,
                    "size": [0, 9],
                    "color": INK,
                    "opacity": 1,
                },
                "hovertemplate": f"{name} at tail {row.tail:g}: {cost:.4g}<extra></extra>",
            }
            data.append(mark)
        layout["shapes"] += [limit_line("x", limit, axis) for limit in row.limits]
        legend = [f"{x} {stem[-1]}" for x, stem in zip("▼◆", row.stems, strict=True)]
        legend += [f"┊ limit {limit:g}" for limit in row.limits]
        text = {
            "text": f"<b>{html.escape(row.label)}</b><br>{'  '.join(legend)}",
            **{"xref": "paper", "yref": "paper", "x": 0, "y": top},
            **{"xanchor": "left", "yanchor": "bottom", "showarrow": False},
            **{"align": "left", "font": {"size": 12}},
        }
        layout["annotations"].append(text)
    # All rows share the cost axis below the last one.
    anchor = f"y{rows}" if rows > 1 else "y"
    layout["xaxis"] |= {"anchor": anchor, "range": [*chart.x_range]}
    return {"data": data, "layout": layout}


def limit_line(axis: str, value: float, other: str = "y") -> dict[str, Any]:
    """Return a dotted line at `value` on the x or the y axis.

    If `axis` is "x", the line is vertical and as high as the y axis named `other`.
    """
    line = {"color": INK, "dash": "dot", "width": 1.5}
    if axis == "x":
        ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": f"{other} domain"}
        return {"type": "line", "xref": "x", **ends, "line": line}
    ends = {"x0": 0, "x1": 1, "y0": value, "y1": value, "xref": "paper"}
    return {"type": "line", "yref": "y", **ends, "line": line}


def chart_layout(x_title: str, **more: Any) -> dict[str, Any]:
    """Return plotly's layout of a chart, in the style of the page."""
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
    """Round to significant digits, to keep the page small. Non-finite values become None."""
    short = [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
    return [int(x) if x is not None and x.is_integer() else x for x in short]
