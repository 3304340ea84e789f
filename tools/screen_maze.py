"""Which readings of the paper matter in the maze, in two stages of sixteen runs.

    python tools/screen_maze.py screen --out runs/screen --jobs 2        runs, then prints
    python tools/screen_maze.py readings --out runs/readings --render-only \
        --record results/maze_readings

Fractional factorial designs (Box, Hunter and Hunter 2005, chapter 6): every factor has one
of two levels in each run, and half of the runs have each. `screen` has seven factors, an
agent at a time, in a cheap regime; no main effect is confounded with another or with a pair
(resolution IV). `readings` has four and the agent as the fifth, with twice the gradient
steps; pairs are not confounded with one another either (resolution V).
Every run has a seed of its own. Within a stage the regime is the same for all.
"""

import argparse
import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.evaluation.intervals import difference_interval
from orac.experiments.convergence import convergence_of, long_path_curve
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import PlannedRun, run_all
from orac.reports.run_reader import read_run

LAST_EVALUATIONS = 10
QUANTILES = ("agent.num_quantiles=16", "agent.num_policy_quantiles=16")
OF_ORAC_ALONE = ("agent.exploration.shift_radius", "agent.exploration.decay")
AGENT = "algo"
"""The factor that is no field of the config but the preset itself."""


@dataclass(frozen=True)
class Stage:
    """A design: columns after the fourth are products of the first four."""

    first_seed: int
    regime: tuple[str, ...]
    factors: dict[str, tuple[Any, Any]]
    products: tuple[tuple[int, ...], ...]
    agents: tuple[str, ...] = ("each",)
    """Each runs the whole design, unless the agent is a factor of it."""

    def design(self) -> np.ndarray:
        """(run, factor) of -1 for what the library has, and +1 for the other level."""
        base = np.array(list(itertools.product((-1, 1), repeat=4)))
        others = [base[:, list(columns)].prod(axis=1) for columns in self.products]
        return np.column_stack([base, *others])

    def levels(self, row: int) -> dict[str, Any]:
        """The level of each factor in one run."""
        signs = self.design()[row]
        return {
            field: pair[int(sign > 0)]
            for (field, pair), sign in zip(self.factors.items(), signs, strict=True)
        }


STAGES = {
    "screen": Stage(
        first_seed=100,
        regime=(
            "training.total_steps=300000",
            "training.num_envs=16",
            "training.gradient_steps=0.0625",
            # With so few gradient steps, its rate keeps some of its pace per step.
            "agent.multiplier.learning_rate=0.004",
            *QUANTILES,
        ),
        factors={
            "agent.exploration.shift_radius": (4.0, 1.0),
            "agent.exploration.decay": (True, False),
            "env.params.step_scale": (1.0, 0.5),
            "env.params.action_noise": (0.2, 0.0),
            "agent.bootstrap_on_truncation": (True, False),
            "env.params.cost_mode": ("episode", "entry"),
            "agent.kappa": (1.0, 0.1),
        },
        products=((1, 2, 3), (0, 2, 3), (0, 1, 2)),
        agents=("orac", "wcsac"),
    ),
    "readings": Stage(
        first_seed=200,
        regime=(
            "training.total_steps=250000",
            "training.num_envs=8",
            "training.gradient_steps=0.125",
            # As in the screen, and so that 250,000 steps are enough.
            "agent.multiplier.learning_rate=0.004",
            *QUANTILES,
        ),
        factors={
            "agent.bootstrap_on_truncation": (True, False),
            "agent.kappa": (1.0, 0.1),
            "env.params.cost_mode": ("episode", "entry"),
            "agent.multiplier.states": ("replay", "starts"),
            AGENT: ("orac", "wcsac"),
        },
        products=((0, 1, 2, 3),),
    ),
}


@dataclass(frozen=True)
class Score:
    """How a run ended."""

    algo: str
    row: int
    late: float
    """Share of episodes on the long path in the last evaluations."""
    best: float
    converged_at: int | None
    budget: int

    @property
    def steps(self) -> int:
        """Until convergence; the whole budget where there was none."""
        return self.budget if self.converged_at is None else self.converged_at


def make_config(stage: Stage, agent: str, row: int) -> Config:
    levels = stage.levels(row)
    algo = levels.pop(AGENT, agent)
    words = [
        f"{field}={level}"
        for field, level in levels.items()
        if algo == "orac" or field not in OF_ORAC_ALONE
    ]
    config = presets.with_algorithm(presets.guarded_maze(), algo)
    config = config_text.override(config, [*stage.regime, *words])
    return replace(config, seed=stage.first_seed + row)


