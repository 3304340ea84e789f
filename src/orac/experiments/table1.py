"""Table 1: how often, and how soon, agents find the maze's long path.

Three agents at two probabilities of a guard. Success is `convergence.convergence_of`;
only finished runs count, as one that is under way may yet converge.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from orac.config import presets
from orac.config import serialization as config_text
from orac.evaluation.intervals import Interval, mean_interval, share_interval
from orac.evaluation.result import cost_column
from orac.experiments import paper
from orac.experiments.comparison import budget_note
from orac.experiments.convergence import (
    IN_A_ROW,
    LONG_SHARE,
    convergence_of,
    long_path_curve,
    steps_to_converge,
)
from orac.experiments.curves import Panel, draw
from orac.experiments.study import Case, Found, Study, shortcomings
from orac.reports.html.tables import Table, cell
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import evaluation_curve

AGENTS = {"sac-lag": "SAC-Lag", "wcsac": "WCSAC", "orac": "ORAC"}
PROBABILITIES = (0.15, 0.1)
TITLE = "Convergence to the long path in GuardedMaze"


def make_cases() -> tuple[Case, ...]:
    """Appendix A's settings for each agent and probability."""
    return tuple(
        _case(algo, agent, probability)
        for probability in PROBABILITIES
        for algo, agent in AGENTS.items()
    )


def _case(algo: str, agent: str, probability: float) -> Case:
    config = presets.with_algorithm(presets.guarded_maze(), algo)
    config = config_text.override(
        config, [f"env.params.guard_probability={probability}"]
    )
    label = f"{agent}, guard {probability:g}"
    return Case(label, f"guard-{probability:g}", config)


def make_tables(everything: Sequence[Found]) -> list[Table]:
    """Ours beside the paper's; Clopper-Pearson for success, seeds as the unit."""
    rows = tuple(_row(found) for found in everything)
    columns = (
        *("agent", "guard", "success", "paper", "steps", "paper"),
        *("stays", "within limit", "seeds"),
    )
    note = (
        f"Success: {IN_A_ROW} evaluations in a row with at least {LONG_SHARE:.0%} of the "
        "episodes on the long path. Steps: where the first of them was, with a failed "
        "seed counted as the whole budget. Stays: of a seed that converged, the share of "
        "its later evaluations that still have it; the mean over such seeds. Within limit: "
        "seeds whose last evaluation has a risk of cost within the limit. Brackets: 95 % "
        "intervals over seeds (Clopper-Pearson; Student's t, widened by skew, cut at the "
        "budget). Only finished runs count."
    )
    budget = f"{budget_note(everything)} The paper: 500,000 steps, 10 seeds."
    notes = (budget, note, *_too_short(everything), *shortcomings(everything))
    return [Table(TITLE, columns, rows, notes)]


def _too_short(everything: Sequence[Found]) -> list[str]:
    """A sentence where no run can converge, whatever it learns."""
    most = max(
        (len(long_path_curve(r)[0]) for f in everything for r in f.finished), default=0
    )
    if not 0 < most < IN_A_ROW:
        return []
    return [
        f"No run can have converged, which takes {IN_A_ROW} evaluations: it has {most}."
    ]


def _row(found: Found) -> tuple[str, ...]:
    params = dict(found.case.config.env.params)
    probability = params["guard_probability"]
    agent = AGENTS[found.case.config.algo]
    printed = paper_row(found.case.config.algo, probability)
    runs = found.finished
    cells = ("–", "–", "–", "–")
    if runs:
        reached = [convergence_of(run) for run in runs]
        count = sum(x.step is not None for x in reached)
        later = [x.later_share for x in reached if x.later_share is not None]
        stays = f"{np.mean(later):.0%}" if later else "–"
        success = percent(share_interval(count, len(runs)))
        cells = (success, _steps_cell(runs), stays, _within_cell(found))
    steps = printed["steps"]
    return (
        agent,
        f"{probability:g}",
        cells[0],
        f"{printed['success']:.0%}",
        cells[1],
        "–" if steps is None else f"{steps:,}",
        *cells[2:],
        f"{len(runs)} (paper {found.case.seeds})",
    )


def paper_row(algo: str, probability: float) -> dict[str, Any]:
    rows = paper.look_up(("table1_guarded_maze", "rows"))
    agent = algo.replace("-", "_")
    return next(
        row
        for row in rows
        if row["agent"] == agent and row["guard_probability"] == probability
    )


def percent(share: Interval) -> str:
    """A share with its interval, in whole per cents."""
    return f"{share.estimate:.0%} [{share.low:.0%}, {share.high:.0%}]"


def _within_cell(found: Found) -> str:
    """How many finished seeds end with the risk that they were to keep."""
    kept = 0
    for run in found.finished:
        constraint = run.config.constraints[0]
        column = cost_column(constraint.name)
        risks = evaluation_curve(run, column, constraint.measure)[1]
        kept += bool(risks[-1] <= constraint.limit)
    return f"{kept} of {len(found.finished)}"


def _steps_cell(runs: Sequence[Run]) -> str:
    budget = runs[0].config.training.total_steps
    found = mean_interval([steps_to_converge(run) for run in runs])
    if found.low is not None and found.high is not None:
        low, high = max(0.0, found.low), min(float(budget), found.high)
        found = replace(found, low=low, high=high)
    return cell(found)


def make_figure(everything: Sequence[Found], band: str) -> Any:
    """Share of episodes on the long path in evaluations, a panel for each probability."""
    rows = []
    for probability in PROBABILITIES:
        lines = [
            (AGENTS[found.case.config.algo], found)
            for found in everything
            if dict(found.case.config.env.params)["guard_probability"] == probability
        ]
        title = f"Share on the long path, guard {probability:g}"
        if lines:
            rows.append(Panel(title, lines, long_path_curve, is_share=True))
    return draw([rows], band)


def run_columns(run: Run) -> dict[str, Any]:
    """What runs.csv says of each run."""
    reached = convergence_of(run)
    return {"converged_at": reached.step, "later_share": reached.later_share}


STUDY = Study(
    name="table1",
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    make_figure=make_figure,
    evaluate_every=lambda steps: 10_000,
    run_columns=run_columns,
)
