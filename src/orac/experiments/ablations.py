"""The studies of the paper's appendix, all in Safety-Gymnasium.

An ablation varies one config field in PointButton1. A case in which this field has the value
of Table 2 is also a case of Table 2, and the two studies share its runs if they have the same
`--out`. The study `iqn-vs-linear` trains WCSAC with the implicit and the dual (linear)
form of the cost critics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from orac.config.overrides import flat_config
from orac.experiments.paper_numbers import paper_table
from orac.experiments.study import Case, CaseResults, Study, steps_between_evaluations
from orac.experiments.tables_2_and_3 import (
    COLUMNS,
    ENVIRONMENTS,
    TAILS,
    agent_name,
    curves_figure,
    make_case,
    make_env_tables,
)
from orac.reports.tables import Table


@dataclass(frozen=True)
class Ablation:
    """A config field, its values in the paper, and the agents that are trained with them."""

    name: str
    title: str
    field: str
    values: tuple[float, ...]
    row_name: str
    """Format string that turns a value into a part of a row's name."""
    key: str
    """Name of the study in paper_results.json."""
    agents: tuple[str, ...] = ("orac",)
    """Agents to train with each value. If WCSAC is not one of them, it is trained with its
    preset and is the first row of the table."""
    tails: tuple[float, ...] = (0.5,)

    def make_cases(self) -> tuple[Case, ...]:
        cases = []
        if "wcsac" not in self.agents:
            cases += [
                make_case("PointButton1", "wcsac", tail, (self.key, "wcsac"))
                for tail in self.tails
            ]
        for tail in self.tails:
            folder = [f"tail_{tail:g}"] if len(self.tails) > 1 else []
            for value in self.values:
                for algo in self.agents:
                    key = (self.key, *folder, algo, f"{value:g}")
                    change = self.field, value
                    cases.append(
                        make_case("PointButton1", algo, tail, key, change=change)
                    )
        return tuple(cases)

    def make_tables(self, results: Sequence[CaseResults]) -> list[Table]:
        """Return one table for each tail."""
        rows: dict[float, list[tuple[str, CaseResults]]] = {}
        for result in results:
            config, name = result.case.config, agent_name(result)
            if config.algo in self.agents:
                value = flat_config(config)[self.field]
                name = f"{name}, {self.row_name.format(value)}"
            rows.setdefault(config.constraints[0].tail, []).append((name, result))
        return [
            paper_table(
                f"{self.title}, tail {tail:g}" if len(self.tails) > 1 else self.title,
                members,
                COLUMNS,
            )
            for tail, members in rows.items()
        ]

    def make_study(self) -> Study:
        return Study(
            name=self.name,
            title=self.title,
            cases=self.make_cases(),
            make_tables=self.make_tables,
            make_figure=curves_figure,
            evaluate_every=steps_between_evaluations,
            tails=TAILS,
        )


COST_OPTIMISM = Ablation(
    name="ablation-cost-optimism",
    title="ORAC with more and less optimism about cost, PointButton1",
    field="agent.exploration.cost_optimism",
    values=(0.5, 1.0, 1.5),
    row_name="cost optimism {:g}",
    key="appendix_ablation_cost_optimism_PointButton1_0.5",
).make_study()
REWARD_OPTIMISM = Ablation(
    name="ablation-reward-optimism",
    title="ORAC with more and less optimism about reward, PointButton1",
    field="agent.exploration.reward_optimism",
    values=(2.0, 4.0, 5.0),
    row_name="reward optimism {:g}",
    key="appendix_ablation_reward_optimism_PointButton1_0.5",
).make_study()
ENSEMBLE = Ablation(
    name="ablation-ensemble",
    title="Sizes of the cost ensemble, PointButton1",
    field="agent.num_cost_critics",
    values=(2, 3, 5, 8),
    row_name="{:g} critics",
    key="appendix_ablation_ensemble_PointButton1",
    agents=("wcsac", "orac"),
    tails=(0.5, 0.25),
).make_study()

# Choice: the appendix does not say how many cost critics the implicit form had. Here, both
# forms have the settings of Table 2, with five cost critics.
IQN_VS_LINEAR_TITLE = "WCSAC with implicit quantiles and with the linear form"
IQN_VS_LINEAR = Study(
    name="iqn-vs-linear",
    title=IQN_VS_LINEAR_TITLE,
    cases=tuple(
        make_case(
            env,
            algo,
            tail=0.5,
            key=("appendix_iqn_vs_linear", env, algo.replace("-", "_")),
            seeds=5,
        )
        for env in ENVIRONMENTS
        for algo in ("wcsac-iqn", "wcsac-lin")
    ),
    make_tables=partial(make_env_tables, IQN_VS_LINEAR_TITLE),
    make_figure=curves_figure,
    evaluate_every=steps_between_evaluations,
    tails=TAILS,
)
