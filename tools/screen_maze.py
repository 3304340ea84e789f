"""Which readings of the paper matter in the maze: seven factors in sixteen runs an agent.

    python tools/screen_maze.py --out runs/screen --jobs 2        runs, then prints
    python tools/screen_maze.py --out runs/screen --render-only --record results/maze_screen

A fractional factorial design of resolution IV (Box, Hunter and Hunter 2005, chapter 6):
every factor has one of two levels in each run, half of the runs have each level, and no
main effect is confounded with another or with a pair of factors.
Every run has a seed of its own. The regime is a cheap one, and the same for all.
"""

import argparse
import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orac import config_text, presets
from orac.config import Config
from orac.processes import Processes
from orac.reading import Run, read_run
from orac.reproduce.convergence import convergence_of, long_path_curve
from orac.schedule import PlannedRun, run_all
from orac.statistics import difference_interval, mean_interval

# One gradient step in sixteen: the multiplier's rate keeps some of its pace per step.
REGIME = (
    "training.total_steps=300000",
    "training.num_envs=16",
    "training.gradient_steps=0.0625",
    "agent.num_quantiles=16",
    "agent.num_policy_quantiles=16",
    "agent.multiplier.learning_rate=0.004",
)
FACTORS: dict[str, tuple[Any, Any]] = {
    "agent.exploration.shift_radius": (4.0, 1.0),
    "agent.exploration.decay": (True, False),
    "env.params.step_scale": (1.0, 0.5),
    "env.params.action_noise": (0.2, 0.0),
    "agent.bootstrap_on_truncation": (True, False),
    "env.params.cost_mode": ("episode", "entry"),
    "agent.kappa": (1.0, 0.1),
}
# The last three columns are products of the first four.
PRODUCTS = ((1, 2, 3), (0, 2, 3), (0, 1, 2))
AGENTS = ("orac", "wcsac")
OF_ORAC_ALONE = ("agent.exploration.shift_radius", "agent.exploration.decay")
FIRST_SEED = 100
LAST_EVALUATIONS = 10


def make_design() -> np.ndarray:
    """(run, factor) of -1 for what the library has, and +1 for the other level."""
    base = np.array(list(itertools.product((-1, 1), repeat=4)))
    others = [base[:, list(columns)].prod(axis=1) for columns in PRODUCTS]
    return np.column_stack([base, *others])


def make_config(algo: str, signs: Sequence[int], seed: int) -> Config:
    levels = [
        f"{field}={pair[int(sign > 0)]}"
        for (field, pair), sign in zip(FACTORS.items(), signs, strict=True)
        if algo == "orac" or field not in OF_ORAC_ALONE
    ]
    config = presets.with_algorithm(presets.guarded_maze(), algo)
    return replace(config_text.override(config, [*REGIME, *levels]), seed=seed)


def make_plan(out: Path, agents: Sequence[str]) -> list[PlannedRun]:
    return [
        PlannedRun(
            f"{algo}, row {row}",
            make_config(algo, signs, FIRST_SEED + row),
            f"row-{row:02d}",
            out,
        )
        for algo in agents
        for row, signs in enumerate(make_design())
    ]


@dataclass(frozen=True)
class Score:
    """How a run ended: the share on the long path in its last evaluations."""

    algo: str
    row: int
    late: float
    best: float
    converged_at: int | None


def score(algo: str, row: int, run: Run) -> Score:
    _, shares = long_path_curve(run)
    late = float(shares[-LAST_EVALUATIONS:].mean())
    return Score(algo, row, late, float(shares.max()), convergence_of(run).step)


def read_scores(plan: Sequence[PlannedRun]) -> list[Score]:
    return [
        score(run.config.algo, run.config.seed - FIRST_SEED, read_run(run.path))
        for run in plan
        if run.is_finished()
    ]


def effects_table(algo: str, scores: Sequence[Score]) -> list[str]:
    """Markdown: the difference that the other level makes to the late share."""
    design = make_design()
    rows = np.array([s.row for s in scores])
    late = np.array([s.late for s in scores])
    mean = mean_interval(late, bounds=(0.0, 1.0))
    count = sum(s.converged_at is not None for s in scores)
    lines = [
        f"**{algo}**: {len(scores)} runs, long path in the last {LAST_EVALUATIONS} "
        f"evaluations {mean.estimate:.0%}; {count} converged.",
        "",
        "| factor | ours | other | share at ours | at other | difference, 95 % |",
        "|---|---|---|---|---|---|",
    ]
    for column, (field, (ours, other)) in enumerate(FACTORS.items()):
        if algo != "orac" and field in OF_ORAC_ALONE:
            continue
        high = design[rows, column] > 0
        if min(high.sum(), (~high).sum()) < 2:
            continue
        found = difference_interval(late[high], late[~high])
        lines.append(
            f"| `{field}` | {ours} | {other} | {late[~high].mean():.0%} | "
            f"{late[high].mean():.0%} | {found.estimate:+.0%} "
            f"[{found.low:+.0%}, {found.high:+.0%}] |"
        )
    return lines


def write_scores(scores: Sequence[Score], path: Path) -> None:
    design = make_design()
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["algo", "row", *FACTORS, "late_share", "best_share", "converged_at"]
        )
        for s in scores:
            levels = [
                pair[int(sign > 0)]
                for pair, sign in zip(FACTORS.values(), design[s.row], strict=True)
            ]
            ends = [f"{s.late:.3f}", f"{s.best:.2f}", s.converged_at or ""]
            writer.writerow([s.algo, s.row, *levels, *ends])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/screen"))
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--agents", nargs="+", default=AGENTS, choices=AGENTS)
    parser.add_argument("--budget", type=float, help="hours")
    parser.add_argument("--render-only", action="store_true")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    plan = make_plan(options.out, options.agents)
    if not options.render_only:
        seconds = None if options.budget is None else 3600 * options.budget
        run_all(plan, Processes(options.jobs, 1), seconds, print)
    scores = read_scores(plan)
    lines: list[str] = []
    for algo in options.agents:
        own = [s for s in scores if s.algo == algo]
        if len(own) > 3:
            lines += [*effects_table(algo, own), ""]
    print("\n".join(lines))
    if options.record:
        options.record.mkdir(parents=True, exist_ok=True)
        write_scores(scores, options.record / "runs.csv")
        (options.record / "effects.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
