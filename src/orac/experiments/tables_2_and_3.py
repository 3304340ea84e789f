"""Tables 2 and 3 and Figure 2: reward and cost in Safety-Gymnasium and CityLearn.

Table 2 shows the last evaluations in PointGoal1 and PointButton1, with the settings of the
paper's Appendix A. Figure 2 shows all evaluations of the same runs. Table 3 shows the last
evaluations in CityLearn. `ablations` uses the cases, tables and curves of Table 2.

The studies `table2-fast` and `table3-fast` have the same tables for runs of 500,000 steps with
the networks and the learner of the fast presets. The agents of the paper use the paper's
constraint there, and an additional row has ORAC with the fast preset itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from orac.config import overrides, presets
from orac.experiments.paper_numbers import AGENTS, COST, REWARD, Column, paper_table
from orac.experiments.study import Case, CaseResults, Study, steps_between_evaluations
from orac.reports.charts import LineChart, learning_charts
from orac.reports.matplotlib_figures import BAND_NOTES, draw_line_charts
from orac.reports.tables import Table

ENVIRONMENTS = {
    "PointGoal1": "orac/SafetyPointGoal1-v0",
    "PointButton1": "orac/SafetyPointButton1-v0",
}
TITLE = "Reward and cost in Safety-Gymnasium"
COLUMNS = (
    REWARD,
    COST,
    Column("cost/cvar_0.5", "CVaR 0.5", 0.5),
    Column("cost/cvar_0.25", "CVaR 0.25", 0.25),
)
"""The columns of Table 2, in the order of the paper."""
TAILS = tuple(column.tail for column in COLUMNS if column.tail is not None)
ROWS = (
    ("sac-lag", 0.5, "sac_lag"),
    ("wcsac", 0.5, "wcsac_0.5"),
    ("orac", 0.5, "orac_0.5"),
    ("wcsac", 0.25, "wcsac_0.25"),
    ("orac", 0.25, "orac_0.25"),
)
"""Rows of Table 2 in an environment: agent, tail, and name in paper_results.json."""


def agent_with_tail(algo: str, tail: float) -> str:
    """Return the agent with its tail, such as ORAC-0.5, as the paper writes it.

    The name of SAC-Lagrangian has no tail, because this agent constrains the mean.
    """
    return AGENTS[algo] if algo == "sac-lag" else f"{AGENTS[algo]}-{tail:g}"


def make_case(
    env: str,
    algo: str,
    tail: float,
    key: Sequence[str],
    seeds: int = 10,
    change: tuple[str, float] | None = None,
) -> Case:
    """Return the case of one agent in one environment.

    `change` is a config field and its value in this case. If the preset has another value, the
    case has four seeds, as in the paper. If it has the same value, the case is one of Table 2
    and shares its runs.
    """
    config = presets.preset(algo, ENVIRONMENTS[env])
    label, name = f"{agent_with_tail(algo, tail)}, {env}", f"tail-{tail:g}"
    assignments = [f"constraints.0.tail={tail}"]
    if change is not None and overrides.flat_config(config)[change[0]] != change[1]:
        field, value = change
        short, seeds = field.split(".")[-1], 4
        assignments.append(f"{field}={value}")
        label, name = f"{label}, {short} {value:g}", f"{name}-{short}={value:g}"
    config = overrides.override(config, assignments)
    return Case(label, name, config, seeds, tuple(key))


def agent_name(result: CaseResults) -> str:
    """Return the agent of a result with its tail (see `agent_with_tail`)."""
    return result.case.label.split(", ")[0]


def by_env(results: Sequence[CaseResults]) -> dict[str, list[CaseResults]]:
    """Return the results, grouped by the short name of their environment."""
    names = {env_id: name for name, env_id in ENVIRONMENTS.items()}
    grouped: dict[str, list[CaseResults]] = {}
    for result in results:
        grouped.setdefault(names[result.case.config.env.id], []).append(result)
    return grouped


def make_env_tables(title: str, results: Sequence[CaseResults]) -> list[Table]:
    """Return one table for each environment, with a row for each agent."""
    return [
        paper_table(f"{title}: {env}", [(agent_name(r), r) for r in members], COLUMNS)
        for env, members in by_env(results).items()
    ]


def curves_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw reward, mean cost and CVaR at every tail, with a row for each environment."""
    rows = []
    for env, members in by_env(results).items():
        tails = {tail for r in members if (tail := constrained_tail(r)) is not None}
        rows.append(_charts(env, members, sorted(tails, reverse=True), band))
    return draw_line_charts(rows, note=BAND_NOTES[band])


