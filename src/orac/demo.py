"""ORAC in the maze, in minutes: train, check, certify, draw.

Success is what the maze is about: at least 90 % of 100 evaluation episodes take the long
path, twice in a row. The demo stops there, and exits non-zero when it never gets there.
"""

import time
from pathlib import Path

import jax

from orac import agents, presets
from orac.api import Agent
from orac.config import Config
from orac.envs.guarded_maze import GuardedMaze
from orac.envs.maze_controllers import record_episode, short_path
from orac.envs.protocol import to_box
from orac.training.loop import Event

LONG_SHARE, IN_A_ROW = 0.9, 2


class Success:
    """Stops the run once the long path was taken often enough, twice in a row."""

    def __init__(self) -> None:
        self.in_a_row = 0

    def __call__(self, event: Event) -> bool:
        if event.evaluation is None:
            return True
        paths = [row["path"] for row in event.evaluation]
        share = {end: paths.count(end) / len(paths) for end in (1, -1, 0)}
        self.in_a_row = self.in_a_row + 1 if share[1] >= LONG_SHARE else 0
        print(
            f"step {event.step:>7,}: {share[1]:4.0%} long path, {share[-1]:4.0%} through "
            f"the guarded cell, {share[0]:4.0%} never arrive"
        )
        return self.in_a_row < IN_A_ROW


def run(seed: int, out: Path, config: Config | None = None) -> int:
    """Train, evaluate, certify and draw; 0 when the agent found the long path."""
    started = time.perf_counter()
    config = config or presets.demo()
    agent = Agent(config.env.id, presets.with_seed(config, seed))
    print(
        "ORAC in the guarded maze. The short way is quick, but with probability 0.15 a"
    )
    print(
        "guard costs 20; the long way always costs 4. The limit on the worst 5 % is 5."
    )
    success = Success()
    name = time.strftime("%Y%m%d-%H%M%S")
    agent.learn(callback=success, out=out, name=name)
    minutes = (time.perf_counter() - started) / 60
    found = success.in_a_row >= IN_A_ROW
    verdict = "found the long path" if found else "did not find the long path"
    print(f"\n{verdict} after {agent.num_timesteps:,} steps, {minutes:.1f} minutes")
    result = agent.evaluate(1000)
    print(result)
    for certificate in agent.certify(result.episodes):
        print(certificate.sentence())
    print(f"picture: {draw(agent, out / 'maze.png')}")
    print(f"run: {agent.run_path}")
    return 0 if found else 1


def draw(agent: Agent, path: Path) -> Path:
    """The learned paths beside the short one, as a picture."""
    from orac.envs.maze_drawing import plot_trajectories

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
