"""Figures for print: learning curves, cost distributions, multiplier and risk.

One style for all. Colours are Okabe and Ito's, and every line has its own dashes too, so
that neither a colour-blind reader nor a grey printer loses one. Needs matplotlib, which
is imported when something is drawn. Draws what `results` has read; computes nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orac.core.risk import cvar
from orac.evaluation.result import cost_column, risk_of_episodes, value_at_risk
from orac.reports.metrics import common_tails
from orac.reports.run_groups import Group, Results
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import (
    cost_bins,
    cvar_curve,
    evaluation_curve,
    group_curve,
    last_step,
    limits,
    metric_curve,
    pooled_costs,
    tail_of,
)
from orac.runs.directory import safe_name

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK = "#222222"
DASHES = ("-", "--", "-.", ":")
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
    # Text stays text: searchable, and set in the reader's font.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
_PANEL = (3.4, 2.6)

ReadCurve = Callable[[Run], tuple[np.ndarray, np.ndarray]]


class Panel(NamedTuple):
    """One chart of a figure: what is read of each run, and the limits drawn into it."""

    title: str
    key: str
    """Says between what an interval may lie: see `measures.bounds_of`."""
    read: ReadCurve
    marks: list[float]


def import_matplotlib() -> Any:
    """matplotlib with the parts used here, or an error that says how to get it."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.lines
        import matplotlib.ticker
    except ImportError as error:
        raise ImportError(
            'Figures need matplotlib: pip install "orac-rl[plots]"'
        ) from error
    return matplotlib


def plot_learning_curves(groups: Sequence[Group], title: str = "") -> Any:
    """Reward, cost and CVaR of cost in evaluations against steps, limits drawn.

    Lines are means over seeds, bands their 95 % intervals; one seed has no band.
    """
    names = list(dict.fromkeys(n for group in groups for n in group.cost_names))
    tails = common_tails(groups)
    panels = [
        Panel(
            "Reward per episode",
            "reward",
            partial(evaluation_curve, column="reward"),
            [],
        )
    ]
    for name in names:
        column, at = cost_column(name), limits(groups, name)
        read = partial(evaluation_curve, column=column)
        panels.append(Panel(f"Mean {column} per episode", column, read, at))
        for tail in tails.get(name, ()):
            heading = f"CVaR of {column}, worst {100 * tail:g} %"
            risk = partial(cvar_curve, name=name, tail=tail)
            panels.append(Panel(heading, column, risk, at))
    return _draw_panels(groups, panels, title)


def plot_multipliers(groups: Sequence[Group], title: str = "") -> Any:
    """Multiplier over time, and the critics' risk beside the limit in their units."""
    names = dict.fromkeys(c.name for g in groups for c in g.config.constraints)
    panels = []
    for name in names:
        values = [
            metric_curve(run, f"constraint/limit/{name}")[1][-1:]
            for group in groups
            for run in group.runs
        ]
        at = np.unique(np.round(np.concatenate([np.empty(0), *values]), 6))
        for word, marks in (("multiplier", []), ("risk", at.tolist())):
            key = f"constraint/{word}/{name}"
            label = "Multiplier" if word == "multiplier" else "Critics' risk"
            read = partial(metric_curve, name=key)
            panels.append(Panel(f"{label} of {name}", key, read, marks))
    return _draw_panels(groups, panels, title)


