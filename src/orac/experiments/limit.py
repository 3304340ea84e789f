"""The study `limit`: does the delivered policy keep its limit on fresh seeds?

Every case trains with the preset that users get, delivers a policy and certifies it on
fresh episodes. The seeds were not used to choose the presets. The companions train with
the same critics but let the multiplier follow the critics, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from orac.config import presets, serialization
from orac.config.schema import Config, Constraint
from orac.envs.gym_adapter.costs import allow_module
from orac.experiments.study import Case, CaseResults, Study, missing_notes
from orac.reports.tables import Table

FIRST_SEED = 2000
"""Seeds from here on were never used to choose a setting."""
COMPANION_SEEDS = 3
SPEED = 6.0
"""Angular speed in rad/s above which a step of the pendulum costs 1."""


def too_fast(observation, action, next_observation, info):
    """Return 1 if the pendulum moves faster than the speed limit after this step."""
    return float(abs(next_observation[2]) > SPEED)


def pendulum() -> Config:
    """Gymnasium's pendulum with a speed limit, in the general preset."""
    config = presets.preset("orac", "Pendulum-v1")
    return replace(
        config,
        env=replace(config.env, cost_fn=f"{__name__}:too_fast"),
        constraints=(Constraint("cost", limit=2.0, tail=0.25),),
    )


def fast(env_id: str, *assignments: str, algo: str = "orac") -> Config:
    """Return the fast preset of an environment with some fields changed."""
    return serialization.override(presets.preset(algo, env_id, "fast"), [*assignments])


# The cost function above is named in the configs of the pendulum.
allow_module(__name__)

MAZE, CITY = "orac/GuardedMaze-v0", "orac/CityLearn-v0"
GOAL, BUTTON = "orac/SafetyPointGoal1-v0", "orac/SafetyPointButton1-v0"
QUARTER = "constraints.0.tail=0.25"
ROWS: tuple[tuple[str, str, Config, int, bool], ...] = (
    ("GuardedMaze 0.15", "limit-guard-0.15", fast(MAZE), 10, True),
    (
        "GuardedMaze 0.10",
        "limit-guard-0.1",
        fast(MAZE, "env.params.guard_probability=0.1"),
        10,
        True,
    ),
    ("CityLearn", "limit", fast(CITY), 5, True),
    ("PointGoal1, tail 0.5", "limit-tail-0.5", fast(GOAL), 5, True),
    ("PointGoal1, tail 0.25", "limit-tail-0.25", fast(GOAL, QUARTER), 5, True),
    ("PointButton1", "limit-tail-0.5", fast(BUTTON), 5, False),
    ("PointButton1, WCSAC", "limit-tail-0.5", fast(BUTTON, algo="wcsac"), 5, False),
    ("Pendulum", "limit", pendulum(), 5, True),
)
"""Label, directory, config, number of seeds, and whether it has a companion."""


def make_cases() -> tuple[Case, ...]:
    """Return the cases and their companions."""
    cases = []
    for label, name, config, seeds, has_companion in ROWS:
        bound = 200.0 if config.env.cost_fn else None
        fresh = {"first_seed": FIRST_SEED, "cost_bound": bound}
        cases.append(Case(label, name, config, seeds, **fresh))
        if has_companion:
            critics = serialization.override(
                config, ["agent.multiplier.follows=critics"]
            )
            cases.append(
                Case(
                    f"{label}, multiplier follows critics",
                    f"{name}-critics",
                    critics,
                    COMPANION_SEEDS,
                    **fresh,
                )
            )
    return tuple(cases)


def make_tables(results: Sequence[CaseResults]) -> list[Table]:
    """Return one table: how many runs are certified, and what their policies earn.

    Cases without a finished run are only named in a note.
    """
    columns = (
        *("environment", "limit", "certified", "median reward", "worst reward"),
        *("median bound", "steps"),
    )
    notes = [
        "Certified counts the runs whose delivered policy was shown, on fresh episodes, to "
        "be within the limit with 95 % confidence. Rewards and bounds are those of the "
        "certificates' episodes. The multiplier follows measured episodes; for comparison, "
        "some rows let it follow the critics' estimate, as the paper does.",
        *missing_notes(results),
    ]
    rows = tuple(_row(result) for result in results if result.finished)
    return [Table("The limit on fresh seeds", columns, rows, tuple(notes))]


def _row(result: CaseResults) -> tuple[str, ...]:
    constraint = result.config.constraints[0]
    rows = [run.row for run in result.finished if run.row.get("certified") is not None]
    rewards = [x for row in rows if (x := row.get("certificate/reward")) is not None]
    bounds = [x for row in rows if (x := row.get("certificate/bound")) is not None]
    certified = sum(row["certified"] for row in rows)
    return (
        result.case.label,
        f"{constraint.limit:g} on {constraint.measure}",
        f"{certified} of {len(rows)}",
        f"{median(rewards):.2f}" if rewards else "–",
        f"{min(rewards):.2f}" if rewards else "–",
        f"{median(bounds):.2f}" if bounds else "–",
        f"{result.config.training.total_steps:,}",
    )


LIMIT = Study(
    name="limit",
    title="The limit on fresh seeds",
    cases=make_cases(),
    make_tables=make_tables,
    certifies=True,
)
