"""Table 1 and Figure 1: how often, and how soon, agents find the maze's long path.

Table 1 compares three agents at two probabilities of a guard. The study `table1` uses the
quantile critics of the paper's main text, and `table1-iqn` the implicit quantile networks of
its appendix. All other settings are from Appendix A. An evaluation is made every 10,000
steps and plays 100 episodes with the policy's mean action. A run converges if at least 90 %
of the episodes take the long path in five evaluations in a row. It counts as converged at the
step of the first of these evaluations. As in the paper, a run that never converges counts with its
total number of steps. Only finished runs count, because others may still converge.

Figure 1 shows the path of each agent that was trained for Table 1 with a guard in 15 % of the
episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from orac.api import load
from orac.config import overrides, presets
from orac.envs.maze.drawing import plot_trajectories, to_trajectories
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.episodes import cost_column
from orac.evaluation.rollout import record_episodes
from orac.evaluation.seed_intervals import mean_interval, proportion_interval
from orac.experiments import paper_numbers
from orac.experiments.paper_numbers import AGENTS
from orac.experiments.study import (
    Case,
    CaseResults,
    Study,
    missing_notes,
)
from orac.reports.charts import curve_chart
from orac.reports.matplotlib_figures import BAND_NOTES, draw_line_charts
from orac.reports.report_metrics import recorded_curve, seed_values
from orac.reports.run_reader import RecordedRun
from orac.reports.tables import Table, cell

TITLE = "Convergence to the long path in GuardedMaze"
ALGOS = ("sac-lag", "wcsac", "orac")
PROBABILITIES = (0.15, 0.1)
LONG_SHARE, IN_A_ROW = 0.9, 5
"""A run has converged if `IN_A_ROW` evaluations in a row have at least `LONG_SHARE` of their
episodes on the long path."""

long_path_curve = partial(recorded_curve, key="env/path_long")
"""Returns the steps of a run's evaluations, and the share of long paths in each."""


@dataclass(frozen=True)
class Convergence:
    """The step at which a run converged, and how often it took the long path afterwards."""

    step: int | None
    """Environment step of the first of the five evaluations; None without convergence."""
    later_share: float | None
    """Share of the later evaluations that also reach 90 %; None if there are no later ones."""


def find_convergence(steps: np.ndarray, shares: np.ndarray) -> Convergence:
    """Find the convergence in the shares of long paths of a run's evaluations."""
    # Numerics: 90 of 100 episodes are enough, however the division rounds.
    good = shares >= LONG_SHARE - 1e-9
    for first in range(len(good) - IN_A_ROW + 1):
        if good[first : first + IN_A_ROW].all():
            later = good[first + IN_A_ROW :]
            share = float(later.mean()) if len(later) else None
            return Convergence(int(steps[first]), share)
    return Convergence(None, None)


def convergence_of(run: RecordedRun) -> Convergence:
    """Find the convergence of a run in the maze."""
    return find_convergence(*long_path_curve(run))


def steps_to_converge(run: RecordedRun) -> int:
    """Return the step of convergence, or the total steps if the run did not converge."""
    step = convergence_of(run).step
    return run.config.training.total_steps if step is None else step


def guard_probability(case: Case) -> float:
    return dict(case.config.env.params)["guard_probability"]


def make_cases(risk_form: str) -> tuple[Case, ...]:
    """Return the cases of Table 1, with this risk form for ORAC and WCSAC."""
    preset = presets.guarded_maze()
    preset = replace(preset, agent=replace(preset.agent, risk_form=risk_form))
    cases = []
    for probability in PROBABILITIES:
        for algo in ALGOS:
            config = overrides.override(
                presets.with_algorithm(preset, algo),
                [f"env.params.guard_probability={probability}"],
            )
            # SAC-Lagrangian has scalar critics in both studies, so the studies share its runs.
            is_quantile = config.agent.risk_form == "quantile"
            name = f"{'quantile-' if is_quantile else ''}guard-{probability:g}"
            cases.append(Case(f"{AGENTS[algo]}, guard {probability:g}", name, config))
    return tuple(cases)