def plot_cost_distributions(
    groups: Sequence[Group], name: str = "cost", title: str = ""
) -> Any:
    """Costs of the last evaluations, all seeds together, with VaR and CVaR marked."""
    matplotlib = import_matplotlib()
    known = [(group, pooled_costs(group, name)) for group in groups]
    known = [(group, costs) for group, costs in known if len(costs)]
    edges = cost_bins([costs for _, costs in known])
    tails = common_tails(groups).get(name, [])
    with matplotlib.rc_context(STYLE):
        rows = max(len(known), 1)
        figure, grid = make_figure(matplotlib, rows, 1, (6.4, 1.5 * rows + 0.7))
        for number, (group, costs) in enumerate(known):
            axes = grid[number][0]
            shares = np.histogram(costs, edges)[0] / len(costs)
            colour = COLOURS[number % len(COLOURS)]
            axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=colour)
            _mark_risk(axes, costs, tail_of(group, name, tails))
            for limit in limits([group], name):
                label = f"limit {limit:g}"
                axes.axvline(limit, color="#777777", ls=":", lw=1.4, label=label)
            axes.set_title(f"{group.label}, {_count(len(group.evaluated))}")
            axes.set_ylabel("share")
            axes.set_ylim(0, 1)
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
            axes.set_xlim(edges[0], edges[-1])
        grid[-1][0].set_xlabel(f"{cost_column(name)} of an episode")
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _mark_risk(axes: Any, costs: np.ndarray, tail: float) -> None:
    """Stems of unequal height: the two often fall on the same cost."""
    quantile, risk = value_at_risk(costs, tail), risk_of_episodes(costs, cvar(tail))
    for x, top, style, label in (
        (quantile, 0.9, "v--", f"VaR {quantile:.3g}"),
        (risk, 0.65, "D-", f"CVaR {risk:.3g} at {tail:g}"),
    ):
        axes.plot([x, x], [0, top], style, color=INK, markevery=[1], label=label)


def _draw_panels(groups: Sequence[Group], panels: Sequence[Panel], title: str) -> Any:
    matplotlib = import_matplotlib()
    columns = min(max(len(panels), 1), 3)
    rows = max(-(-len(panels) // columns), 1)
    size = (_PANEL[0] * columns, _PANEL[1] * rows + 0.5)
    with matplotlib.rc_context(STYLE):
        figure, grid = make_figure(matplotlib, rows, columns, size)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            for number, group in enumerate(groups):
                _draw_curve(axes, group, panel, number, last_step(groups))
            for mark in panel.marks:
                label = f"limit {mark:.4g}"
                axes.axhline(mark, color=INK, ls=(0, (1, 1.5)), lw=1.3, label=label)
            axes.set_title(panel.title)
            axes.set_xlabel("environment steps")
            axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
        _draw_legend(figure, grid)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_curve(axes: Any, group: Group, panel: Panel, number: int, end: float) -> None:
    curves = [curve for run in group.runs if len((curve := panel.read(run))[0])]
    if not curves:
        return
    curve = group_curve(group, curves, end, panel.key)
    colour = COLOURS[number % len(COLOURS)]
    label = f"{group.label}, {_count(len(curves))}"
    style = DASHES[number % len(DASHES)]
    # A line of one step cannot be seen either.
    mark = "." if len(curve.steps) == 1 else ""
    axes.plot(curve.steps, curve.mean, style, color=colour, label=label, marker=mark)
    axes.fill_between(
        curve.steps, curve.low, curve.high, color=colour, alpha=0.18, lw=0
    )
    at = curve.lone_points
    if len(at):
        # An area of one step cannot be seen.
        reach = [curve.mean[at] - curve.low[at], curve.high[at] - curve.mean[at]]
        axes.errorbar(
            *(curve.steps[at], curve.mean[at], reach),
            **{"fmt": ".", "color": colour, "capsize": 2, "lw": 1},
        )


def _draw_legend(figure: Any, grid: np.ndarray) -> None:
    """One legend below all panels: every group and every limit once."""
    found: dict[str, Any] = {}
    for axes in grid.flat:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend([*found.values()], [*found], loc="outside lower center", ncols=4)


def make_figure(
    matplotlib: Any, rows: int, columns: int, size: tuple[float, float]
) -> tuple[Any, np.ndarray]:
    """A figure without a window, and its grid of axes, rows by columns."""
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _count(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def save_figures(found: Results, directory: Path, suffix: str = ".png") -> list[Path]:
    """Every figure of every environment as a file; the paths written."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for env_id, groups in found.worlds().items():
        figures = {
            "curves": plot_learning_curves(groups, env_id),
            "multipliers": plot_multipliers(groups, env_id),
        }
        for name in dict.fromkeys(n for group in groups for n in group.cost_names):
            key = f"{safe_name(cost_column(name))}-distribution"
            figures[key] = plot_cost_distributions(groups, name, env_id)
        for name, figure in figures.items():
            path = directory / f"{safe_name(env_id)}-{name}{suffix}"
            figure.savefig(path)
            written.append(path)
    return written