def make_plan(stage: Stage, out: Path) -> list[PlannedRun]:
    configs = [
        make_config(stage, agent, row) for agent in stage.agents for row in range(16)
    ]
    return [
        PlannedRun(f"{c.algo}, row {row}", c, f"row-{row:02d}", out)
        for c in configs
        for row in [c.seed - stage.first_seed]
    ]


def read_scores(stage: Stage, plan: Sequence[PlannedRun]) -> list[Score]:
    scores = []
    for planned in plan:
        if planned.is_finished():
            run = read_run(planned.path)
            _, shares = long_path_curve(run)
            late, best = shares[-LAST_EVALUATIONS:].mean(), shares.max()
            row, step = planned.config.seed - stage.first_seed, convergence_of(run).step
            scores.append(Score(run.config.algo, row, late, best, step, planned.total))
    return scores


def effect(high: np.ndarray, values: np.ndarray, unit: str) -> str:
    """Cells of a table: mean at either level, their difference and its interval."""
    form = "{:+.0%}" if unit == "%" else "{:+,.0f}"
    at = [form.format(values[part].mean()).lstrip("+") for part in (~high, high)]
    found = difference_interval(values[high], values[~high])
    if found.low is None or found.high is None:
        return f"{at[0]} | {at[1]} | all runs equal"
    ends = [form.format(x) for x in (found.estimate, found.low, found.high)]
    return f"{at[0]} | {at[1]} | {ends[0]} [{ends[1]}, {ends[2]}]"


def effects_table(stage: Stage, scores: Sequence[Score], name: str) -> list[str]:
    """Markdown: what the other level of each factor does, and of each with the agent."""
    signs = stage.design()[[s.row for s in scores]]
    late = np.array([s.late for s in scores])
    steps = np.array([float(s.steps) for s in scores])
    count = sum(s.converged_at is not None for s in scores)
    lines = [
        f"**{name}**: {len(scores)} runs, long path in the last {LAST_EVALUATIONS} "
        f"evaluations {late.mean():.0%}; {count} converged.",
        "",
        "| factor | ours | other | late share at ours | at other | difference, 95 % "
        "| steps to converge at ours | at other | difference, 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    columns = {field: signs[:, i] for i, field in enumerate(stage.factors)}
    if AGENT in columns:
        pairs = [field for field in columns if field != AGENT]
        columns |= {f"{f} x {AGENT}": columns[f] * columns[AGENT] for f in pairs}
    for field, column in columns.items():
        high = column > 0
        if name != "orac" and field in OF_ORAC_ALONE:
            continue
        if min(high.sum(), (~high).sum()) < 2:
            continue
        ours, other = stage.factors.get(field, ("unlike", "alike"))
        cells = f"{effect(high, late, '%')} | {effect(high, steps, 'steps')}"
        lines.append(f"| `{field}` | {ours} | {other} | {cells} |")
    return lines


def write_scores(stage: Stage, scores: Sequence[Score], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        fields = [field for field in stage.factors if field != AGENT]
        ends = ["late_share", "best_share", "converged_at"]
        writer.writerow(["algo", "row", *fields, *ends])
        for s in scores:
            levels = stage.levels(s.row)
            ends = [f"{s.late:.3f}", f"{s.best:.2f}", s.converged_at or ""]
            writer.writerow([s.algo, s.row, *(levels[f] for f in fields), *ends])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--budget", type=float, default=math.inf, help="hours")
    parser.add_argument("--render-only", action="store_true")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    stage = STAGES[options.stage]
    plan = make_plan(stage, options.out)
    if not options.render_only:
        run_all(plan, Processes(options.jobs, 1), 3600 * options.budget, print)
    scores = read_scores(stage, plan)
    groups = {"both agents": scores}
    if AGENT not in stage.factors:
        groups = {a: [s for s in scores if s.algo == a] for a in stage.agents}
    lines = [
        line
        for name, own in groups.items()
        if len(own) > 3
        for line in [*effects_table(stage, own, name), ""]
    ]
    print("\n".join(lines))
    if options.record:
        options.record.mkdir(parents=True, exist_ok=True)
        write_scores(stage, scores, options.record / "runs.csv")
        (options.record / "effects.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
