"""Table 3: reward, discomfort and outages in CityLearn after training."""

from collections.abc import Sequence
from typing import Any

from orac.config import presets
from orac.experiments.comparison import COST, REWARD, Column, compare, limit_of
from orac.experiments.curves import Panel, draw
from orac.experiments.safety_cases import evaluate_every
from orac.experiments.study import Case, Found, Study
from orac.reports.html.tables import Table
from orac.reports.seed_statistics import cvar_curve, evaluation_curve

TITLE = "Reward, cost and outages in CityLearn"
TAIL = 0.05
ROWS = (
    ("sac-lag", "SAC-Lag", "sac_lag"),
    ("wcsac", "WCSAC-0.05", "wcsac_0.05"),
    ("orac", "ORAC-0.05", "orac_0.05"),
)
"""Agent, its name in the table, and the row's name among the paper's numbers."""
COLUMNS = (
    REWARD,
    COST,
    Column("cost/cvar_0.05", "CVaR 0.05", TAIL),
    Column("env/unserved_energy", "unserved energy in outages"),
    Column("env/outage_violations", "violations in outages"),
)


def make_cases() -> tuple[Case, ...]:
    config = presets.citylearn()
    return tuple(
        Case(
            label,
            "default",
            presets.with_algorithm(config, algo),
            key=("table3_citylearn", row),
        )
        for algo, label, row in ROWS
    )


def make_tables(everything: Sequence[Found]) -> list[Table]:
    rows = [(found.case.label, found) for found in everything]
    return [compare(TITLE, rows, COLUMNS)]


def make_figure(everything: Sequence[Found], band: str) -> Any:
    """Reward, cost and its CVaR in evaluations."""
    lines = [(found.case.label, found) for found in everything]
    limit = limit_of(everything[0])
    panels = [
        Panel("CityLearn: reward", lines, lambda run: evaluation_curve(run, "reward")),
        Panel("mean cost", lines, lambda run: evaluation_curve(run, "cost"), limit),
        Panel(
            f"CVaR {TAIL:g} of cost",
            lines,
            lambda run: cvar_curve(run, "cost", TAIL),
            limit,
        ),
    ]
    return draw([panels], band)


STUDY = Study(
    name="table3",
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    make_figure=make_figure,
    evaluate_every=evaluate_every,
)
