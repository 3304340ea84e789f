"""Figures of studies: curves over environment steps, a panel for each question.

A band is the 95 % interval of the mean over seeds, or the paper's: half a standard
deviation to each side. The style is that of `plots`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orac.experiments.study import Found
from orac.reports.figures import (
    COLOURS,
    DASHES,
    INK,
    STYLE,
    import_matplotlib,
    make_figure,
)
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import average

BANDS = ("interval", "half-std")
ReadCurve = Callable[[Run], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: whose curves, of what, and a line to compare with."""

    title: str
    lines: Sequence[tuple[str, Found]]
    read: ReadCurve
    limit: float | None = None
    """Of a cost, which is never negative."""
    is_share: bool = False
    """Whether values are in [0, 1], and the axis shows all of it."""

    @property
    def ends(self) -> tuple[float, float]:
        """What the values cannot pass, and so no band does."""
        lowest = 0.0 if self.is_share or self.limit is not None else -np.inf
        return lowest, 1.0 if self.is_share else np.inf


def draw(rows: Sequence[Sequence[Panel]], band: str = "interval") -> Any:
    """Panels in rows, with one legend below them all."""
    matplotlib = import_matplotlib()
    columns = max(map(len, rows))
    size = (3.4 * columns, 2.6 * len(rows) + 0.7)
    labels = dict.fromkeys(label for row in rows for p in row for label, _ in p.lines)
    styles = {label: number for number, label in enumerate(labels)}
    with matplotlib.rc_context(STYLE):
        figure, grid = make_figure(matplotlib, len(rows), columns, size)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes in axes_row[len(row) :]:
                axes.set_visible(False)
            for axes, panel in zip(axes_row, row, strict=False):
                _draw_panel(axes, panel, styles, band)
                axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
        _draw_legend(figure, grid, band)
    return figure


def _draw_panel(axes: Any, panel: Panel, styles: dict[str, int], band: str) -> None:
    for label, found in panel.lines:
        curves = [c for run in found.runs if len((c := panel.read(run))[0])]
        if not curves:
            continue
        steps, mean, low, high = _band(curves, band)
        low, high = np.clip(low, *panel.ends), np.clip(high, *panel.ends)
        number = styles[label]
        colour = COLOURS[number % len(COLOURS)]
        style = DASHES[number % len(DASHES)]
        axes.plot(steps, mean, style, color=colour, label=label)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)
    if panel.limit is not None:
        axes.axhline(panel.limit, color=INK, ls=":", lw=1.3, label="limit")
    if panel.is_share:
        axes.set_ylim(-0.03, 1.03)
    axes.set_title(panel.title)
    axes.set_xlabel("environment steps")


def _band(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], band: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    curve = average(curves)
    if band == "interval":
        return curve.steps, curve.mean, curve.low, curve.high
    half = half_deviation(curves, curve.steps)
    return curve.steps, curve.mean, curve.mean - half, curve.mean + half


def half_deviation(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], steps: np.ndarray
) -> np.ndarray:
    """Half the standard deviation over seeds at each step; NaN where one seed is."""
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (at, known) in zip(values, curves, strict=True):
        row[np.searchsorted(steps, at)] = known
    several = np.isfinite(values).sum(axis=0) > 1
    half = np.full(len(steps), np.nan)
    half[several] = np.nanstd(values[:, several], axis=0) / 2
    return half


def _draw_legend(figure: Any, grid: np.ndarray, band: str) -> None:
    found: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    words = {
        "interval": "Lines are means over seeds, bands their 95 % intervals.",
        "half-std": "Lines are means over seeds, bands half a standard deviation.",
    }
    if found:
        figure.legend(
            [*found.values()],
            [*found],
            loc="outside lower center",
            ncols=min(4, len(found)),
            title=words[band],
            title_fontsize=8,
        )
