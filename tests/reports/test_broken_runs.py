"""Tests of reports on damaged runs: a note names the damage, and the other runs are shown."""

import csv
import io
import json

import numpy as np
import pytest

from helpers.synthetic_runs import make_config, write_run
from orac.cli.main import main
from orac.reports import report
from orac.reports.charts import pooled_costs, report_charts
from orac.reports.compare import compare
from orac.reports.report_metrics import evaluation_curve, seed_values
from orac.reports.run_reader import find_runs, read_results, read_run
from orac.reports.tables import to_text


def break_row(path, row, value, columns=(2, 3)):
    """Replace reward and cost in one row of the evaluations by `value`."""
    file = path / "evaluations.csv"
    lines = file.read_text().splitlines()
    cells = lines[row].split(",")
    for column in columns:
        cells[column] = value
    lines[row] = ",".join(cells)
    file.write_text("\n".join(lines) + "\n")


def write_pair(root):
    """Write two runs of WCSAC and three of ORAC, and return the last path."""
    for seed in range(2):
        write_run(root, make_config("wcsac", seed))
    return [write_run(root, make_config("orac", seed)) for seed in range(3)][-1]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_run_with_a_non_finite_episode_is_named_and_has_no_numbers(
    tmp_path, value, capsys
):
    bad = write_pair(tmp_path)
    break_row(bad, -1, value)
    found = read_results([tmp_path])
    (note,) = found.notes
    assert note.startswith(f"{bad} has episodes with a reward, cost or length")
    assert "1 of 20 at step 10,000" in note
    group = next(group for group in found.groups if group.label == "orac")
    values = seed_values(group)
    assert {"cost/violation_rate", "cost/var_0.05", "env/path_long"} <= values.keys()
    for numbers in values.values():
        assert np.isnan(numbers).tolist() == [False, False, True]
    assert len(pooled_costs(group, "cost")) == 40
    text = report.render([tmp_path], "markdown")
    row = next(line for line in text.splitlines() if line.startswith("| orac"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "3 (1 not finite)" and set(cells[3:-1]) == {"–"}
    assert note in text and note in report.render([tmp_path]).replace("&#x27;", "'")
    assert main(["report", str(tmp_path), "--format=csv"]) == 0
    printed = capsys.readouterr()
    rows = [*csv.DictReader(io.StringIO(printed.out))]
    assert {r["mean"] for r in rows if r["agent"] == "orac"} == {""}
    assert "" not in {r["mean"] for r in rows if r["agent"] == "wcsac"}
    assert printed.err == f"note: {note}\n"


def test_comparison_names_the_run_with_non_finite_episodes(tmp_path):
    bad = write_pair(tmp_path)
    break_row(bad, -1, "nan")
    folder = tmp_path / "orac-GuardedMaze-v0"
    tables = compare(folder / "orac", folder / "wcsac")
    assert str(bad) in "\n".join(map(to_text, tables))


def test_earlier_non_finite_evaluation_is_left_out_of_curves_with_a_note(
    tmp_path,
):
    bad = write_pair(tmp_path)
    break_row(bad, 1, "nan", columns=(2,))
    (note,) = read_results([tmp_path]).notes
    assert "1 of 20 at step 2,000; curves leave these evaluations out." in note
    run = read_run(bad)
    for column in ("reward", "cost"):
        values = evaluation_curve(run, column)[1]
        assert np.isnan(values).tolist() == [True, False, False, False, False]
    measured = report_charts(read_results([tmp_path]).groups)[0]
    assert measured.lines[0].curve.count.tolist() == [2, 3, 3, 3, 3]


def test_note_lists_the_last_evaluations_and_counts_the_others(tmp_path):
    bad = write_run(tmp_path, make_config(), evaluations=5)
    for row in (1, 21, 41, 61):
        break_row(bad, row, "inf")
    (note,) = read_results([tmp_path]).notes
    assert (
        "4,000, 1 of 20 at step 6,000, 1 of 20 at step 8,000, and in 1 earlier" in note
    )


def test_evaluations_with_only_a_header_are_no_evaluations(tmp_path):
    bad = write_pair(tmp_path)
    file = bad / "evaluations.csv"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    for form in ("html", "markdown"):
        assert f"{bad} has no evaluation" in report.render([tmp_path], form)


def test_non_finite_speed_does_not_prevent_the_page(tmp_path):
    bad = write_pair(tmp_path)
    header, *rows = (bad / "timings.csv").read_text().splitlines()
    rows = [f"{row.rpartition(',')[0]},nan" for row in rows]
    (bad / "timings.csv").write_text("\n".join([header, *rows, ""]))
    assert "Training in" in report.render([tmp_path])


SPOILERS = {
    "config.yaml": ("algo: [orac", "config.yaml cannot be read"),
    "meta.json": ("{", "meta.json cannot be read"),
    "evaluations.csv": ("env_steps,reward\n1,x\n", "must have 2 numbers in each row"),
    "metrics.csv": (
        "env_steps,episodes\nnan,3\n",
        "whole number of env_steps, at least 0, in every row",
    ),
}


SPOILED = [(name, *spoiler) for name, spoiler in SPOILERS.items()]
SPOILED.append(
    ("metrics.csv", "env_steps,episodes\ninf,3\n", "whole number of env_steps")
)


@pytest.mark.parametrize(("name", "text", "reason"), SPOILED)
def test_unreadable_run_is_left_out_with_a_note(tmp_path, name, text, reason):
    bad = write_pair(tmp_path)
    (bad / name).write_text(text)
    found = read_results([tmp_path])
    assert [len(group.runs) for group in found.groups] == [2, 2]
    (note,) = found.notes
    assert note.startswith(f"{bad} is left out: ") and reason in note
    assert str(bad) in report.render([tmp_path])


def test_unknown_field_or_invalid_metadata_leaves_out_only_its_run(tmp_path):
    bad = write_pair(tmp_path)
    with open(bad / "config.yaml", "a") as file:
        file.write("flavour: sweet\n")
    (note,) = read_results([tmp_path]).notes
    assert "flavour" in note
    other = next(path for path in find_runs([tmp_path]) if path != bad)
    (other / "meta.json").write_text(json.dumps({"evaluated": 3}))
    notes = read_results([tmp_path]).notes
    assert any("must be a mapping" in note for note in notes)


def test_run_without_metadata_is_noted(tmp_path):
    bad = write_pair(tmp_path)
    (bad / "meta.json").unlink()
    (note,) = read_results([tmp_path]).notes
    assert note.startswith(f"{bad} is left out: ") and "meta.json" in note


def test_config_of_another_program_is_not_a_run(tmp_path):
    write_pair(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("theirs: true\n")
    assert read_results([tmp_path]).notes == ()


def test_error_lists_the_reasons_if_no_run_can_be_read(tmp_path, capsys):
    bad = write_run(tmp_path, make_config())
    (bad / "meta.json").write_text("{")
    assert main(["report", str(tmp_path), "--format=markdown"]) == 1
    error = capsys.readouterr().err
    assert "none of the runs found can be read" in error and str(bad) in error
