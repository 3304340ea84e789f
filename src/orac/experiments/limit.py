"""The study `limit`: do runs with fresh seeds deliver policies that are within their limits?

Every run trains with the preset `fast` (with `general` for the pendulum), delivers a policy and
certifies it on fresh episodes. The presets were tuned with other seeds. Most cases have a
companion, which is a second case in which the multiplier is adjusted according to the risk that the
critics predict, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from orac.config import overrides, presets
from orac.config.schema import Config, Constraint
from orac.envs.user_code import allow_module
from orac.experiments.study import Case, CaseResults, Study, missing_notes
from orac.reports.tables import Table

FIRST_SEED = 2000
"""First seed of the cases that are not in `SECOND_BLOCK`. All settings were tuned with other
seeds."""
SECOND_BLOCK = {"CityLearn": 2010}
"""First seed of the cases that were run again after a change of their preset. Their first runs,
with seeds from 2000 on, are in results/limit/first_block.csv."""
COMPANION_SEEDS = 3
"""Number of seeds of each companion."""
SPEED = 6.0
"""Angular speed in rad/s above which a step of the pendulum costs 1."""


def too_fast(observation, action, next_observation, info):
    """Return 1 if the pendulum moves faster than the speed limit after this step, else 0."""
    return float(abs(next_observation[2]) > SPEED)


def pendulum() -> Config:
    """Return the general preset for Gymnasium's pendulum, with a limit on fast steps."""
    config = presets.preset("orac", "Pendulum-v1")
    return replace(
        config,
        env=replace(config.env, cost_fn=f"{__name__}:too_fast"),
        constraints=(Constraint("cost", limit=2.0, tail=0.25),),
    )


def fast(env_id: str, *assignments: str, algo: str = "orac") -> Config:
    """Return the fast preset of an environment with some fields changed."""
    return overrides.override(presets.preset(algo, env_id, "fast"), [*assignments])


# The configs of the pendulum name the cost function above, so its module must be allowed.
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
"""The cases: label, directory, config, number of seeds, and whether there is a companion."""


def make_cases() -> tuple[Case, ...]:
    """Return the cases and their companions."""
    cases = []
    for label, name, config, seeds, has_companion in ROWS:
        # An episode of the pendulum has 200 steps, and each costs at most 1. The other
        # environments declare a bound themselves.
        bound = 200.0 if config.env.cost_fn else None
        first = SECOND_BLOCK.get(label, FIRST_SEED)
        fresh = {"first_seed": first, "cost_bound": bound}
        cases.append(Case(label, name, config, seeds, **fresh))
        if has_companion:
            critics = overrides.override(
                config, ["agent.multiplier.follows=critics", "agent.penalty_tail=null"]
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


TITLE = "Are the trained policies within their limits?"


def make_tables(results: Sequence[CaseResults]) -> list[Table]:
    """Return one table: the number of certified runs, and the rewards of their policies.

    Cases without a finished run have no row, but a note names them.
    """
    columns = (
        *("environment", "limit", "certified", "median reward", "worst reward"),
        *("median bound", "steps"),
    )
    notes = [
        "The column 'certified' counts the runs whose delivered policy was shown, on fresh "
        "episodes, to be within the limit with 95 % confidence. Rewards and bounds were "
        "computed from these episodes. Runs for which no fresh episodes were played count as "
        "not certified and are left out of the other columns. If a row has only such runs, "
        "these columns show –. The Lagrange multiplier, the weight of the cost in the actor's"
        " loss, is adjusted according to the measured risk of whole episodes, and a run "
        "delivers the best policy that it measured. In rows with 'multiplier follows "
        "critics', the multiplier is adjusted according to the risk that the critics predict,"
        " as in the paper, and a run delivers its last policy. The number after GuardedMaze "
        "is "
        f"the probability of the guard.{standing_note(results)}",
        *missing_notes(results),
    ]
    rows = tuple(_row(result) for result in results if result.finished)
    return [Table(TITLE, columns, rows, tuple(notes))]


def standing_note(results: Sequence[CaseResults]) -> str:
    """Return a sentence on certified policies that stand still in the maze.

    The text is empty if there are no such policies.
    """
    parts = []
    for result in results:
        certified = [run.row for run in result.finished if run.row.get("certified")]
        # This is the share of episodes that moved in their last step. An agent that stands
        # still pushes against a wall.
        moved = [row.get("env/moved") for row in certified]
        standing = [share for share in moved if share is not None and share < 0.5]
        if standing:
            counts = f"{len(standing)} of {len(certified)}"
            parts.append(f"{counts} in the row '{result.case.label}'")
    if not parts:
        return ""
    return (
        " Some certified policies stand still in the maze, which is safe but earns little: "
        f"{' and '.join(parts)}."
    )


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
    title=TITLE,
    cases=make_cases(),
    make_tables=make_tables,
    certifies=True,
)
