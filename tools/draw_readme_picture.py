"""Draw the README's picture: one maze per agent, with the paths that the agent took.

    python tools/draw_readme_picture.py --train demo/picture
    python tools/draw_readme_picture.py RUN_OF_ORAC RUN_OF_WCSAC RUN_OF_SAC_LAG

`--train` first trains ORAC, WCSAC and SAC-Lagrangian with the settings of `orac demo` and seed
0, for about a minute each. The README shows these three runs. The numbers below a map are
measured on 1000 episodes of the agent.
"""

import argparse
from pathlib import Path

import numpy as np

import orac
from orac.config import presets
from orac.envs.maze.drawing import (
    Trajectory,
    draw_map,
    import_matplotlib,
    to_trajectories,
)
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.rollout import record_episodes

ALGORITHMS = ("orac", "wcsac", "sac-lag")
NAMES = {"orac": "ORAC", "wcsac": "WCSAC", "sac-lag": "SAC-Lagrangian"}
PICTURE = Path(__file__).parents[1] / "docs/images/maze_paths.png"
INK, PATH = "#222222", "#0072B2"


def train(algo: str, out: Path) -> Path:
    """Train one agent with the demo's settings and return its run directory."""
    config = presets.preset(algo, "orac/GuardedMaze-v0", "fast")
    agent = orac.Agent(config.env.id, config)
    agent.learn(out=out, name="picture")
    assert agent.run_path is not None
    return agent.run_path


def record(agent: orac.Agent, maze: GuardedMaze, episodes: int) -> list[Trajectory]:
    """Record episodes of the agent with random starts and guards."""
    recording = record_episodes(maze, lambda o: agent.predict(o)[0], episodes, seed=1)
    return to_trajectories(maze, recording, "")


def caption(agent: orac.Agent, episodes: int = 1000) -> str:
    """Evaluate the agent and return two lines about its reward and cost."""
    found = agent.evaluate(episodes, tails=(0.05,))
    return (
        f"reward {found['reward/mean']:.1f}, mean cost {found['cost/mean']:.1f}\n"
        f"cost of the worst 5 %: {found['cost/cvar_0.05']:.1f}"
    )


def draw_paths(axes, trajectories: list[Trajectory]) -> None:
    """Draw every path, with a cross where a cost was paid."""
    for one in trajectories:
        x, y = one.positions.T
        axes.plot(x, y, color=PATH, lw=1.2, alpha=0.6)
        paid = np.flatnonzero(one.costs) + 1
        axes.plot(x[paid], y[paid], "X", ms=7, mfc="white", mec=INK, mew=0.9)


def draw(runs: list[Path], out: Path, episodes: int) -> None:
    """Draw one map per run, in the given order, and write the picture to `out`."""
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
    parser.add_argument(
        "runs", type=Path, nargs="*", help="run directories, one per map"
    )
    parser.add_argument("--train", type=Path, help="first train three runs here")
    parser.add_argument("--episodes", type=int, default=12, help="paths in each map")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args()
    runs = list(options.runs)
    if options.train:
        runs = [train(algo, options.train) for algo in ALGORITHMS]
    if not runs:
        parser.error("expected run directories, or --train DIRECTORY to make them.")
    draw(runs, options.out, options.episodes)


if __name__ == "__main__":
    main()
