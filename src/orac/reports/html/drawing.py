"""What all charts share: layout, axes, limits, and numbers that are short in JSON."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orac.reports.figures import INK

AXIS = {"gridcolor": "#E6E6E6", "zeroline": False, "automargin": True}
HEIGHT = 340
DASHES = ("solid", "dash", "dashdot", "dot")


@dataclass(frozen=True)
class Chart:
    """One plotly chart and the heading above it."""

    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    note: str = ""
    """What the chart leaves out, for the line below it."""


def limit_shape(axis: str, value: float, other: str = "y") -> dict[str, Any]:
    line = {"color": INK, "dash": "dot", "width": 1.5}
    if axis == "x":
        ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": f"{other} domain"}
        return {"type": "line", "xref": "x", **ends, "line": line}
    ends = {"x0": 0, "x1": 1, "y0": value, "y1": value, "xref": "paper"}
    return {"type": "line", "yref": "y", **ends, "line": line}


def limit_label(axis: str, value: float) -> dict[str, Any]:
    return {
        "text": f"limit {value:.4g}",
        **{"xref": "paper", "x": 1, "xanchor": "right"},
        **{"yref": axis, "y": value, "yanchor": "bottom", "showarrow": False},
        "font": {"size": 11},
    }


def make_layout(x_title: str, **more: Any) -> dict[str, Any]:
    return {
        "height": HEIGHT,
        "margin": {"l": 48, "r": 12, "t": 30, "b": 40},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {**AXIS, "title": {"text": x_title, "standoff": 8}},
        "yaxis": dict(AXIS),
        "legend": {"orientation": "h", "y": -0.24, "x": 0},
        "hoverlabel": {"namelength": -1},
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": "#AAAAAA",
            "activecolor": INK,
        },
        **more,
    }


def height_for(lines: int) -> int:
    """Height of a chart whose legend names so many lines, one a row on narrow screens."""
    return HEIGHT + 20 * max(lines - 2, 0)


def rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """So many significant digits, whole numbers as such; what is not finite is a gap."""
    short = [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
    return [int(x) if x is not None and x.is_integer() else x for x in short]


def faint(colour: str) -> str:
    """A colour for areas behind lines of that colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
