"""Pendulum with a speed limit: a cost of 1 for each step above it.

    cd results/pendulum
    python speeding.py                                 # the nine lines of the table
    python speeding.py --algos orac --seeds 0          # one of them

`orac train --cost-fn speeding:too_fast` does the same from the command line; README.md
has the words. Each run takes one to two minutes on one core.
"""

import argparse
import csv
from pathlib import Path

import orac
from orac.config import serialization

SPEED = 6.0
"""Radians a second; swinging up takes more, unless one is careful."""
LIMIT, TAIL, STEPS = 2.0, 0.25, 10_000


def too_fast(observation, action, next_observation, info):
    """1 where the pendulum turns faster than allowed; its third number is the speed."""
    return float(abs(next_observation[2]) > SPEED)


def train(algo: str, seed: int, **options) -> orac.Agent:
    """Train one run with the recorded config, such as orac.yaml; SAC has no limit."""
    config = serialization.load(Path(__file__).with_name(f"{algo}.yaml"))
    agent = orac.make_agent(
        algo, "Pendulum-v1", cost_fn=too_fast, seed=seed, config=config
    )
    return agent.learn(STEPS, progress_bar=False, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algos", nargs="+", default=["sac", "wcsac", "orac"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--record", type=Path, default=Path())
    options = parser.parse_args()
    for algo in options.algos:
        for seed in options.seeds:
            agent = train(algo, seed, out=options.out)
            result = agent.evaluate(100, tails=(TAIL,))
            record(options.record, algo, seed, agent, result)


def record(path: Path, algo: str, seed: int, agent: orac.Agent, result) -> None:
    """Add a line to the table."""
    row = {
        "algo": algo,
        "seed": seed,
        "steps": agent.num_timesteps,
        "episodes": len(result.episodes),
        "reward/mean": result["reward/mean"],
        "cost/mean": result["cost/mean"],
        f"cost/cvar_{TAIL:g}": result[f"cost/cvar_{TAIL:g}"],
        "cost/worst": result["cost/worst"],
    }
    table = path / "evaluations.csv"
    fresh = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if fresh:
            writer.writeheader()
        writer.writerow({k: round(v, 3) if k[-1] != "o" else v for k, v in row.items()})
    print(row)


if __name__ == "__main__":
    main()
