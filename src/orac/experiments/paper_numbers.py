"""The paper's numbers, and tables that compare our results with them.

`paper_results.json` contains the numbers in the tables of "Optimistic Exploration for
Risk-Averse Constrained Reinforcement Learning": means, and spreads, which the paper prints
after the sign ±. Our numbers are means over seeds of the last evaluations, with 95 %
intervals.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from orac.config import overrides
from orac.config.schema import Config
from orac.experiments.study import CaseResults, missing_notes
from orac.reports.report_metrics import seed_mean, seed_values
from orac.reports.tables import Table, cell, span

AGENTS = {
    "sac-lag": "SAC-Lag",
    "wcsac": "WCSAC",
    "orac": "ORAC",
    "wcsac-iqn": "WCSAC-IQN",
    "wcsac-lin": "WCSAC-Lin",
}
"""The paper's names of the agents."""


@cache
def _read_file() -> dict[str, Any]:
    """Return the content of paper_results.json."""
    file = resources.files("orac.experiments") / "paper_results.json"
    return json.loads(file.read_text(encoding="utf-8"))


def paper_entry(key: Sequence[str]) -> Any:
    """Return the entry of paper_results.json at a path of keys; None if there is none."""
    entry: Any = _read_file()
    for name in key:
        if not isinstance(entry, dict) or name not in entry:
            return None
        entry = entry[name]
    return entry


def spread_text(pair: Sequence[float] | None) -> str:
    """Return a mean and its spread as the paper prints them."""
    return "–" if pair is None else f"{pair[0]:g} ± {pair[1]:g}"


@dataclass(frozen=True)
class Column:
    """Column of a table."""

    key: str
    """Key of its numbers in the summary of an evaluation."""
    heading: str
    tail: float | None = None
    """Tail of the CVaR, if the column shows one."""


REWARD = Column("reward/mean", "reward")
COST = Column("cost/mean", "mean cost")


def paper_table(
    title: str, rows: Sequence[tuple[str, CaseResults]], columns: Sequence[Column]
) -> Table:
    """Return a table of our numbers with the paper's numbers next to them.

    `rows` has the results of each case and the name of its row. In paper_results.json, the
    numbers of a case must be in the order of `columns`.
    """
    headings = [text for column in columns for text in (column.heading, "paper")]
    shown = [result for _, result in rows]
    limits = sorted({result.config.constraints[0].limit for result in shown})
    note = (
        f"Limit {' and '.join(f'{limit:g}' for limit in limits)}. Each cell is the mean "
        "over seeds of their last evaluations with its 95 % interval, followed by the "
        "paper's mean ± spread. One seed has no interval."
    )
    notes = (budget_note(shown), note, *missing_notes(shown))
    body = tuple(_row(name, result, columns) for name, result in rows)
    return Table(title, ("agent", *headings, "seeds", "steps"), body, notes)


def _row(name: str, result: CaseResults, columns: Sequence[Column]) -> tuple[str, ...]:
    tails = sorted(column.tail for column in columns if column.tail is not None)
    values = seed_values(result.group, {"cost": tails}) if result.evaluated else {}
    printed = paper_entry(result.case.key)
    cells = []
    for i, column in enumerate(columns):
        ours = seed_mean(values, column.key, result.group)
        cells += [cell(ours), spread_text(printed[i] if printed else None)]
    seeds = f"{len(result.evaluated)} (paper {result.case.seeds})"
    # In an unfinished study, the last evaluations may be at different steps.
    steps = span([run.evaluation_steps[-1] for run in result.evaluated])
    return (name, *cells, seeds, steps)


def budget_note(results: Sequence[CaseResults]) -> str:
    """Return a note on the training budget of our runs, and on changes from the preset."""
    runs = [run for result in results for run in result.runs]
    budgets = dict.fromkeys(_budget(run.config) for run in runs)
    note = f"Ours: {' and '.join(budgets) or 'nothing was run yet'}."
    changes = dict.fromkeys(
        f"{name} {ours} ({theirs})"
        for result in results
        if result.runs
        for name, (ours, theirs) in overrides.difference(
            result.config, result.case.preset or result.case.config
        ).items()
        if name not in BUDGET_FIELDS
    )
    return f"{note} Changed from the preset: {', '.join(changes)}." if changes else note


BUDGET_FIELDS = (
    "seed",
    "training.total_steps",
    "training.num_envs",
    "training.gradient_steps",
    "evaluation.every",
    "evaluation.episodes",
)
"""Fields that are not listed as changes: the seed, and the fields of the budget, which is
always stated."""


def _budget(config: Config) -> str:
    training, evaluation = config.training, config.evaluation
    envs = "environment" if training.num_envs == 1 else "environments"
    steps = "gradient step" if training.gradient_steps == 1 else "gradient steps"
    return (
        f"{training.total_steps:,} steps, {training.num_envs} {envs}, "
        f"{training.gradient_steps:g} {steps} per environment step, an evaluation of "
        f"{evaluation.episodes} episodes every {evaluation.every:,} steps"
    )
