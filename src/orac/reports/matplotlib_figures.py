"""Draw charts with matplotlib, as figures for print.

Lines differ in their dashes as well as in their colours, so up to four lines can be told
apart without colour. Matplotlib is imported only when something is drawn.
"""

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from orac.config.validation import import_extra
from orac.evaluation.episodes import cost_column
from orac.reports import charts
from orac.reports.charts import COLOURS, INK, CostHistogram, Line, LineChart
from orac.reports.run_reader import Results, cost_names, count
from orac.runs.atomic_io import make_directory, write_bytes
from orac.runs.directory import safe_name

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    # Text stays text instead of becoming curves, so that it can be searched.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
BAND_NOTES = {
    "interval": "Lines show means over seeds, and bands show their 95 % intervals.",
    "half-std": "Lines show means over seeds, and bands extend half a standard deviation to "
    "each side.",
}
_DASHES = ("-", "--", "-.", ":")
_COLUMNS = 3
"""Number of panels in a row of `draw_curves`."""
_TITLE_WIDTH = 46
"""Maximum number of characters in a line of a panel's title."""


@contextmanager
def new_figure(
    rows: int, columns: int, size: tuple[float, float]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield a new figure, which opens no window, and its axes as an array (row, column)."""
    names = ("matplotlib", "matplotlib.figure", "matplotlib.ticker")
    matplotlib = import_extra("Drawing a figure", "plots", *names)
    with matplotlib.rc_context(STYLE):
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        # A notebook can show a figure that was made without pyplot only if it has this method.
        figure._repr_png_ = partial(
            figure_bytes, figure, "png", dpi=100, bbox_inches="tight"
        )
        yield figure, figure.subplots(rows, columns, squeeze=False)


def figure_bytes(figure: Any, format: str, **options: Any) -> bytes:
    """Return the figure as the content of a file, in a format such as "png" or "pdf".

    `options` are arguments of `savefig`.
    """
    stream = io.BytesIO()
    figure.savefig(stream, format=format, **options)
    return stream.getvalue()


def draw_line_charts(
    rows: Sequence[Sequence[LineChart]],
    labels: Sequence[str] = (),
    title: str = "",
    note: str = "",
    show_seeds: bool = False,
) -> Any:
    """Draw rows of line charts as one figure with one legend below.

    The index of a line's label in `labels` sets its colour and dashes. The labels that are
    not in `labels` get the next indices, in the order in which they appear. `note` is written
    above the legend. `show_seeds` adds the number of seeds to each label in the legend.
    """
    columns = max([1, *map(len, rows)])
    shown = [line.label for row in rows for chart in row for line in chart.lines]
    styles = {x: place for place, x in enumerate(dict.fromkeys([*labels, *shown]))}
    size = (3.4 * columns, 2.6 * max(len(rows), 1) + (0.7 if note else 0.5))
    with new_figure(max(len(rows), 1), columns, size) as (figure, grid):
        from matplotlib.ticker import EngFormatter

        for axes_row, row in zip(grid, rows, strict=False):
            for axes in axes_row[len(row) :]:
                axes.set_visible(False)
            for axes, chart in zip(axes_row, row, strict=False):
                for line in chart.lines:
                    _draw_line(axes, line, styles[line.label], chart, show_seeds)
                for limit in chart.limits:
                    mark = axes.axhline if chart.limit_axis == "y" else axes.axvline
                    dots = {"color": INK, "ls": (0, (1, 1.5)), "lw": 1.3}
                    mark(limit, label=f"limit {limit:.4g}", **dots)
                for mark in chart.marks:
                    colour = COLOURS[styles[mark.label] % len(COLOURS)]
                    star = {"color": colour, "mec": INK, "mew": 0.6, "ms": 10, "ls": ""}
                    axes.plot(mark.x, mark.y, "*", label="delivered policy", **star)
                if chart.y_range:
                    axes.set_ylim(chart.y_range)
                if chart.is_share:
                    axes.set_ylim(-0.03, 1.03)
                if chart.x_range:
                    axes.set_xlim(chart.x_range)
                axes.set_title(textwrap.fill(chart.title, _TITLE_WIDTH))
                axes.set_xlabel(chart.x_title)
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        # One legend below all panels shows every line and limit once.
        entries: dict[str, Any] = {}
        for axes in grid.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        if entries:
            place = {"loc": "outside lower center", "ncols": min(4, len(entries))}
            heading = {"title": note, "title_fontsize": 8}
            figure.legend([*entries.values()], [*entries], **place, **heading)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_line(
    axes: Any, line: Line, style: int, chart: LineChart, show_seeds: bool
) -> None:
    curve, colour = line.curve, COLOURS[style % len(COLOURS)]
    suffix = f" ({count(line.num_seeds, 'seed')})" if show_seeds else ""
    style_options = {
        "label": f"{line.label}{suffix}",
        # A line with only one point would be invisible.
        "marker": "." if len(curve.x) == 1 else "",
        "drawstyle": "steps-post" if chart.is_stepped else "default",
    }
    dash = _DASHES[style % len(_DASHES)]
    axes.plot(curve.x, curve.mean, dash, color=colour, **style_options)
    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, lw=0)
    at = curve.lone_points
    if len(at):
        # A band at a single point would be invisible too, so it becomes an error bar.
        reach = [curve.mean[at] - curve.low[at], curve.high[at] - curve.mean[at]]
        bars = {"fmt": ".", "color": colour, "capsize": 2, "lw": 1}
        axes.errorbar(curve.x[at], curve.mean[at], reach, **bars)


def draw_histogram(
    *histograms: CostHistogram, labels: Sequence[str] = (), title: str = ""
) -> Any:
    """Draw distributions of costs, one below the other, with VaR, CVaR and limits.

    The index of a row's label in `labels` sets its colour.
    """
    shown = [(chart, row) for chart in histograms for row in chart.rows]
    order = [*dict.fromkeys([*labels, *(row.label for _, row in shown)])]
    rows = max(len(shown), 1)
    with new_figure(rows, 1, (6.4, 1.5 * rows + 0.7)) as (figure, grid):
        for axes, (chart, row) in zip(grid.flat, shown, strict=False):
            shares, widths = row.counts / row.counts.sum(), np.diff(chart.edges)
            colour = COLOURS[order.index(row.label) % len(COLOURS)]
            axes.bar(chart.edges[:-1], shares, widths, align="edge", color=colour)
            for stem, style in zip(row.stems, ("v--", "D-"), strict=True):
                _, cost, height, label = stem
                mark = {"color": INK, "markevery": [1], "label": label}
                axes.plot([cost, cost], [0, height], style, **mark)
            for limit in row.limits:
                dots = {"color": "#777777", "ls": ":", "lw": 1.4}
                axes.axvline(limit, label=f"limit {limit:g}", **dots)
            seeds = f" ({count(row.num_seeds, 'seed')})" if row.num_seeds else ""
            axes.set_title(f"{row.label}{seeds}")
            axes.set_ylabel("share")
            axes.set_ylim(0, 1)
            axes.set_xlim(chart.x_range)
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
            if row is chart.rows[-1]:
                axes.set_xlabel(chart.x_title)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def draw_curves(
    found: Sequence[LineChart],
    labels: Sequence[str] = (),
    title: str = "",
    **options: Any,
) -> Any:
    """Draw line charts as one figure with up to three panels in a row.

    `options` are further arguments of `draw_line_charts`.
    """
    starts = range(0, len(found), _COLUMNS)
    rows = [found[start : start + _COLUMNS] for start in starts]
    return draw_line_charts(rows, labels, title, **options)


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure to a file, in the format of the file's suffix.

    `options` are arguments of matplotlib's `savefig`.
    """
    write_bytes(path, figure_bytes(figure, path.suffix.removeprefix("."), **options))


def save_figures(results: Results, directory: Path, suffix: str = ".png") -> list[Path]:
    """Write the figures of all environments to files, and return their paths."""
    make_directory(directory)
    written = []
    for env_id, groups in results.by_env().items():
        labels = [group.label for group in groups]
        panels = {
            "curves": charts.learning_charts(groups),
            "multipliers": [
                *charts.measured_charts(groups),
                *charts.constraint_charts(groups),
            ],
        }
        figures = {}
        for name, found in panels.items():
            figures[name] = draw_curves(found, labels, env_id, show_seeds=True)
        for name in cost_names(groups):
            chart = charts.cost_histogram(groups, name)
            key = f"{safe_name(cost_column(name))}-distribution"
            figures[key] = draw_histogram(chart, labels=labels, title=env_id)
        for name, figure in figures.items():
            path = directory / f"{safe_name(env_id)}-{name}{suffix}"
            save_figure(figure, path)
            written.append(path)
    return written