def make_tables(results: Sequence[CaseResults]) -> list[Table]:
    """Return Table 1, with the paper's numbers next to ours."""
    columns = (
        *("agent", "guard", "success", "paper", "steps", "paper"),
        *("stays", "within limit", "certified", "seeds"),
    )
    note = (
        f"Success means that in {IN_A_ROW} evaluations in a row at least "
        f"{LONG_SHARE:.0%} of the episodes took the long path. Steps is the step of the "
        "first of these evaluations; a seed without success counts with all its steps. "
        "Stays is the share of a converged seed's later evaluations in which at least "
        f"{LONG_SHARE:.0%} of the episodes still take the long path, averaged over the "
        "converged seeds. Within limit is the number of seeds whose last evaluation has a "
        "risk of cost within the limit. Certified is the number of seeds whose delivered "
        "policy is within the limit with 95 % confidence, shown on fresh episodes. Brackets "
        "are 95 % intervals over seeds (Clopper-Pearson; Student's t, widened for skewed "
        "data and clipped at the number of training steps). Only "
        "finished runs count."
    )
    notes = [
        f"{paper_numbers.budget_note(results)} The paper: 500,000 steps, 10 seeds.",
        note,
    ]
    curves = [long_path_curve(run) for result in results for run in result.finished]
    evaluations = max((len(steps) for steps, _ in curves), default=0)
    if 0 < evaluations < IN_A_ROW:
        notes.append(
            f"No run can have converged, because that takes {IN_A_ROW} evaluations and no "
            f"run has more than {evaluations}."
        )
    notes += missing_notes(results)
    return [Table(TITLE, columns, tuple(map(_row, results)), tuple(notes))]


def _row(result: CaseResults) -> tuple[str, ...]:
    algo, probability = result.case.config.algo, guard_probability(result.case)
    printed = paper_row(algo, probability)
    runs = result.finished
    success = steps = stays = within = certified = "–"
    if runs:
        reached = [convergence_of(run) for run in runs]
        count = sum(x.step is not None for x in reached)
        share = proportion_interval(count, len(runs))
        success = f"{share.estimate:.0%} [{share.low:.0%}, {share.high:.0%}]"
        steps = _steps_cell(runs)
        later = [x.later_share for x in reached if x.later_share is not None]
        stays = f"{np.mean(later):.0%}" if later else "–"
        within = f"{sum(map(ends_within_limit, runs))} of {len(runs)}"
        verdicts = [x for run in runs if (x := run.row.get("certified")) is not None]
        if verdicts:
            certified = f"{sum(verdicts)} of {len(verdicts)}"
    return (
        AGENTS[algo],
        f"{probability:g}",
        success,
        f"{printed['success']:.0%}",
        steps,
        "–" if printed["steps"] is None else f"{printed['steps']:,}",
        stays,
        within,
        certified,
        f"{len(runs)} (paper {result.case.seeds})",
    )


def paper_row(algo: str, probability: float) -> dict[str, Any]:
    """Return the paper's numbers for an agent and a probability of a guard."""
    agent = algo.replace("-", "_")
    return next(
        row
        for row in paper_numbers.paper_entry(("table1_guarded_maze", "rows"))
        if row["agent"] == agent and row["guard_probability"] == probability
    )


def ends_within_limit(run: RecordedRun) -> bool:
    """Return whether the last evaluation's risk of cost is within the limit."""
    constraint = run.config.constraints[0]
    risk = run.summary.get(f"{cost_column(constraint.name)}/risk")
    return risk is not None and risk <= constraint.limit