def figure2(results: Sequence[CaseResults], band: str) -> Any:
    """Draw the curves with one row per environment and tail, as in the paper's Figure 2.

    SAC-Lagrangian is in every row. The option `--band half-std` draws the paper's bands of
    half a standard deviation on each side.
    """
    rows = []
    for env, members in by_env(results).items():
        for tail in (0.5, 0.25):
            shown = [r for r in members if constrained_tail(r) in (None, tail)]
            if shown:
                rows.append(_charts(f"{env}, tail {tail:g}", shown, [tail], band))
    return draw_line_charts(rows, note=BAND_NOTES[band])


def constrained_tail(result: CaseResults) -> float | None:
    """Return the tail of the constrained CVaR; None for SAC-Lagrangian."""
    config = result.case.config
    return None if config.algo == "sac-lag" else config.constraints[0].tail


def _charts(
    heading: str, results: Sequence[CaseResults], tails: Sequence[float], band: str
) -> list[LineChart]:
    """Return the charts of one row. The heading names the environment, so labels do not."""
    lines = []
    for result in results:
        agent, _, *changes = result.case.label.split(", ")
        lines.append(replace(result.group, label=", ".join([agent, *changes])))
    return learning_charts(lines, heading, tails, band)


TABLE2 = Study(
    name="table2",
    title=TITLE,
    cases=tuple(
        make_case(env, algo, tail, ("table2_safety_gym", env, row))
        for env in ENVIRONMENTS
        for algo, tail, row in ROWS
    ),
    make_tables=partial(make_env_tables, TITLE),
    make_figure=curves_figure,
    evaluate_every=steps_between_evaluations,
    tails=TAILS,
)
FIGURE2 = replace(TABLE2, name="figure2", make_figure=figure2)

CITYLEARN_ROWS = (
    ("sac-lag", "SAC-Lag", "sac_lag"),
    ("wcsac", "WCSAC-0.05", "wcsac_0.05"),
    ("orac", "ORAC-0.05", "orac_0.05"),
)
"""Rows of Table 3: agent, name in the table, and name in paper_results.json."""
CITYLEARN_COLUMNS = (
    REWARD,
    COST,
    Column("cost/cvar_0.05", "CVaR 0.05", 0.05),
    Column("env/unserved_energy", "unserved energy in outages"),
    Column("env/outage_violations", "violations in outages"),
)


CITYLEARN_TITLE = "Reward, cost and outages in CityLearn"
FAST_TITLE = "{}, with the sizes of the fast presets"


def citylearn_tables(title: str, results: Sequence[CaseResults]) -> list[Table]:
    rows = [(result.case.label, result) for result in results]
    return [paper_table(title, rows, CITYLEARN_COLUMNS)]


