"""Table 2: reward, mean cost and CVaR in PointGoal1 and PointButton1 after training."""

from collections.abc import Sequence

from orac.experiments.safety_cases import (
    ENVIRONMENTS,
    curves_figure,
    evaluate_every,
    make_case,
    world_tables,
)
from orac.experiments.study import Case, Found, Study
from orac.reports.html.tables import Table

TITLE = "Reward and cost in Safety-Gymnasium"
ROWS = (
    ("sac-lag", 0.5, "sac_lag"),
    ("wcsac", 0.5, "wcsac_0.5"),
    ("orac", 0.5, "orac_0.5"),
    ("wcsac", 0.25, "wcsac_0.25"),
    ("orac", 0.25, "orac_0.25"),
)
"""Agent, tail, and the row's name among the paper's numbers."""


def make_cases() -> tuple[Case, ...]:
    return tuple(
        make_case(world, algo, tail, ("table2_safety_gym", world, row))
        for world in ENVIRONMENTS
        for algo, tail, row in ROWS
    )


def make_tables(everything: Sequence[Found]) -> list[Table]:
    return world_tables(everything, TITLE)


STUDY = Study(
    name="table2",
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    make_figure=curves_figure,
    evaluate_every=evaluate_every,
)