def _steps_cell(runs: Sequence[RecordedRun]) -> str:
    budget = runs[0].config.training.total_steps
    mean = mean_interval([steps_to_converge(run) for run in runs])
    if mean.low is not None and mean.high is not None:
        low, high = max(0.0, mean.low), min(float(budget), mean.high)
        mean = replace(mean, low=low, high=high)
    return cell(mean)


def make_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw the share of long paths over training, with a panel per probability of a guard."""
    panels = []
    for probability in PROBABILITIES:
        lines = [
            replace(result.group, label=AGENTS[result.case.config.algo])
            for result in results
            if guard_probability(result.case) == probability
        ]
        title = f"Share on the long path, guard {probability:g}"
        if lines:
            chart = curve_chart(
                title, lines, "env/path_long", long_path_curve, band=band, is_share=True
            )
            panels.append(chart)
    return draw_line_charts([panels], note=BAND_NOTES[band])


def run_columns(run: RecordedRun) -> dict[str, Any]:
    """Return the columns of runs.csv about convergence."""
    reached = convergence_of(run)
    return {"converged_at": reached.step, "later_share": reached.later_share}


TABLE1 = Study(
    name="table1",
    title=TITLE,
    cases=make_cases("quantile"),
    make_tables=make_tables,
    make_figure=make_figure,
    evaluate_every=lambda steps: 10_000,
    run_columns=run_columns,
    certifies=True,
)
TABLE1_IQN = replace(TABLE1, name="table1-iqn", cases=make_cases("implicit"))

PAPER_PATHS = {"sac-lag": "the short path", "wcsac": "stuck", "orac": "the long path"}
"""The path of each agent in the paper's Figure 1."""
PATHS = {"long path": "long", "guarded cell": "guarded", "neither": "none"}
"""Columns of Figure 1's table, and the maze's label of the episodes that each one counts."""


def make_path_tables(results: Sequence[CaseResults]) -> list[Table]:
    """Return a table of how often each agent takes each path in its last evaluation."""
    rows = []
    for result in results:
        values = seed_values(result.group) if result.evaluated else {}
        shares = [values.get(f"env/path_{label}") for label in PATHS.values()]
        cells = ["–" if share is None else f"{np.mean(share):.0%}" for share in shares]
        algo = result.case.config.algo
        agent, seeds = AGENTS[algo], str(len(result.evaluated))
        rows.append((agent, *cells, PAPER_PATHS[algo], seeds))
    columns = ("agent", *PATHS, "paper", "seeds")
    notes = (paper_numbers.budget_note(results), *missing_notes(results))
    return [Table(FIGURE1.title, columns, tuple(rows), notes)]


def make_path_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw one episode of each agent's first seed, from the corner and with a guard.

    The policy of the last checkpoint acts, which is also the policy of the last evaluation. A
    policy cannot observe the guard. There is no figure if a run directory is missing, because
    a record has no policies.
    """
    shown = [result for result in results if result.evaluated]
    if not all((result.evaluated[0].path / "checkpoints").is_dir() for result in shown):
        return None
    maze = GuardedMaze(**dict(shown[0].case.config.env.params))
    start = replace(maze, start_box=(1.0, 1.0, 1.0, 1.0), guard_probability=1.0)
    episodes = []
    for result in shown:
        run, label = result.evaluated[0], AGENTS[result.case.config.algo]
        agent = load(run.path)
        recording = record_episodes(
            start,
            lambda rows, agent=agent: agent.predict(rows, checkpoint="last")[0],
            seed=run.config.seed,
        )
        episodes += to_trajectories(maze, recording, label)
    return plot_trajectories(maze, episodes, FIGURE1.title)


FIGURE1 = Study(
    name="figure1",
    title="The way each agent takes in GuardedMaze",
    cases=tuple(
        replace(case, seeds=1)
        for case in TABLE1.cases
        if guard_probability(case) == 0.15
    ),
    make_tables=make_path_tables,
    make_figure=make_path_figure,
    evaluate_every=TABLE1.evaluate_every,
)
