"""Tests that saved evaluations of baselines and runs can be reported and compared like runs."""

import json

import pytest

from helpers.synthetic_runs import make_config, write_run
from orac.cli.main import main
from orac.reports import charts, report
from orac.reports.compare import compare
from orac.reports.run_reader import read_results

ENV = "orac/GuardedMaze-v0"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        write_run(root, make_config("orac", seed), episodes=50)
    for rule in ("long_path", "short_path"):
        options = ["evaluate", f"--rule={rule}", f"--env-id={ENV}", "--episodes=50"]
        assert main([*options, "--seeds", "0", "1", "2", f"--out={root}"]) == 0
    return root


def test_a_saved_baseline_is_read_as_a_run(root):
    found = read_results([root])
    labels = [group.label for group in found.groups]
    assert labels == ["orac", "long_path (rule)", "short_path (rule)"]
    rule = found.groups[1]
    assert rule.is_rule and len(rule.evaluated) == 3 and rule.runs[0].finished
    assert [len(run.evaluations["cost"]) for run in rule.runs] == [50] * 3
    assert (rule.runs[0].evaluations["cost"] == 4).all()
    assert not any("is at step" in note for note in found.notes)
    assert any(
        "rules in orac/GuardedMaze-v0 were not trained" in x for x in found.notes
    )


def test_the_report_ranks_agents_and_baselines(root):
    text = report.render([root], "markdown")
    assert "## Who wins where in orac/GuardedMaze-v0" in text
    rows = {
        line.split("|")[1].strip(): [x.strip() for x in line.split("|")[2:-1]]
        for line in text.partition("## Who wins")[2].splitlines()
        if line.startswith("|")
    }
    assert "short_path (rule)" not in rows["CVaR of cost at tail 0.05"][0]
    assert rows["reward"][0] != rows["reward (of those within their limit)"][0]
    assert "Best mean: " in text and "(Bonferroni)" in text


def test_baselines_are_not_in_the_tables_about_training(root):
    text = report.render([root], "markdown")
    training = text.partition("## Training in")[2].partition("##")[0]
    assert "orac" in training and "(rule)" not in training
    assert "Differences between the configs" not in text
    assert "| rule " in text.partition("## What was run where")[2]


def test_a_baseline_is_a_horizontal_line_in_the_curves(root):
    groups = read_results([root]).groups
    reward = charts.learning_charts(groups)[0]
    (line,) = [line for line in reward.lines if line.label == "long_path (rule)"]
    assert line.num_seeds == 3 and line.curve.x.tolist() == [0, 10_000]
    assert line.curve.mean[0] == line.curve.mean[1]


def test_an_agent_and_a_baseline_are_also_compared_in_the_environments_metrics(root):
    runs = root / "orac-GuardedMaze-v0"
    (table,) = compare(runs / "orac", runs / "long_path")
    verdicts = {row[0]: row[-1] for row in table.rows}
    assert verdicts["took the long path"] and verdicts["reward"]
    assert "B is long_path (rule) (3 seeds)" in table.notes[0]


def test_notes_report_other_parameters_and_numbers_of_episodes(root, tmp_path):
    options = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=20"]
    change = "--set=env.params.guard_probability=0.5"
    assert main([*options, change, f"--out={tmp_path}"]) == 0
    notes = " ".join(read_results([root, tmp_path]).notes)
    assert "differ in env.params" in notes and "about different tasks" in notes
    assert (
        "have 20 to 50 episodes. With fewer episodes, the CVaR and the worst" in notes
    )


def test_an_existing_directory_raises_an_error_before_any_episode(
    root, capsys, monkeypatch
):
    monkeypatch.setattr(
        "orac.cli.evaluate.evaluate_baseline", lambda *_: pytest.fail("it played")
    )
    options = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=50"]
    # Seed 3 is free, but its episodes would be lost because of the error about seed 2.
    assert main([*options, "--seeds", "3", "2", f"--out={root}"]) == 1
    assert "already holds a run or an evaluation" in capsys.readouterr().err


def test_several_seeds_of_a_baseline_are_printed_one_by_one(capsys):
    options = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=50"]
    assert main([*options, "--seeds", "3", "4"]) == 0
    assert capsys.readouterr().out.count("seed ") == 2
    assert main([*options, "--seeds", "3", "4", "--json"]) == 0
    assert [x["seed"] for x in json.loads(capsys.readouterr().out)] == [3, 4]


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        (["--rule=long_path", "--seeds", "1", "1"], "--seeds must all differ"),
        (["/nowhere", "--set=seed=1"], "a RUN has its own config"),
        (["--rule=long_path", "--set=env.params.guard=1"], "guard"),
        (["--rule=long_path", "--video=a.gif"], "cannot film a --rule"),
    ],
)
def test_options_that_do_not_fit_together_raise_an_error(options, fragment, capsys):
    assert main(["evaluate", f"--env-id={ENV}", *options]) == 1
    assert fragment in capsys.readouterr().err
