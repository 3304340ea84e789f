"""Tests of convergence in the maze, with answers worked out by hand, and of Table 1."""

from types import SimpleNamespace

import numpy as np
import pytest

from helpers.certificates import write_certificate
from helpers.study_examples import render, write_synthetic_runs
from helpers.synthetic_runs import make_config, write_rows
from orac.config.serialization import to_dict
from orac.experiments import table1
from orac.experiments.launcher.schedule import PlannedRun
from orac.experiments.records import collect, read_row
from orac.experiments.run_study import STUDIES
from orac.experiments.study import plan, with_settings
from orac.experiments.table1 import (
    Convergence,
    convergence_of,
    find_convergence,
    long_path_curve,
    paper_row,
    steps_to_converge,
)
from orac.reports.run_reader import read_run
from orac.runs.directory import RunDirectory

STEPS = np.arange(1, 13) * 10_000


def curve(*percents):
    return STEPS[: len(percents)], np.array(percents) / 100


def test_convergence_is_the_first_of_five_good_evaluations_in_a_row():
    # Good from the third (30,000) to the seventh; then one of three later ones is bad.
    shares = curve(0, 50, 90, 95, 100, 90, 91, 89, 100, 100)
    assert find_convergence(*shares) == Convergence(30_000, 2 / 3)


def test_four_good_evaluations_in_a_row_are_not_enough():
    shares = curve(0, 90, 90, 90, 90, 89, 90, 90, 90, 90)
    assert find_convergence(*shares).step is None


def test_a_bad_evaluation_restarts_the_count():
    # Four good ones from 10,000, a bad one, then five from 60,000 to the end.
    shares = curve(95, 95, 95, 95, 10, 95, 95, 95, 95, 95)
    assert find_convergence(*shares) == Convergence(60_000, None)


def test_ninety_percent_is_enough_and_less_is_not():
    assert find_convergence(*curve(*[90] * 5)).step == 10_000
    assert find_convergence(*curve(*[89.99] * 5)).step is None


def test_run_without_evaluations_has_not_converged():
    assert find_convergence(np.empty(0), np.empty(0)) == Convergence(None, None)


def record_paths(root, counts, total=500_000):
    """Return the row of a run with `counts` long paths in evaluations of ten episodes."""
    config = make_config("orac", 0, total)
    with RunDirectory.create(root, config.env.id, "orac", 0, to_dict(config)) as run:
        rows = [
            {
                "env_steps": 10_000 * (i + 1),
                "episode": j,
                "reward": -20.0,
                "cost": 4.0,
                "length": 40,
                "path": 1.0 if j < count else (-1.0 if j % 2 else 0.0),
            }
            for i, count in enumerate(counts)
            for j in range(10)
        ]
        write_rows(run, "evaluations", rows)
    return read_row(STUDIES["table1"], PlannedRun("ORAC", config, "default", root))


def test_convergence_of_a_run_counts_its_long_paths(tmp_path):
    run = record_paths(tmp_path, [0, 8, 9, 10, 9, 9, 10, 0])
    steps, shares = long_path_curve(run)
    assert steps.tolist() == [10_000 * i for i in range(1, 9)]
    assert shares.tolist() == [0.0, 0.8, 0.9, 1.0, 0.9, 0.9, 1.0, 0.0]
    assert convergence_of(run) == Convergence(30_000, 0.0)
    assert steps_to_converge(run) == 30_000
    assert (run.row["converged_at"], run.row["later_share"]) == (30_000, 0.0)


def test_run_that_never_converges_counts_with_its_whole_budget(tmp_path):
    run = record_paths(tmp_path, [10, 10, 10, 10, 0, 10])
    assert steps_to_converge(run) == 500_000


def test_table_1_shows_our_numbers_and_the_papers(maze):
    study, out = maze
    text = render(study, out)
    lines = [line.split() for line in text.splitlines() if " 0.15 " in line]
    assert [line[0] for line in lines] == ["SAC-Lag", "WCSAC", "ORAC"]
    orac = next(line for line in text.splitlines() if "ORAC" in line and "0.15" in line)
    assert "100%" in orac and "230,000" in orac and "3 (paper 10)" in orac
    budget = "100,000 steps, 1 environment, 1 gradient step per environment step, an"
    assert f"Ours: {budget}" in text
    assert "Changed from the preset" not in text and "can have converged" not in text
    assert "Partial" not in text


