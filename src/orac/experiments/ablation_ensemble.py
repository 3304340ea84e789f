"""Appendix, ablation of the cost ensemble's size: WCSAC and ORAC in PointButton1.

Five critics are the main experiments' (ten seeds in the paper), and shared with Table 2
where the folder is shared; the other sizes have four seeds.
"""

from collections.abc import Sequence

from orac.experiments.comparison import SAFETY, compare
from orac.experiments.safety_cases import (
    agent_of,
    curves_figure,
    evaluate_every,
    make_case,
)
from orac.experiments.study import Case, Found, Study
from orac.reports.html.tables import Table

TITLE = "Sizes of the cost ensemble, PointButton1"
KEY = "appendix_ablation_ensemble_PointButton1"
FIELD = "agent.num_cost_critics"
TAILS, SIZES, MAIN_SIZE = (0.5, 0.25), (2, 3, 5, 8), 5


def make_cases() -> tuple[Case, ...]:
    return tuple(
        make_case(
            "PointButton1",
            algo,
            tail,
            (KEY, f"tail_{tail:g}", algo, str(size)),
            10 if size == MAIN_SIZE else 4,
            (FIELD, size),
        )
        for tail in TAILS
        for size in SIZES
        for algo in ("wcsac", "orac")
    )


def make_tables(everything: Sequence[Found]) -> list[Table]:
    """One table for each tail."""
    tables = []
    for tail in TAILS:
        rows = [
            (f"{agent_of(f)}, {f.case.config.agent.num_cost_critics} critics", f)
            for f in everything
            if f.case.config.constraints[0].tail == tail
        ]
        if rows:
            tables.append(compare(f"{TITLE}, tail {tail:g}", rows, SAFETY))
    return tables


STUDY = Study(
    name="ablation-ensemble",
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    make_figure=curves_figure,
    evaluate_every=evaluate_every,
)