def citylearn_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw reward, mean cost and CVaR of the evaluations."""
    groups = [result.group for result in results]
    charts = learning_charts(groups, "CityLearn", band=band)
    return draw_line_charts([charts], note=BAND_NOTES[band])


TABLE3 = Study(
    name="table3",
    title=CITYLEARN_TITLE,
    cases=tuple(
        Case(
            label,
            "default",
            presets.with_algorithm(presets.citylearn(), algo),
            key=("table3_citylearn", row),
        )
        for algo, label, row in CITYLEARN_ROWS
    ),
    make_tables=partial(citylearn_tables, CITYLEARN_TITLE),
    make_figure=citylearn_figure,
    evaluate_every=steps_between_evaluations,
    tails=(0.05,),
)

FAST_STEPS = 500_000
PAPERS_CONSTRAINT = {
    "agent.multiplier.follows": "critics",
    "agent.penalty_tail": "null",
}
"""Changes of a fast preset with which the agents have the paper's constraint: the mean risk that
the critics predict."""
FAST_CITYLEARN = {
    "agent.multiplier.initial": 0,
    "agent.kappa": 1,
    "agent.reward_scale": 1,
    "agent.initial_temperature": 0.2,
}
FAST_SAFETY_GYM = {"agent.multiplier.initial": 1, "agent.kappa": 0.125}
"""Changes in addition to `PAPERS_CONSTRAINT`. The initial multiplier is the paper's. The other
fields have the values of the fast preset in other units, because costs are divided by the
limit (50 in CityLearn and 1.25 in Safety-Gymnasium, as a discounted sum) only if the
multiplier follows episodes."""


def make_fast_case(
    label: str,
    env_id: str,
    algo: str,
    tail: float,
    key: tuple[str, ...],
    seeds: int,
    changes: dict[str, Any] | None,
) -> Case:
    """Return the case of an agent with the networks and the learner of the fast preset.

    `changes` is None if the multiplier follows the measured risk of episodes, as in the fast
    preset. Otherwise it has the environment's changes in addition to `PAPERS_CONSTRAINT`.
    """
    assignments = {
        "training.total_steps": FAST_STEPS,
        "constraints.0.tail": tail,
        **({} if changes is None else PAPERS_CONSTRAINT | changes),
    }
    name = f"fast-tail-{tail:g}{'-measured' if changes is None else ''}"
    config = overrides.override(
        presets.preset(algo, env_id, "fast"),
        [f"{field}={value}" for field, value in assignments.items()],
    )
    return Case(label, name, config, seeds, key)


def fast_safety_cases(env: str, tails: Sequence[float], seeds: int) -> list[Case]:
    """Return the cases of `table2-fast` in one environment."""
    env_id, cases = ENVIRONMENTS[env], []
    for algo, tail, row in ROWS:
        if tail not in tails:
            continue
        key = ("table2_safety_gym", env, row)
        agent = agent_with_tail(algo, tail)
        arguments = (env_id, algo, tail, key, seeds)
        cases.append(make_fast_case(f"{agent}, {env}", *arguments, FAST_SAFETY_GYM))
        if algo == "orac":
            label = f"{agent} by measured risk, {env}"
            cases.append(make_fast_case(label, *arguments, None))
    return cases


TABLE2_FAST = replace(
    TABLE2,
    name="table2-fast",
    title=FAST_TITLE.format(TITLE),
    cases=(
        *fast_safety_cases("PointGoal1", (0.5, 0.25), 5),
        *fast_safety_cases("PointButton1", (0.5,), 3),
    ),
    make_tables=partial(make_env_tables, FAST_TITLE.format(TITLE)),
    make_figure=figure2,
    # The fast preset measures risk in its evaluations, so their interval is not changed.
    evaluate_every=None,
)


TABLE3_FAST = replace(
    TABLE3,
    name="table3-fast",
    title=FAST_TITLE.format(CITYLEARN_TITLE),
    cases=tuple(
        make_fast_case(
            label,
            "orac/CityLearn-v0",
            algo,
            0.05,
            ("table3_citylearn", row),
            5,
            changes,
        )
        for algo, label, row, changes in (
            *((*entry, FAST_CITYLEARN) for entry in CITYLEARN_ROWS),
            ("orac", "ORAC-0.05 by measured risk", "orac_0.05", None),
        )
    ),
    make_tables=partial(citylearn_tables, FAST_TITLE.format(CITYLEARN_TITLE)),
    evaluate_every=None,
)
