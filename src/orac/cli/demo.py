"""`orac demo`: train ORAC in the guarded maze in minutes, certify its policy, draw its path.

In a terminal, a picture of the maze shows from time to time which paths the policy takes.
The demo succeeds, with exit code 0, if the delivered policy is certified: with 95 %
confidence the CVaR of episode cost at tail 0.05 is below the limit of 5. The short path
costs 20 when the guard is there, and the long path always costs 4, so fewer than 2.1 % of
the episodes may take the short path.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from orac.api import Agent
from orac.config import presets
from orac.core import risk
from orac.envs.baselines import short_path
from orac.envs.maze.drawing import draw_text, plot_trajectories, to_trajectories
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.episodes import risk_of_episodes
from orac.evaluation.rollout import DevicePolicy, record_episodes
from orac.reports.matplotlib_figures import save_figure
from orac.runs.atomic_io import make_directory, shown_path
from orac.training.run_loop import Event
from orac.training.state import evaluation_policy, without_seed

CORNER = (1.0, 1.0, 1.0, 1.0)
"""Start box that contains only one point, in the bottom left corner."""
PICTURE_SECONDS = 3.0
"""Minimum time between two pictures."""
PICTURE_SHARE = 0.02
"""Maximum fraction of the time that is spent on pictures, not counting the compilation of
their code."""
PICTURE_PATHS = 5
"""Number of episodes in a picture."""
PICTURE_STEPS = 40
"""Steps of an episode that a picture shows; the long path takes about 15."""
PICTURE_SIZE = 60, 24
"""Minimum columns and rows of a terminal in which pictures are shown."""


class LivePicture:
    """Shows in a terminal which paths the policy takes while it learns."""

    def __init__(
        self,
        agent: Agent,
        console: Console,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._maze = maze_of(agent)
        self._clock, self._due = clock, -np.inf
        self._quickest = np.inf
        """Seconds of the quickest picture so far."""
        self._live = Live(console=console, auto_refresh=False)
        self.pictures = 0

    def __enter__(self) -> "LivePicture":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Print an evaluation, and draw a new picture if it is due."""
        if event.evaluation is None:
            return
        self._live.console.print(Text(evaluation_line(event)), soft_wrap=True)
        started = self._clock()
        if started < self._due:
            return
        agent = event.agent
        paths = play_from_corner(agent, self._maze, PICTURE_PATHS)
        total = agent.config.training.total_steps
        caption = f"{PICTURE_PATHS} episodes from the corner, {event.step / total:.0%} trained"
        letters = "R guarded  P costs 4  B bonus  G goal"
        picture = draw_text(self._maze.layout, paths)
        self._live.update(Group(picture, Text(f"{caption}\n{letters}")), refresh=True)
        if self.pictures:
            # The first picture takes longer because its code is compiled. Later ones take
            # longer when the machine is busy, so the time of the quickest one is used.
            self._quickest = min(self._quickest, self._clock() - started)
            self._due = started + max(PICTURE_SECONDS, self._quickest / PICTURE_SHARE)
        self.pictures += 1


def can_show_pictures(console: Console) -> bool:
    """Return whether this terminal is large enough and can show the characters."""
    width, height = console.size
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and console.encoding.startswith("utf")
        and (width >= PICTURE_SIZE[0] and height >= PICTURE_SIZE[1])
    )


def play_from_corner(agent: Agent, maze: GuardedMaze, paths: int) -> list[np.ndarray]:
    """Return the positions in episodes of the current policy that start in the corner."""
    corner = replace(maze, start_box=CORNER)
    policy, uses_mean = agent.policy_of("last")
    act = evaluation_policy(agent.spec, without_seed(agent.config), uses_mean)
    seen, done = compiled_paths(jax.random.key(0), policy, corner, act, paths)
    seen, done = np.asarray(seen), np.asarray(done)
    return [
        np.asarray(maze.position_of(seen[: 1 + int((~done[:, i]).sum()), i]))
        for i in range(paths)
    ]


