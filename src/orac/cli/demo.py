"""`orac demo`: train ORAC in the guarded maze within minutes, evaluate, certify and draw it.

The demo succeeds when at least 90 % of 100 evaluation episodes take the long path, twice in
a row; otherwise its exit code is 1. Training continues until 98 % do so twice in a row, or
until all steps are taken. The reason is the limit: if a share of more than 2 % passes the
guard, who is present with probability 0.15, the CVaR at 0.05 exceeds the limit of 5, since
it is 4 + 16 * 0.15 * share / 0.05.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from orac.api import Agent
from orac.config import presets
from orac.core import risk
from orac.envs.baselines import short_path
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.result import certify, risk_of_episodes
from orac.evaluation.rollout import record_episodes
from orac.training.loop import Event

FOUND_SHARE, STOP_SHARE, IN_A_ROW = 0.9, 0.98, 2
LIMIT = 5.0
"""The certified limit. The preset trains with a lower one, to leave a margin."""


class LongPathCallback:
    """Print every evaluation, and stop training when nearly all episodes are safe."""

    def __init__(self) -> None:
        self.found_in_a_row = 0
        self.stop_in_a_row = 0
        self.found_at: int | None = None
        """Step at which the demo succeeded; None until then."""

    def __call__(self, event: Event) -> bool:
        if event.evaluation is None:
            return True
        paths = [row["path"] for row in event.evaluation]
        share = {path: paths.count(path) / len(paths) for path in (1, -1, 0)}
        costs = np.array([row["cost"] for row in event.evaluation])
        print(
            f"step {event.step:>7,}: {share[1]:4.0%} long path, {share[-1]:4.0%} through "
            f"the guarded cell, {share[0]:4.0%} never arrive; cost of the worst 5 % "
            f"{risk_of_episodes(costs, risk.cvar(0.05)):.1f}"
        )
        self.found_in_a_row = self.found_in_a_row + 1 if share[1] >= FOUND_SHARE else 0
        self.stop_in_a_row = self.stop_in_a_row + 1 if share[1] >= STOP_SHARE else 0
        if self.found_in_a_row >= IN_A_ROW:
            self.found_at = self.found_at or event.step
        return self.stop_in_a_row < IN_A_ROW


def run_demo(options: argparse.Namespace) -> int:
    """Train, evaluate, certify and draw; return 0 if the agent found the long path."""
    started = time.perf_counter()
    config = presets.with_seed(presets.demo(), options.seed)
    agent = Agent(config.env.id, config)
    print(
        "ORAC in the guarded maze. The short path is quick, but with probability 0.15 a\n"
        "guard is there and costs 20; the long path always costs 4. The worst 5 % of\n"
        f"episodes may cost 5 on average. Training uses a limit of "
        f"{config.constraints[0].limit:g}, to leave a margin."
    )
    callback = LongPathCallback()
    name = time.strftime("%Y%m%d-%H%M%S")
    agent.learn(callback=callback, out=options.out, name=name)
    minutes = (time.perf_counter() - started) / 60
    if callback.found_at is None:
        print("\ndid not find the long path", end="")
    else:
        print(f"\nfound the long path after {callback.found_at:,} steps", end="")
    print(f"; trained for {agent.num_timesteps:,} steps, {minutes:.1f} minutes")
    result = agent.evaluate(1000)
    print(result)
    constraints = [
        replace(constraint, limit=LIMIT) for constraint in config.constraints
    ]
    for certificate in certify(result.episodes, constraints, agent.spec):
        print(certificate.sentence())
    print(f"picture: {draw(agent, options.out / 'maze.png')}")
    print(f"run: {agent.run_path}")
    return 1 if callback.found_at is None else 0


def draw(agent: Agent, path: Path) -> Path:
    """Draw an episode of the agent, and one on the shortest path with a guard."""
    from orac.envs.maze.drawing import plot_trajectories, to_trajectories

    maze = GuardedMaze(**dict(agent.config.env.params))
    from_corner = replace(maze, start_box=(1.0, 1.0, 1.0, 1.0))
    guarded, seed = replace(from_corner, guard_probability=1.0), agent.config.seed
    learned = record_episodes(from_corner, lambda o: agent.predict(o)[0], seed=seed)
    shortest = record_episodes(guarded, short_path(maze), seed=seed)
    episodes = [
        *to_trajectories(maze, learned, "ORAC"),
        *to_trajectories(maze, shortest, "shortest path"),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "ORAC avoids the guard because the worst case counts"
    plot_trajectories(maze, episodes, title).savefig(path, dpi=150)
    return path
