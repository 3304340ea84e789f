"""Figures of studies: curves of evaluations over environment steps, panels in rows.

A band is the 95 % interval of the mean over seeds, or, as in the paper, half a standard
deviation to each side. The style is that of `reports.figures`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from orac.config.schema import Config
from orac.evaluation.result import cost_column
from orac.reports.figures import (
    COLOURS,
    DASHES,
    INK,
    STYLE,
    import_matplotlib,
    make_figure,
)
from orac.reports.run_groups import Group
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import average, cvar_curve, evaluation_curve

BANDS = ("interval", "half-std")
ReadCurve = Callable[[Run], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a line for each group, and a limit to compare with."""

    title: str
    lines: Sequence[Group]
    read: ReadCurve
    limit: float | None = None
    """Limit of a cost, which is never negative."""
    is_share: bool = False
    """Whether values are in [0, 1]; the axis then shows this range."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Range of the values, at which bands are cut."""
        lowest = 0.0 if self.is_share or self.limit is not None else -np.inf
        return lowest, 1.0 if self.is_share else np.inf


def evaluation_panels(
    title: str,
    lines: Sequence[Group],
    config: Config,
    tails: Sequence[float] | None = None,
) -> list[Panel]:
    """Return panels of the reward, the mean of the first cost, and its CVaR at each tail.

    `config` has the constraint. Its tail is the default of `tails`.
    """
    panels = [
        Panel(f"{title}: reward", lines, lambda run: evaluation_curve(run, "reward"))
    ]
    if not config.constraints:
        return panels
    constraint = config.constraints[0]
    column, limit = cost_column(constraint.name), constraint.limit
    panels.append(
        Panel(f"mean {column}", lines, lambda run: evaluation_curve(run, column), limit)
    )
    if tails is None:
        tails = [constraint.tail] if constraint.tail < 1 else []
    for tail in tails:
        read = partial(cvar_curve, name=constraint.name, tail=tail)
        panels.append(Panel(f"CVaR {tail:g} of {column}", lines, read, limit))
    return panels


def draw(rows: Sequence[Sequence[Panel]], band: str = "interval") -> Any:
    """Draw panels in rows, with one legend below them."""
    matplotlib = import_matplotlib()
    columns = max(map(len, rows))
    size = (3.4 * columns, 2.6 * len(rows) + 0.7)
    labels = dict.fromkeys(
        group.label for row in rows for panel in row for group in panel.lines
    )
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
    for group in panel.lines:
        curves = [c for run in group.runs if len((c := panel.read(run))[0])]
        if not curves:
            continue
        curve = average(curves)
        low, high = curve.low, curve.high
        if band == "half-std":
            half = half_deviation(curves, curve.steps)
            low, high = curve.mean - half, curve.mean + half
        low, high = np.clip(low, *panel.bounds), np.clip(high, *panel.bounds)
        number = styles[group.label]
        colour = COLOURS[number % len(COLOURS)]
        style = DASHES[number % len(DASHES)]
        axes.plot(curve.steps, curve.mean, style, color=colour, label=group.label)
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, lw=0)
    if panel.limit is not None:
        axes.axhline(panel.limit, color=INK, ls=":", lw=1.3, label="limit")
    if panel.is_share:
        axes.set_ylim(-0.03, 1.03)
    axes.set_title(panel.title)
    axes.set_xlabel("environment steps")


def half_deviation(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], steps: np.ndarray
) -> np.ndarray:
    """Return half the standard deviation over seeds at each step; NaN for one seed."""
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (at, known) in zip(values, curves, strict=True):
        row[np.searchsorted(steps, at)] = known
    several = np.isfinite(values).sum(axis=0) > 1
    half = np.full(len(steps), np.nan)
    half[several] = np.nanstd(values[:, several], axis=0) / 2
    return half


def _draw_legend(figure: Any, grid: np.ndarray, band: str) -> None:
    entries: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    titles = {
        "interval": "Lines are means over seeds, bands their 95 % intervals.",
        "half-std": "Lines are means over seeds, bands half a standard deviation.",
    }
    if entries:
        figure.legend(
            [*entries.values()],
            [*entries],
            loc="outside lower center",
            ncols=min(4, len(entries)),
            title=titles[band],
            title_fontsize=8,
        )
