"""Screen which settings matter for the difference between ORAC and WCSAC in the maze.

python tools/screen_contrast.py results/contrast_screen/runs.csv --jobs 2
python tools/screen_contrast.py results/contrast_screen/runs.csv --effects

Every factor has two levels, the one of the fast preset and another one. The 32 rows of the
design are a fractional factorial of resolution IV: no main effect is confounded with another
one or with the joint effect of two factors. Each row is trained with both agents and one
seed. Rows that are in the file already are skipped, so the same command continues after a
stop.
"""

import argparse
import csv
from collections.abc import Sequence
from itertools import combinations, product
from math import prod
from multiprocessing import get_context
from pathlib import Path

from trials import append, recorded, run_trial

from orac.evaluation.seed_intervals import difference_interval, proportion_interval
from orac.runs.machine import claim_processors

FIRST_SEED = 6100
AGENTS = ("orac", "wcsac")
LONG_SHARE = 0.9
"""A run succeeds if its delivered policy takes the long path in this share of episodes."""
FACTORS: dict[str, tuple[str, ...]] = {
    "pink cell at (6, 5)": ("env.params.pink_cell=[6,5]",),
    "no noise of moves": ("env.params.action_noise=0",),
    "costs at each entry": ("env.params.cost_mode=entry",),
    "time limits end an episode": ("agent.bootstrap_on_truncation=false",),
    "observations as they are": ("env.params.normalize_obs=false",),
    "temperature starts at 1": ("agent.initial_temperature=1",),
    "constant target entropy of -2": (
        "agent.target_entropy=-2",
        "agent.final_target_entropy=-2",
    ),
    "shift radius as a KL divergence": ("agent.exploration.radius_is_kl=true",),
    "one update per 8 steps": ("training.gradient_steps=0.125",),
    "one-step targets": ("agent.n_step=1",),
    "multiplier starts at 1": ("agent.multiplier.initial=1",),
    "multiplier half as fast": ("agent.multiplier.episodes_per_unit=540",),
    "no restarts": ("training.restarts=0",),
}
"""The other level of each factor. Its first level is the fast preset of the maze."""


def design() -> list[tuple[bool, ...]]:
    """Return the rows: for each factor, whether it is at its other level.

    Five factors vary freely. Each further factor is the product of an odd number of these.
    """
    free = 5
    words = [word for size in (1, 3, 5) for word in combinations(range(free), size)][
        : len(FACTORS)
    ]
    return [
        tuple(prod(signs[i] for i in word) > 0 for word in words)
        for signs in product((-1, 1), repeat=free)
    ]


def assignments_of(row: Sequence[bool]) -> list[str]:
    """Return the assignments `field=value` of a row of the design."""
    pairs = zip(FACTORS.values(), row, strict=True)
    return [text for texts, other in pairs if other for text in texts]


def train(run: tuple[Path, int, str]) -> dict[str, object]:
    """Train one agent with the settings of one row, and measure its delivered policy.

    `run` has the file of the rows, the number of the row and the agent.
    """
    path, index, algo = run
    options = argparse.Namespace(
        rows=path,
        case=f"{algo} {index}",
        algo=algo,
        env_id="orac/GuardedMaze-v0",
        preset="fast",
        assignments=assignments_of(design()[index]),
        episodes=1000,
        out=None,
    )
    return run_trial(options, FIRST_SEED + index)


def train_missing(path: Path, jobs: int) -> None:
    """Train the runs that are not in the file, and append each when it is finished."""
    known = {case for case, _ in recorded(path)}
    missing = [
        (index, algo)
        for index in range(len(design()))
        for algo in AGENTS
        if f"{algo} {index}" not in known
    ]
    # A process keeps the programs that it compiled, so it is replaced after some runs.
    pool = get_context("spawn").Pool(jobs, claim_processors, (1,), maxtasksperchild=4)
    with pool:
        for row in pool.imap_unordered(train, [(path, *run) for run in missing]):
            append(path, row)
            print(row["case"], row["minutes"], row["env/path_long"], flush=True)


def print_effects(path: Path) -> None:
    """Print the share of successes at both levels of every factor, and their differences."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    success = {r["case"]: float(r["env/path_long"]) >= LONG_SHARE for r in rows}
    complete = [
        (i, row)
        for i, row in enumerate(design())
        if all(f"{algo} {i}" in success for algo in AGENTS)
    ]
    counts = {algo: sum(success[f"{algo} {i}"] for i, _ in complete) for algo in AGENTS}
    for algo, count in counts.items():
        share = proportion_interval(count, len(complete))
        print(f"{algo}: {count} of {len(complete)} [{share.low:.0%}, {share.high:.0%}]")
    print("\n| factor | ORAC: preset, other | WCSAC: preset, other |", end=" ")
    print("effect on ORAC - WCSAC, 95 % |\n|---|---|---|---|")
    for k, name in enumerate(FACTORS):
        sides = [[i for i, row in complete if row[k] == other] for other in (0, 1)]
        shares = {
            algo: ", ".join(
                f"{sum(success[f'{algo} {i}'] for i in side)} of {len(side)}"
                for side in sides
            )
            for algo in AGENTS
        }
        leads = [
            [success[f"orac {i}"] - success[f"wcsac {i}"] for i in side]
            for side in sides
        ]
        if min(map(len, leads)) < 2:
            continue
        effect = difference_interval(leads[1], leads[0], bounds=(-1, 1))
        text = f"{effect.estimate:+.0%}"
        if effect.low is not None:
            text += f" [{effect.low:+.0%}, {effect.high:+.0%}]"
        print(f"| {name} | {shares['orac']} | {shares['wcsac']} | {text} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", type=Path, help="CSV file of the runs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--effects", action="store_true", help="only print the effects")
    arguments = parser.parse_args()
    if not arguments.effects:
        train_missing(arguments.rows, arguments.jobs)
    print_effects(arguments.rows)
