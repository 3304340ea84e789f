"""What the appendix's two ablations of optimism have in common.

WCSAC and the main experiments' value are Table 2's runs, and shared with it where the
folder is shared; the paper has ten seeds of those and four of the others.
"""

from collections.abc import Sequence

from orac.experiments.comparison import SAFETY, compare
from orac.experiments.safety_cases import (
    agent_of,
    config_value,
    curves_figure,
    evaluate_every,
    make_case,
)
from orac.experiments.study import Found, Study
from orac.reports.html.tables import Table

WORLD, TAIL = "PointButton1", 0.5


def optimism_study(
    name: str, title: str, field: str, values: Sequence[float], key: str
) -> Study:
    """ORAC at each value of one field, below WCSAC, which has none."""
    cases = [make_case(WORLD, "wcsac", TAIL, (key, "wcsac"))]
    for value in values:
        case = make_case(WORLD, "orac", TAIL, (key, "orac", f"{value:g}"))
        if config_value(case.config, field) != value:
            place = (key, "orac", f"{value:g}")
            case = make_case(WORLD, "orac", TAIL, place, 4, (field, value))
        cases.append(case)
    word = field.split(".")[-1].replace("_", " ")

    def make_tables(everything: Sequence[Found]) -> list[Table]:
        rows = []
        for found in everything:
            has = found.case.config.agent.behaviour == "optimistic"
            told = f", {word} {config_value(found.case.config, field):g}" if has else ""
            rows.append((f"{agent_of(found)}{told}", found))
        return [compare(title, rows, SAFETY)]

    return Study(
        name=name,
        title=title,
        cases=tuple(cases),
        make_tables=make_tables,
        make_figure=curves_figure,
        evaluate_every=evaluate_every,
    )
