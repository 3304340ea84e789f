"""Appendix, IQN against the linear approximation: WCSAC in both risk forms at tail 0.5.

The appendix does not say how many critics the implicit form had there; both forms have
Safety-Gymnasium's settings, five cost critics included.
"""

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

TITLE = "WCSAC with implicit quantiles and with the linear form"
TAIL, SEEDS = 0.5, 5


def make_cases() -> tuple[Case, ...]:
    return tuple(
        make_case(
            world,
            algo,
            TAIL,
            ("appendix_iqn_vs_linear", world, algo.replace("-", "_")),
            SEEDS,
        )
        for world in ENVIRONMENTS
        for algo in ("wcsac-iqn", "wcsac-lin")
    )


def make_tables(everything: Sequence[Found]) -> list[Table]:
    return world_tables(everything, TITLE)


STUDY = Study(
    name="iqn-vs-linear",
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    make_figure=curves_figure,
    evaluate_every=evaluate_every,
)
