"""Tests of the tables of a report, and of writing reports in every format."""

import csv
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.command_examples import train_arguments
from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.cli.main import main
from orac.evaluation.seed_intervals import interquartile_mean, mean_interval
from orac.reports import report
from orac.reports.report_metrics import seed_mean, seed_values
from orac.reports.run_reader import read_results
from orac.reports.tables import cell


def table_rows(text, title, agent):
    """Return the cells of an agent's row in a table of a markdown report."""
    table = text.partition(f"## {title}")[2].partition("##")[0]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {agent} ")]
    return [text.strip() for text in row.strip("|").split("|")]


def test_result_table_has_intervals_over_seeds_and_their_number(
    markdown_report, groups
):
    group = groups["wcsac"]
    cells = table_rows(markdown_report, "Results", "wcsac")
    assert cells[1] == "5"
    assert cells[5] == cell(seed_mean(seed_values(group), "cost/cvar_0.05", group))


def test_interquartile_means_are_in_their_table(markdown_report, groups):
    middle = interquartile_mean(seed_values(groups["wcsac"])["reward/mean"])
    assert cell(middle) in table_rows(markdown_report, "Interquartile", "wcsac")


def test_interquartile_mean_is_cut_at_the_bounds_of_a_cost(tmp_path):
    for seed, worst in enumerate((2, 2, 20)):
        path = write_run(tmp_path, make_config(seed=seed), evaluations=1)
        file = path / "evaluations.csv"
        file.write_text(re.sub(r",(20|2)\.0,", f",{worst}.0,", file.read_text()))
    text = report.render([tmp_path], "markdown")
    for title in ("Results", "Interquartile"):
        # The maze declares that an episode costs at most 24.
        assert "8.0 [0.0, 24.0]" in table_rows(text, title, "orac")


@pytest.mark.parametrize(
    ("risks", "verdict"),
    [
        ((2.0, 2.1, 2.2), "within"),
        ((9.0, 9.1, 9.2), "broken"),
        ((2.0, 5.0, 8.0), "undecided"),
        ((2.0,), "below, one seed"),
        ((9.0,), "above, one seed"),
        ((4.0, 4.0, 4.0), "below, same value for all 3 seeds"),
        ((9.0, 9.0, 9.0), "above, same value for all 3 seeds"),
    ],
)
def test_a_risk_is_within_its_limit_only_if_the_whole_interval_is_below(risks, verdict):
    assert report._limit_verdict(mean_interval(np.array(risks)), 5.0) == verdict


def test_latex_escapes_and_balances(study):
    text = report.render([study], "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 7
    assert r"agent.risk\_form" in text and r"\textbar{}\&\_\%" in text
    body = re.sub(r"^%.*$", "", text, flags=re.M)
    assert not re.search(r"(?<!\\)[%#$]", body)


def test_csv_has_every_number_unrounded(study, groups):
    rows = [*csv.DictReader(io.StringIO(report.render([study], "csv")))]
    reward = {r["agent"]: r for r in rows if r["measure"] == "reward/mean"}
    group = groups["wcsac"]
    mean = seed_mean(seed_values(group), "reward/mean", group)
    assert mean is not None
    found = [float(reward["wcsac"][name]) for name in ("mean", "low", "high")]
    assert found == [mean.estimate, mean.low, mean.high]
    assert reward[ODD_LABEL]["seeds"] == "1" and reward[ODD_LABEL]["low"] == ""


def test_unknown_format_is_an_error_with_the_nearest_one(study):
    with pytest.raises(ValueError, match="Did you mean 'markdown'"):
        report.render([study], "markdwn")


def test_command_writes_the_format_of_the_suffix_and_draws_figures(
    study, tmp_path, capsys
):
    assert main(["report", str(study), "--out", str(tmp_path / "a/r.md")]) == 0
    assert (tmp_path / "a/r.md").read_text().startswith("## Results in")
    figures = str(tmp_path / "figures")
    arguments = ["report", str(study), "--format=csv", f"--figures={figures}"]
    assert main(arguments) == 0
    assert "\nFigure: " in capsys.readouterr().out
    assert len([*(tmp_path / "figures").glob("*.pdf")]) == 3


def test_command_fails_if_there_is_no_run(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "no run found at or below" in capsys.readouterr().err


def test_the_default_file_replaces_only_reports(study, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("report.html").write_text("<p>my thesis</p>")
    assert main(["report", str(study)]) == 1
    assert "Choose another file with --out" in capsys.readouterr().err
    assert Path("report.html").read_text() == "<p>my thesis</p>"
    Path("report.html").unlink()
    assert main(["report", str(study)]) == 0
    assert main(["report", str(study)]) == 0, "a report may be replaced by a newer one"


def test_run_can_be_reported_after_it_was_moved(study, tmp_path):
    shutil.copytree(next(study.rglob("seed-001")), tmp_path / "anywhere")
    assert "anywhere" in report.render([tmp_path / "anywhere"], "markdown")


@pytest.mark.slow
def test_report_reads_what_training_and_evaluation_write(tmp_path):
    tiny = train_arguments(3200, 1600)
    assert main(["train", "--algo=orac", f"--out={tmp_path}", *tiny]) == 0
    assert main(["evaluate", *map(str, tmp_path.rglob("seed-000"))]) == 0
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path), f"--out={out}"]) == 0
    text = out.read_text()
    for part in (
        "Multiplier of cost",
        "Risk of cost in the critics",
        "guard present",
        "Paths of each agent",
        "3,200 of 3,200",
        "one seed",
    ):
        assert part in text
    (group,) = read_results([tmp_path]).groups
    assert group.runs[0].finished and len(group.runs[0].evaluation_steps) == 2
    again = ["evaluate", str(group.runs[0].path), "--episodes=30"]
    assert main([*again, f"--out={tmp_path / 'again'}"]) == 0
    found = read_results([tmp_path / "again"])
    (run,) = found.groups[0].runs
    assert run.is_saved_evaluation and run.rule is None and run.finished
    assert found.notes == ()
    assert run.steps == 3200 and len(run.evaluations["cost"]) == 30
    text = report.render([tmp_path / "again"])
    assert "Paths of each agent" in text, "the policy is found where it was trained"
    assert "Training in" not in text
