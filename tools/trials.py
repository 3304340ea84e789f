"""Train a preset on several seeds and measure the policy that each run delivers.

python tools/trials.py results/stuck/rows.csv --case restarts-2 --seeds 5000-5019 \
    --env-id orac/GuardedMaze-v0 --preset fast --set training.restarts=2

After training, the delivered policy of a run plays fresh episodes, which were used neither
for training nor for choosing the policy. One row per run is appended to the CSV file, with
the case, the seed, the reward and risk of the delivered policy, and the commit. Seeds that
have a row of this case in the file are skipped, so the same command continues after a stop.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

from orac.api.agent import Agent
from orac.cli.options import parse_seeds
from orac.config import overrides, presets
from orac.envs.user_code import allow_module
from orac.runs.machine import claim_processors, describe_machine

FRESH_SEED = 1_000_000
"""The seed of the fresh episodes is the run's seed plus this number."""


def main() -> None:
    """Train every seed that has no row yet."""
    options = parse_options()
    for module in options.modules:
        allow_module(module)
    if options.threads:
        claim_processors(options.threads)
    for seed in options.seeds:
        if (options.case, str(seed)) not in recorded(options.rows):
            row = run_trial(options, seed)
            append(options.rows, row)
            print(row, flush=True)


def parse_options() -> argparse.Namespace:
    """Parse the command line and return its options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    option = parser.add_argument
    option("rows", type=Path, help="CSV file to which rows are appended")
    option("--case", required=True, help="name of these settings in the file")
    option("--seeds", type=parse_seeds, required=True, help="such as 5, 0-4 or 0,3")
    option("--algo", default="orac")
    option("--env-id", default="orac/GuardedMaze-v0")
    option("--preset", default="fast")
    option("--set", action="append", default=[], dest="assignments")
    option("--episodes", type=int, default=1000, help="fresh episodes per run")
    option("--threads", type=int, default=1)
    option(
        "--import",
        action="append",
        default=[],
        dest="modules",
        help="module from which --set env.cost_fn=MODULE:NAME may import; can be repeated",
    )
    option(
        "--out", type=Path, help="directory of the runs; by default they are deleted"
    )
    return parser.parse_args()


def recorded(path: Path) -> set[tuple[str, str]]:
    """Return the case and seed of every row of the file."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(row["case"], row["seed"]) for row in csv.DictReader(file)}


def run_trial(options: argparse.Namespace, seed: int) -> dict[str, object]:
    """Train one run, and measure its delivered policy on fresh episodes."""
    config = presets.preset(options.algo, options.env_id, options.preset)
    config = overrides.override(config, [*options.assignments, f"seed={seed}"])
    started, cpu_started = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as temporary:
        agent = Agent(options.env_id, config)
        out = options.out / options.case if options.out else Path(temporary)
        agent.learn(config.training.total_steps, out=str(out))
        if agent.num_timesteps < config.training.total_steps:
            raise SystemExit(f"Seed {seed} was stopped, so it has no row.")
        minutes = (time.perf_counter() - started) / 60
        cpu_minutes = (time.process_time() - cpu_started) / 60
        best = agent.best
        result = agent.evaluate(episodes=options.episodes, seed=FRESH_SEED + seed)
    return {
        "case": options.case,
        "seed": seed,
        "algo": options.algo,
        "env": options.env_id,
        "settings": " ".join(options.assignments),
        "steps": config.training.total_steps,
        "minutes": f"{minutes:.1f}",
        "cpu_minutes": f"{cpu_minutes:.1f}",
        "delivered_step": best.step if best else "",
        "within_margin": bool(best and best.feasible),
        **{name: f"{value:.6g}" for name, value in result.summary.items()},
        "commit": describe_machine()["commit"],
    }


def append(path: Path, row: dict[str, object]) -> None:
    """Append a row to the file. A new file first gets a header with the row's columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if is_new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
