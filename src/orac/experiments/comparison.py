"""Tables that set the last evaluations of our runs beside the paper's numbers.

Ours are means over seeds with 95 % intervals; the paper's have the spread it prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.experiments import paper
from orac.experiments.study import Found, shortcomings
from orac.reports.html.tables import Table, cell, number
from orac.reports.seed_statistics import key_interval, seed_values


@dataclass(frozen=True)
class Column:
    """A number of the summary, its heading, and the tail of CVaR that it needs."""

    key: str
    heading: str
    tail: float | None = None


REWARD = Column("reward/mean", "reward")
COST = Column("cost/mean", "mean cost")
SAFETY = (
    REWARD,
    COST,
    Column("cost/cvar_0.5", "CVaR 0.5", 0.5),
    Column("cost/cvar_0.25", "CVaR 0.25", 0.25),
)
"""The paper's columns in Safety-Gymnasium, in its order."""


def compare(
    title: str,
    rows: Sequence[tuple[str, Found]],
    columns: Sequence[Column],
) -> Table:
    """One row for each named case; the numbers of a row are in the order of `columns`."""
    headings = [(column.heading, "paper") for column in columns]
    flat = [word for pair in headings for word in pair]
    everything = [found for _, found in rows]
    note = (
        f"{limit_words(everything)} Last evaluation of each seed: mean over seeds with "
        "its 95 % interval, beside the paper's mean ± spread. One seed has no interval."
    )
    notes = (budget_note(everything), note, *shortcomings(everything))
    body = tuple(_row(name, found, columns) for name, found in rows)
    return Table(title, ("agent", *flat, "seeds", "steps"), body, notes)


def limit_of(found: Found) -> float:
    """The limit that the runs really had, or will have."""
    config = found.runs[0].config if found.runs else found.case.config
    return config.constraints[0].limit


def limit_words(everything: Sequence[Found]) -> str:
    limits = sorted({limit_of(found) for found in everything})
    return f"Limit {' and '.join(f'{limit:g}' for limit in limits)}."


def _row(name: str, found: Found, columns: Sequence[Column]) -> tuple[str, ...]:
    tails = sorted(column.tail for column in columns if column.tail is not None)
    ours = seed_values(found.group, {"cost": tails}) if found.evaluated else {}
    printed = paper.look_up(found.case.key)
    cells = []
    for place, column in enumerate(columns):
        known = key_interval(ours, column.key, group=found.group) if ours else None
        cells.append(cell(known))
        cells.append(paper.spread_text(printed[place] if printed else None))
    seeds = f"{len(found.evaluated)} (paper {found.case.seeds})"
    return (name, *cells, seeds, _reached(found))


def _reached(found: Found) -> str:
    """Steps at the last evaluations: one number, or the range of an unfinished study."""
    steps = [float(run.evaluated_at[-1]) for run in found.evaluated]
    if not steps:
        return "–"
    low, high = number(min(steps)), number(max(steps))
    return low if low == high else f"{low} to {high}"


SAID_OTHERWISE = (
    "seed",
    "training.total_steps",
    "training.num_envs",
    "training.gradient_steps",
    "evaluation.every",
    "evaluation.episodes",
)
"""Fields that `budget_note` has words for."""


def budget_note(everything: Sequence[Found]) -> str:
    """What our runs had, and every field that is not the preset's."""
    runs = [run for found in everything for run in found.runs]
    known = dict.fromkeys(_budget(run.config) for run in runs)
    words = f"Ours: {' and '.join(known) or 'nothing was run yet'}."
    changes = dict.fromkeys(
        f"{name} {ours} ({theirs})"
        for found in everything
        for run in found.runs[:1]
        for name, (ours, theirs) in _changes(found, run.config).items()
    )
    return f"{words} Not the preset's: {', '.join(changes)}." if changes else words


def _changes(found: Found, config: Config) -> dict[str, tuple[Any, Any]]:
    changes = config_text.difference(config, found.case.preset or found.case.config)
    return {k: pair for k, pair in changes.items() if k not in SAID_OTHERWISE}


def _budget(config: Config) -> str:
    training, evaluation = config.training, config.evaluation
    envs = "environment" if training.num_envs == 1 else "environments"
    steps = "gradient step" if training.gradient_steps == 1 else "gradient steps"
    return (
        f"{training.total_steps:,} steps, {training.num_envs} {envs}, "
        f"{training.gradient_steps:g} {steps} per step, an evaluation of "
        f"{evaluation.episodes} episodes every {evaluation.every:,} steps"
    )
