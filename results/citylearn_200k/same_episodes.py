# ruff: noqa: I001
"""The three agents and the rules on the same months: one key, so equal outages for all.

    git worktree add ../orac-79b39af 79b39af
    PYTHONPATH=../orac-79b39af/src python results/citylearn_200k/same_episodes.py RUNS

RUNS is the `--out` of the training; its checkpoints need the code that wrote them. Writes
`same_episodes.csv` (one row a month) and prints the table of means, CVaR and worst costs.
"""

import argparse
import csv
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

# These are the module names of commit 79b39af, with which this script runs.
import orac
from orac.envs.citylearn import CityLearn
from orac.envs.citylearn_rules import RULES
from orac.evaluation import Episodes, risk_of_episodes, roll_out
from orac.risk import cvar
from orac.training.runners import actor_policy

AGENTS = ("orac", "wcsac", "sac-lag")
COLUMNS = ("reward", "cost", "unserved_energy", "outage_violations")
LIMIT, TAIL = 720.0, 0.05


def months_of_agent(path: Path, key: Any, env: CityLearn, episodes: int) -> Episodes:
    agent: Any = orac.load(path)
    policy = partial(
        actor_policy, spec=env.spec, config=agent.config.agent, deterministic=True
    )
    return roll_out(key, agent.runner.state.agent, env, policy, episodes)


def months_of_rule(name: str, key: Any, env: CityLearn, episodes: int) -> Episodes:
    rule = RULES[name](env)
    return roll_out(key, None, env, lambda _, __, seen: rule(seen), episodes)


def numbers(months: Episodes) -> dict[str, np.ndarray]:
    own = {name: np.asarray(months.metrics[name]) for name in COLUMNS[2:]}
    reward, cost = np.asarray(months.reward), np.asarray(months.cost)
    return {"reward": reward, "cost": cost.reshape(-1), **own}


def row(name: str, found: dict[str, np.ndarray]) -> str:
    cost = found["cost"]
    tail = risk_of_episodes(cost, cvar(TAIL))
    return (
        f"| {name} | {found['reward'].mean():.0f} | {cost.mean():.0f} | {tail:.0f} | "
        f"{(cost > LIMIT).mean():.3f} | {cost.max():.0f} | "
        f"{found['unserved_energy'].mean():.3f} | {found['outage_violations'].mean():.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1000)
    chosen = parser.parse_args()
    env, key = CityLearn(), jax.random.key(chosen.seed)
    found = {}
    for name in AGENTS:
        path = chosen.runs / "orac-CityLearn-v0" / name / "default" / "seed-000"
        found[name] = numbers(months_of_agent(path, key, env, chosen.episodes))
    for name in RULES:
        label = f"{name} (rule)"
        found[label] = numbers(months_of_rule(name, key, env, chosen.episodes))
    with (Path(__file__).parent / "same_episodes.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("agent", "month", *COLUMNS))
        for name, values in found.items():
            for month, numbers_of_month in enumerate(
                zip(*(values[column] for column in COLUMNS), strict=True)
            ):
                table.writerow((name, month, *(f"{n:.6g}" for n in numbers_of_month)))
    sys.stdout.write(
        "| agent | reward | mean cost | CVaR 5 % | P(cost > 720) | worst cost | "
        "unserved energy | outage violations |\n|---|---|---|---|---|---|---|---|\n"
        + "\n".join(row(name, values) for name, values in found.items())
        + "\n"
    )


if __name__ == "__main__":
    main()
