"""When an agent in the maze has converged: defined here, once.

A run converges at its first evaluation from which five in a row have at least 90 % of
their episodes on the long path. The paper's table counts a run that never does so with
its whole budget of steps, and so does ours. Evaluations are those of evaluations.csv:
every 10,000 steps, 100 episodes, with the policy's mean action.
"""

from dataclasses import dataclass

import numpy as np

from orac.reports.run_reader import Run
from orac.reports.seed_statistics import evaluation_curve

LONG_SHARE, IN_A_ROW = 0.9, 5


@dataclass(frozen=True)
class Convergence:
    """Where a run converged, and whether it stayed there."""

    step: int | None
    """Environment step of the first of the five evaluations; None: it did not."""
    later_share: float | None
    """Share of the evaluations after those five that have 90 % too; None without any."""


def long_path_curve(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the share of an evaluation's episodes that take the long path."""
    if "path" not in run.evaluations:
        return np.empty(0), np.empty(0)
    is_long = (run.evaluations["path"] == 1).astype(np.float64)
    evaluations = {**run.evaluations, "long": is_long}
    return evaluation_curve(
        Run(run.path, run.config, run.meta, run.metrics, run.timings, evaluations),
        "long",
    )


def converged(steps: np.ndarray, shares: np.ndarray) -> Convergence:
    """Whether and where a curve of long-path shares converges."""
    # Numerics: 90 of 100 is enough, however the division rounds.
    good = shares >= LONG_SHARE - 1e-9
    for first in range(len(good) - IN_A_ROW + 1):
        if good[first : first + IN_A_ROW].all():
            later = good[first + IN_A_ROW :]
            share = float(later.mean()) if len(later) else None
            return Convergence(int(steps[first]), share)
    return Convergence(None, None)


def convergence_of(run: Run) -> Convergence:
    return converged(*long_path_curve(run))


def steps_to_converge(run: Run) -> int:
    """Steps until convergence; a run that did not converge counts as its budget."""
    step = convergence_of(run).step
    return run.config.training.total_steps if step is None else step
