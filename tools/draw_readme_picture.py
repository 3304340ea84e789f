"""The picture of the README: the maze once per agent, with paths that the agent took.

    python tools/draw_readme_picture.py --train demo/picture
    python tools/draw_readme_picture.py RUN_OF_ORAC RUN_OF_WCSAC RUN_OF_SAC_LAG

The README's has seed 0 of each agent in Table 1, guard 0.15. `--train` makes three runs with
the settings of `orac demo` instead, about seven minutes each. What stands under a map is
measured: 1000 episodes of that run's agent.
"""

import argparse
from pathlib import Path

import jax
import numpy as np

import orac
from orac.config import presets
from orac.core import agent as agents
from orac.envs.base import to_box
from orac.envs.maze.controllers import record_episode
from orac.envs.maze.drawing import Trajectory, import_matplotlib
from orac.envs.maze.env import GuardedMaze
from orac.envs.maze.pixels import COLOURS

ALGORITHMS = ("orac", "wcsac", "sac-lag")
NAMES = {"orac": "ORAC", "wcsac": "WCSAC", "sac-lag": "SAC-Lagrangian"}
PICTURE = Path(__file__).parents[1] / "docs/images/maze_paths.png"
INK, PATH = "#222222", "#0072B2"


def train(algo: str, out: Path) -> Path:
    """One run with the demo's settings, to its end; its directory."""
    config = presets.with_algorithm(presets.demo(), algo)
    agent = orac.Agent(config.env.id, presets.with_seed(config, 0))
    agent.learn(out=out, name="picture")
    assert agent.run_path is not None
    return agent.run_path


def record(agent: orac.Agent, maze: GuardedMaze, episodes: int) -> list[Trajectory]:
    """Episodes of the agent's mean action, starts and guards as they come."""
    state = agent.runner.state.agent

    @jax.jit
    def policy(observation):
        action = agents.mean_action(state, observation[None], agent.config.agent)[0]
        return to_box(maze.spec, action)

    keys = jax.random.split(jax.random.key(1), episodes)
    return [record_episode(key, maze, policy, "") for key in keys]


def caption(agent: orac.Agent, episodes: int = 1000) -> str:
    """What the agent earns and pays, in two lines."""
    found = agent.evaluate(episodes, tails=(0.05,))
    return (
        f"reward {found['reward/mean']:.1f}, mean cost {found['cost/mean']:.1f}\n"
        f"cost of the worst 5 %: {found['cost/cvar_0.05']:.1f}"
    )


def draw_map(axes, maze: GuardedMaze) -> None:
    """The cells, with a letter on those that are not plain."""
    rectangle, layout = import_matplotlib().patches.Rectangle, maze.layout
    for x, y in np.ndindex(layout.width, layout.height):
        letter = layout.letter((x, y))
        style = {"facecolor": COLOURS[letter], "edgecolor": "#DDDDDD", "lw": 0.5}
        axes.add_patch(rectangle((x - 0.5, y - 0.5), 1, 1, **style))
        if letter in "RPBG":
            axes.text(x + 0.4, y - 0.4, letter, ha="right", size=8, weight="bold")
    left, bottom, right, top = layout.start_box
    box = rectangle((left, bottom), right - left, top - bottom, fill=False, ls="--")
    axes.add_patch(box)
    axes.set_xlim(-0.5, layout.width - 0.5)
    axes.set_ylim(-0.5, layout.height - 0.5)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_paths(axes, trajectories: list[Trajectory]) -> None:
    """Every path, with a cross where a cost was paid."""
    for one in trajectories:
        x, y = one.positions.T
        axes.plot(x, y, color=PATH, lw=1.2, alpha=0.6)
        paid = np.flatnonzero(one.costs) + 1
        axes.plot(x[paid], y[paid], "X", ms=7, mfc="white", mec=INK, mew=0.9)


def draw(runs: list[Path], out: Path, episodes: int) -> None:
    """One panel a run, in the order given."""
    matplotlib = import_matplotlib()
    figure = matplotlib.figure.Figure(figsize=(3.3 * len(runs), 4.0), dpi=150)
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, len(runs), squeeze=False)[0]
    for axes, run in zip(panels, runs, strict=True):
        agent = orac.load(run)
        maze = GuardedMaze(**dict(agent.config.env.params))
        draw_map(axes, maze)
        draw_paths(axes, record(agent, maze, episodes))
        name = NAMES.get(agent.config.algo, agent.config.algo)
        axes.set_title(name, loc="left", size=12, weight="bold", color=INK)
        axes.set_xlabel(caption(agent), size=9.5, color=INK, loc="left")
        print(f"{name}: {axes.get_xlabel()}".replace("\n", ", "))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, bbox_inches="tight")
    print(f"picture: {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", help="run directories, in order")
    parser.add_argument("--train", type=Path, help="make the three runs in here first")
    parser.add_argument("--episodes", type=int, default=12, help="paths in each map")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args()
    runs = list(options.runs)
    if options.train:
        runs = [train(algo, options.train) for algo in ALGORITHMS]
    if not runs:
        parser.error("give run directories, or --train DIRECTORY to make them.")
    draw(runs, options.out, options.episodes)


if __name__ == "__main__":
    main()
