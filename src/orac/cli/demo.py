"""ORAC in the maze, in minutes: train, check, certify, draw.

Success is what the maze is about: at least 90 % of 100 evaluation episodes take the long
path, twice in a row. The demo exits non-zero when it never gets there. It goes on until 98 %
do, twice in a row, or until its steps are used up: when more than 2 % go past the guard, who
is there in 15 %, the worst 5 % cost more than the limit, 4 + 16 * 0.15 * share / 0.05.
"""

import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from orac.api import Agent
from orac.config import presets
from orac.config.schema import Config
from orac.core import agent as agents
from orac.core import risk
from orac.envs.base import to_box
from orac.envs.maze.controllers import record_episode, short_path
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.result import certify
from orac.evaluation.rollout import risk_of_episodes
from orac.training.loop import Event

LONG_SHARE, SURE_SHARE, IN_A_ROW = 0.9, 0.98, 2
LIMIT = 5.0
"""What is asked for, and certified; the preset trains with some room below it."""
WORST = risk.cvar(0.05)
MISSED = "did not find the long path"


class Success:
    """Watches for the long path; stops the run when it is taken surely enough."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.sure = 0
        self.found_at: int | None = None

    def __call__(self, event: Event) -> bool:
        if event.evaluation is None:
            return True
        paths = [row["path"] for row in event.evaluation]
        share = {end: paths.count(end) / len(paths) for end in (1, -1, 0)}
        costs = np.array([row["cost"] for row in event.evaluation])
        worst = risk_of_episodes(costs, WORST)
        self.in_a_row = self.in_a_row + 1 if share[1] >= LONG_SHARE else 0
        print(
            f"step {event.step:>7,}: {share[1]:4.0%} long path, {share[-1]:4.0%} through "
            f"the guarded cell, {share[0]:4.0%} never arrive; worst 5 % cost {worst:.1f}"
        )
        self.sure = self.sure + 1 if share[1] >= SURE_SHARE else 0
        if self.in_a_row >= IN_A_ROW:
            self.found_at = self.found_at or event.step
        return self.sure < IN_A_ROW


def run(seed: int, out: Path, config: Config | None = None) -> int:
    """Train, evaluate, certify and draw; 0 when the agent found the long path."""
    started = time.perf_counter()
    config = config or presets.demo()
    agent = Agent(config.env.id, presets.with_seed(config, seed))
    print(
        "ORAC in the guarded maze. The short way is quick, but with probability 0.15 a"
    )
    print(
        "guard costs 20; the long way always costs 4. The limit on the worst 5 % is 5,"
    )
    print(f"and {config.constraints[0].limit:g} while it learns, to have some room.")
    success = Success()
    name = time.strftime("%Y%m%d-%H%M%S")
    agent.learn(callback=success, out=out, name=name)
    minutes = (time.perf_counter() - started) / 60
    found = success.found_at is not None
    verdict = (
        f"found the long path after {success.found_at:,} steps" if found else MISSED
    )
    print(f"\n{verdict}; trained for {agent.num_timesteps:,}, {minutes:.1f} minutes")
    result = agent.evaluate(1000)
    print(result)
    asked = [replace(constraint, limit=LIMIT) for constraint in config.constraints]
    for certificate in certify(result.episodes, asked, agent.spec):
        print(certificate.sentence())
    print(f"picture: {draw(agent, out / 'maze.png')}")
    print(f"run: {agent.run_path}")
    return 0 if found else 1


def draw(agent: Agent, path: Path) -> Path:
    """The learned paths beside the short one, as a picture."""
    from orac.envs.maze.drawing import plot_trajectories

    maze = GuardedMaze(**dict(agent.config.env.params))
    state = agent.runner.state.agent

    @jax.jit
    def policy(observation):
        action = agents.mean_action(state, observation[None], agent.config.agent)[0]
        return to_box(maze.spec, action)

    keys = jax.random.split(jax.random.key(agent.config.seed), 2)
    corner = {"xy": (1.0, 1.0)}
    episodes = [
        record_episode(keys[0], maze, policy, "ORAC", corner),
        record_episode(
            keys[1], maze, short_path(maze), "shortest path", {**corner, "guard": True}
        ),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "The worst case decides: ORAC goes around"
    plot_trajectories(maze, episodes, title).savefig(path, dpi=150)
    return path
