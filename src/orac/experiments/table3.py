"""Table 3: reward, discomfort and outages in CityLearn after training."""

from collections.abc import Sequence
from typing import Any

from orac.config import presets
from orac.experiments.paper_numbers import COST, REWARD, Column, compare
from orac.experiments.study import Case, CaseResults, Study, every_50th
from orac.reports.charts import learning_charts
from orac.reports.figures import BAND_NOTES, draw_line_charts
from orac.reports.tables import Table

ROWS = (
    ("sac-lag", "SAC-Lag", "sac_lag"),
    ("wcsac", "WCSAC-0.05", "wcsac_0.05"),
    ("orac", "ORAC-0.05", "orac_0.05"),
)
"""Agent, its name in the table, and the name of the row in paper_results.json."""
COLUMNS = (
    REWARD,
    COST,
    Column("cost/cvar_0.05", "CVaR 0.05", 0.05),
    Column("env/unserved_energy", "unserved energy in outages"),
    Column("env/outage_violations", "violations in outages"),
)


def make_tables(results: Sequence[CaseResults]) -> list[Table]:
    rows = [(result.case.label, result) for result in results]
    return [compare(TABLE3.title, rows, COLUMNS)]


def make_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw reward, mean cost and CVaR of the evaluations."""
    groups = [result.group for result in results]
    charts = learning_charts(groups, "CityLearn", band=band)
    return draw_line_charts([charts], note=BAND_NOTES[band])


TABLE3 = Study(
    name="table3",
    title="Reward, cost and outages in CityLearn",
    cases=tuple(
        Case(
            label,
            "default",
            presets.with_algorithm(presets.citylearn(), algo),
            key=("table3_citylearn", row),
        )
        for algo, label, row in ROWS
    ),
    make_tables=make_tables,
    make_figure=make_figure,
    evaluate_every=every_50th,
)
