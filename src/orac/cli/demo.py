"""`orac demo`: train ORAC in the guarded maze in a minute or two, certify it and draw it.

The demo succeeds, with exit code 0, if the delivered policy is certified: with 95 %
confidence the CVaR at 0.05 of an episode's cost is below the limit of 5. The short path
costs 20 when the guard is there, so fewer than 2.1 % of the episodes may take it.
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
from orac.evaluation.result import risk_of_episodes
from orac.evaluation.rollout import record_episodes
from orac.training.loop import Event


def print_evaluation(event: Event) -> None:
    """Print which paths the episodes of an evaluation took, and their risk."""
    if event.evaluation is None:
        return
    paths = [row["path"] for row in event.evaluation]
    share = {path: paths.count(path) / len(paths) for path in (1, -1, 0)}
    costs = np.array([row["cost"] for row in event.evaluation])
    print(
        f"step {event.step:>7,}: {share[1]:4.0%} long path, {share[-1]:4.0%} through "
        f"the guarded cell, {share[0]:4.0%} never arrive; cost of the worst 5 % "
        f"{risk_of_episodes(costs, risk.cvar(0.05)):.1f}"
    )


def run_demo(options: argparse.Namespace) -> int:
    """Train, certify and draw; return 0 if the delivered policy is certified."""
    started = time.perf_counter()
    config = presets.preset("orac", "orac/GuardedMaze-v0", "fast")
    config = presets.with_seed(config, options.seed)
    agent = Agent(config.env.id, config)
    print(
        "ORAC in the guarded maze. The short path is quick, but with probability 0.15 a\n"
        "guard is there and costs 20; the long path always costs 4. The worst 5 % of\n"
        "episodes may cost 5 on average."
    )
    name = time.strftime("%Y%m%d-%H%M%S")
    agent.learn(callback=print_evaluation, out=options.out, name=name)
    print(
        f"\ntrained for {agent.num_timesteps:,} steps in "
        f"{time.perf_counter() - started:.0f} seconds"
    )
    result = agent.certify()
    print(agent.evaluate(1000, seed=config.seed))
    print(result.sentence())
    print(f"picture: {draw(agent, options.out / 'maze.png')}")
    print(f"run: {agent.run_path}")
    return 0 if result.certified else 1


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