def test_table_1_counts_success_and_steps_over_seeds(maze):
    study, out = maze
    results = collect(study, out)
    (table,) = study.make_tables(results)
    # Made-up agents take the long path in ever more of 20 episodes; count by hand.
    steps = []
    for run in (read_run(run.path) for run in results[0].runs):
        at, path = run.evaluations["env_steps"], run.evaluations["path"]
        good = [(path[at == step] == 1).mean() >= 0.9 for step in np.unique(at)]
        first = [i for i in range(6) if all(good[i : i + 5])]
        steps.append(10_000 * (first[0] + 1) if first else 100_000)
    share = sum(step < 100_000 for step in steps) / 3
    assert table.rows[0][2].startswith(f"{share:.0%} [")
    assert float(table.rows[0][4].split()[0].replace(",", "")) == pytest.approx(
        np.mean(steps), rel=0.001
    )


def test_table_1_counts_the_seeds_that_end_within_the_limit(maze):
    study, out = maze
    results = collect(study, out)
    (table,) = study.make_tables(results)
    for result, row in zip(results, table.rows, strict=True):
        within = 0
        for run in (read_run(run.path) for run in result.runs):
            at = run.evaluations["env_steps"]
            worst = run.evaluations["cost"][at == at.max()].max()
            # The worst 5 % of 20 episodes are one.
            within += worst <= run.config.constraints[0].limit
        assert row[table.columns.index("within limit")] == f"{within} of 3"


def test_table_1_counts_the_certified_policies(maze, tmp_path):
    study, _ = maze
    write_synthetic_runs(study, tmp_path, 2, evaluations=2, episodes=8)
    for run in plan(study, [0, 1], tmp_path)[:6]:
        upper = 4.6 if run.config.algo == "orac" else 5.4
        write_certificate(run.path, upper=upper)
    (table,) = study.make_tables(collect(study, tmp_path))
    column = table.columns.index("certified")
    assert [row[column] for row in table.rows] == ["0 of 1", "0 of 1", "1 of 1"] * 2


def test_table_names_every_setting_that_differs_from_the_preset(tmp_path):
    settings = ["agent.kappa=0.5", "evaluation.every=4000", "evaluation.episodes=7"]
    study = with_settings(STUDIES["table1"], 12_000, settings)
    write_synthetic_runs(study, tmp_path, evaluations=3, episodes=7)
    text = render(study, tmp_path)
    assert (
        "an evaluation of 7 episodes every 4,000 steps. Changed from the preset: "
        in text
    )
    assert "Changed from the preset: agent.kappa 0.5 (1.0). The paper" in text
    assert "takes 5 evaluations and no run has more than 3." in text


def test_rows_of_the_paper_are_found_by_agent_and_probability():
    assert paper_row("wcsac", 0.1) == {
        "agent": "wcsac",
        "guard_probability": 0.1,
        "success": 0.3,
        "steps": 425000,
    }
    assert paper_row("sac-lag", 0.15)["steps"] is None


def test_figure_1_shows_the_share_of_each_path(maze):
    _, out = maze
    study = with_settings(STUDIES["figure1"], 100_000)
    results = collect(study, out)
    (table,) = study.make_tables(results)
    for result, row in zip(results, table.rows, strict=True):
        runs = [read_run(run.path) for run in result.runs]
        last = [run.evaluations["path"][-20:] for run in runs]
        shares = [np.mean(np.stack(last) == code) for code in (1, -1, 0)]
        assert [*row[1:4]] == [f"{share:.0%}" for share in shares]


def test_figure_1_draws_the_policy_of_the_last_evaluation(tmp_path, monkeypatch):
    study = with_settings(STUDIES["figure1"], 20_000)
    write_synthetic_runs(study, tmp_path, evaluations=2, episodes=5)
    results = collect(study, tmp_path)
    for result in results:
        (result.evaluated[0].path / "checkpoints").mkdir(exist_ok=True)
    asked = set()

    def predict(rows, checkpoint=None):
        asked.add(checkpoint)
        return np.ones((len(rows), 2)), None

    monkeypatch.setattr(table1, "load", lambda path: SimpleNamespace(predict=predict))
    assert table1.make_path_figure(results, "") is not None
    assert asked == {"last"}
