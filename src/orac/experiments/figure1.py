"""Figure 1: which way each agent goes in the maze, with a guard in 15 % of the episodes.

The runs are Table 1's, of one seed each unless more are asked for; the picture shows an
episode of the first seed's last checkpoint, the table where all evaluated episodes went.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from orac.api import load
from orac.core.agent import mean_action
from orac.envs.base import to_box
from orac.envs.maze.drawing import plot_trajectories, to_trajectories
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.rollout import record_episodes
from orac.experiments import table1 as table1_guarded_maze
from orac.experiments.study import Found, Study, shortcomings
from orac.reports.html.tables import Table
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import last_evaluation

TITLE = "The way each agent takes in GuardedMaze"
PAPER = {"sac-lag": "the short path", "wcsac": "stuck", "orac": "the long path"}
WAYS = {"long path": 1, "guarded cell": -1, "neither": 0}


def make_tables(everything: Sequence[Found]) -> list[Table]:
    """Shares of the last evaluations' episodes, all seeds together."""
    rows = []
    for found in everything:
        shares = [
            [
                (last_evaluation(run).metrics["path"] == way).mean()
                for run in found.evaluated
            ]
            for way in WAYS.values()
        ]
        told = [f"{np.mean(share):.0%}" if share else "–" for share in shares]
        algo = found.case.config.algo
        agent, count = table1_guarded_maze.AGENTS[algo], len(found.evaluated)
        rows.append((agent, *told, PAPER[algo], str(count)))
    columns = ("agent", *WAYS, "paper", "seeds")
    notes = (table1_guarded_maze.budget_note(everything), *shortcomings(everything))
    return [Table(TITLE, columns, tuple(rows), notes)]


def make_figure(everything: Sequence[Found], band: str) -> Any:
    """One episode of each agent from the corner; a guard stands there, unseen."""
    shown = [found for found in everything if found.evaluated]
    maze = GuardedMaze(**dict(shown[0].case.config.env.params))
    episodes = [
        _episode(maze, found.evaluated[0], table1_guarded_maze.AGENTS[algo])
        for found in shown
        for algo in [found.case.config.algo]
    ]
    return plot_trajectories(maze, episodes, TITLE)


def _episode(maze: GuardedMaze, run: Run, label: str) -> Any:
    agent = load(run.path)
    state, learner = agent.runner.state.agent, agent.runner.learner

    @jax.jit
    def policy(observation: Any) -> Any:
        return to_box(maze.spec, mean_action(state, observation, settings))

    start = replace(maze, start_box=(1.0, 1.0, 1.0, 1.0), guard_probability=1.0)
    recording = record_episodes(start, policy, seed=run.config.seed)
    return to_trajectories(maze, recording, label)[0]


STUDY = Study(
    name="figure1",
    title=TITLE,
    cases=tuple(
        replace(case, seeds=1)
        for case in table1_guarded_maze.make_cases()
        if dict(case.config.env.params)["guard_probability"] == 0.15
    ),
    make_tables=make_tables,
    make_figure=make_figure,
    evaluate_every=table1_guarded_maze.STUDY.evaluate_every,
)