@partial(jax.jit, static_argnames=("maze", "act", "paths"))
def compiled_paths(
    key: Key[Array, ""], policy: Any, maze: GuardedMaze, act: DevicePolicy, paths: int
) -> tuple[Array, Array]:
    """Return observations of episodes, and whether each episode had ended before each step."""
    state, first = maze.reset_many(key, paths)

    def advance(carry: Any, t: Array) -> Any:
        state, observation, done = carry
        action_key, step_key = jax.random.split(jax.random.fold_in(key, t))
        action = act(policy, action_key, observation)
        state, step = maze.step_many(step_key, state, action)
        return (state, step.observation, done | step.done), (step.observation, done)

    start = state, first, jnp.zeros(paths, bool)
    _, (later, done) = jax.lax.scan(advance, start, jnp.arange(PICTURE_STEPS))
    return jnp.concatenate([first[None], later]), done


def print_evaluation(event: Event) -> None:
    """Print the line of `evaluation_line` if the event has an evaluation."""
    if event.evaluation is not None:
        print(evaluation_line(event))


def evaluation_line(event: Event) -> str:
    """Return a line on the paths of an evaluation's episodes, and on the CVaR of their cost."""
    assert event.evaluation is not None
    paths = [row["path"] for row in event.evaluation]
    share = {path: paths.count(path) / len(paths) for path in (1, -1, 0)}
    costs = np.array([row["cost"] for row in event.evaluation])
    return (
        f"step {event.step:>7,}: {share[1]:4.0%} long path, {share[-1]:4.0%} through "
        f"the guarded cell, {share[0]:4.0%} never arrive; the worst 5 % cost "
        f"{risk_of_episodes(costs, risk.cvar(0.05)):.1f}"
    )


def run_demo(options: argparse.Namespace) -> int:
    """Train an agent, certify its policy and draw its path; return 0 if it is certified."""
    started = time.perf_counter()
    config = presets.preset("orac", "orac/GuardedMaze-v0", "fast")
    config = replace(config, seed=options.seed)
    agent = Agent(config.env.id, config)
    print(
        "ORAC in the guarded maze. The short path is quick, but with probability 0.15 a\n"
        "guard is there and the path costs 20. The long path always costs 4. The worst\n"
        "5 % of the episodes may cost at most 5 on average."
    )
    name = time.strftime("%Y%m%d-%H%M%S")
    console = Console()
    pictures = can_show_pictures(console)
    if pictures:
        with LivePicture(agent, console) as show:
            agent.learn(callback=show, progress_bar=False, out=options.out, name=name)
    else:
        agent.learn(callback=print_evaluation, out=options.out, name=name)
    if agent.stop_signal is not None:
        if pictures:
            # Otherwise `learn` has printed it.
            print(agent.stopped_text())
        return 128 + agent.stop_signal
    print(
        f"\ntrained for {agent.num_timesteps:,} steps in "
        f"{time.perf_counter() - started:.0f} seconds"
    )
    result = agent.certify()
    print(agent.evaluate(1000, seed=config.seed))
    try:
        print(f"picture: {draw(agent, options.out / 'maze.png')}")
    except ImportError as error:
        print(f"There is no picture. {error}")
    print(f"run: {shown_path(agent.run_path or options.out)}")
    print(result.sentence())
    return 0 if result.certified else 1


def maze_of(agent: Agent) -> GuardedMaze:
    """Return the maze that the agent is trained in."""
    return GuardedMaze(**dict(agent.config.env.params))


def draw(agent: Agent, path: Path) -> Path:
    """Draw an episode of the agent, and one on the shortest path with a guard.

    The picture is written to the file `path`, which is returned.
    """
    maze = maze_of(agent)
    from_corner = replace(maze, start_box=CORNER)
    guarded, seed = replace(from_corner, guard_probability=1.0), agent.config.seed
    learned = record_episodes(from_corner, lambda o: agent.predict(o)[0], seed=seed)
    shortest = record_episodes(guarded, short_path(maze), seed=seed)
    episodes = [
        *to_trajectories(maze, learned, "ORAC"),
        *to_trajectories(maze, shortest, "shortest path"),
    ]
    make_directory(path.parent)
    title = "ORAC's path, and the shortest path with a guard"
    save_figure(plot_trajectories(maze, episodes, title), path, dpi=150)
    return path
