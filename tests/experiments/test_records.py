"""Tests of records: a study is rendered and continued from them without run directories."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from helpers.certificates import write_certificate
from helpers.study_examples import (
    FakeTraining,
    render,
    write_synthetic_runs,
)
from helpers.synthetic_runs import write_run
from orac.cli.main import main
from orac.config import overrides, serialization
from orac.experiments import run_study
from orac.experiments.records import collect, config_hash, read_record
from orac.experiments.run_study import STUDIES, StudyOptions
from orac.experiments.study import plan, with_settings
from orac.experiments.sweep import parse_grid

RESULTS = Path(__file__).parents[2] / "results"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(folder, name="runs.csv"):
    return [*csv.DictReader((folder / name).read_text().splitlines())]


def small(name):
    """Return a study with a few cases and runs of 10,000 steps."""
    if name == "sweep":
        grid = {"algos": ["orac", "wcsac"], "vary": {"constraints.0.tail": [0.1, 0.5]}}
        return parse_grid({**grid, "set": {"training.total_steps": 10_000}})[0]
    only = {
        "table2": ["PointGoal1"],
        "limit": ["GuardedMaze 0.15", "GuardedMaze 0.10"],
        "iqn-vs-linear": ["wcsac-lin"],
    }
    env = {"PointGoal1": "orac/SafetyPointGoal1-v0"}
    chosen = [env.get(word, word) for word in only.get(name, [])]
    return with_settings(STUDIES[name], 10_000, only=chosen)


@pytest.mark.parametrize(
    "name", ["table2", "table3", "limit", "iqn-vs-linear", "sweep"]
)
def test_record_without_run_directories_gives_the_same_files(name, tmp_path):
    study, runs, record = small(name), tmp_path / "runs", tmp_path / "record"
    write_synthetic_runs(study, runs, evaluations=3, episodes=9)
    if name == "limit":
        for seed, run in enumerate(collect(study, runs)[0].runs):
            upper = 4.6 if seed == 1 else 5.4
            write_certificate(run.path, upper=upper, reward=6.0 + seed / 7)
    shown = render(study, runs)
    if name in ("table2", "iqn-vs-linear"):
        assert "–" not in shown, "also tails that a case does not constrain have a CVaR"
    directly = contents(runs / study.name)
    render(study, runs, record=record)
    shutil.rmtree(runs)
    before = contents(record)
    assert (
        render(study, runs, record=record).splitlines()[:-1] == shown.splitlines()[:-1]
    )
    assert contents(record) == before
    assert directly == {name: before[name] for name in directly}
    assert not runs.exists()


def test_table_1_of_a_record_is_that_of_the_run_directories(maze, record, tmp_path):
    study, out = maze
    copy = tmp_path / "table1"
    shutil.copytree(record, copy)
    for name in ("table.md", "table.tex", "figure.png", "figure.pdf"):
        (copy / name).unlink()
    # The options that made the runs are not repeated: the record has their configs.
    command = ["reproduce", "table1", "--render-only", f"--record={copy}"]
    assert main([*command, f"--out={tmp_path / 'none'}"]) == 0
    assert contents(copy) == contents(record)
    found = collect(study, tmp_path / "none", folder=copy)
    for result, other in zip(found, collect(study, out), strict=True):
        assert not overrides.difference(result.config, other.config)
        assert len(result.runs) == 3
        for ours, theirs in zip(result.runs, other.runs, strict=True):
            assert {**theirs.row, **ours.row} == ours.row
            assert [*ours.curves] == [*theirs.curves]
            for key, values in theirs.curves.items():
                np.testing.assert_array_equal(ours.curves[key], values)


def test_record_is_complete_and_names_no_paths(maze, record):
    _, out = maze
    names = {path.name for path in record.iterdir()}
    assert names == {
        "table.md",
        "table.tex",
        "runs.csv",
        "curves.csv",
        "config.yaml",
        "commit",
        "figure.png",
        "figure.pdf",
    }
    for name in names - {"figure.png", "figure.pdf"}:
        assert str(out) not in (record / name).read_text(), name
    assert (record / "commit").read_text() == "abc123  18 runs\n"
    runs, curves = rows_of(record), rows_of(record, "curves.csv")
    assert len(runs) == 18 and {"converged_at", "cost/cvar_0.05"} <= set(runs[0])
    assert runs[0]["commit"] == "abc123" and runs[0]["machine"] == "x86_64"
    assert runs[0]["threads"] == "2" and runs[0]["minutes"] == "0.2"
    assert len({(row["case"], row["config"]) for row in runs}) == 6
    assert len({row["config"] for row in runs}) == 6
    assert len(curves) == 18 * 10
    keys = {"reward/mean", "cost/mean", "cost/cvar_0.05", "env/path_long"}
    assert keys <= set(curves[0])


def test_recorded_config_has_every_field(maze, record):
    study, _ = maze
    written = yaml.safe_load((record / "config.yaml").read_text())
    case = study.cases[-1]
    flat = overrides.flatten(serialization.to_dict(replace(case.config, seed=0)))
    del flat["seed"]
    assert {**written["all"], **written["cases"][case.label]} == flat
    assert "env.params.guard_probability" in written["cases"][case.label]


def test_rows_of_an_evaluation_that_is_not_finite_stay_empty(tmp_path):
    study = small("table3")
    write_synthetic_runs(study, tmp_path / "runs", 1, evaluations=3, episodes=9)
    run = plan(study, [0], tmp_path / "runs")[0]
    file = run.path / "evaluations.csv"
    *lines, last = file.read_text().splitlines()
    step, episode, _, rest = last.split(",", 3)
    file.write_text("\n".join([*lines, f"{step},{episode},inf,{rest}"]) + "\n")
    shown = render(study, tmp_path / "runs")
    folder = tmp_path / "record"
    render(study, tmp_path / "runs", record=folder)
    assert rows_of(folder)[0]["reward/mean"] == ""
    assert [row["reward/mean"] == "" for row in rows_of(folder, "curves.csv")][:3] == [
        *(False, False, True)
    ]
    shutil.rmtree(tmp_path / "runs")
    again = render(study, tmp_path / "runs", record=folder)
    assert again.splitlines()[:-1] == shown.splitlines()[:-1]


def train(study, out, record, monkeypatch, seeds=(0, 1, 2), killed_at=None):
    """Run a study with made-up training; return the backend and what was logged."""
    backend, lines = FakeTraining(killed_at), []
    monkeypatch.setattr(run_study, "make_backend", lambda options: backend)
    options = StudyOptions(out, seeds=seeds, record=record)
    try:
        assert run_study.run(study, options, lines.append) == 0
    except KeyboardInterrupt:
        lines.append("killed")
    return backend, "\n".join(lines)


@pytest.fixture
def orac(monkeypatch):
    """Return ORAC's two cases of Table 1, with 10,000 steps and no pauses."""
    monkeypatch.setattr("orac.experiments.launcher.schedule.POLL_SECONDS", 0)
    return with_settings(STUDIES["table1"], 10_000, only=["orac"])


def test_only_the_seeds_that_a_record_lacks_are_trained(orac, tmp_path, monkeypatch):
    whole, _ = train(orac, tmp_path / "a", tmp_path / "whole", monkeypatch)
    assert len(whole.trained) == 6
    folder = tmp_path / "record"
    train(orac, tmp_path / "b", folder, monkeypatch, seeds=(0, 2))
    before = rows_of(folder)
    # The run directories of the first machine are not there on the second.
    backend, log = train(orac, tmp_path / "c", folder, monkeypatch)
    assert {seed for _, seed in backend.trained} == {1} and len(backend.trained) == 2
    assert f"4 of 6 runs are finished in {folder}." in log
    assert all(row in rows_of(folder) for row in before)
    assert contents(folder) == contents(tmp_path / "whole")
    backend, _ = train(orac, tmp_path / "d", folder, monkeypatch)
    assert backend.trained == []


def test_killed_study_keeps_the_rows_of_finished_runs(orac, tmp_path, monkeypatch):
    folder = tmp_path / "record"
    backend, log = train(orac, tmp_path / "a", folder, monkeypatch, killed_at=3)
    assert log.endswith("killed") and len(backend.trained) == 3
    found = {(row["case"], int(row["seed"])) for row in rows_of(folder)}
    assert found == {*backend.trained}
    later, _ = train(orac, tmp_path / "b", folder, monkeypatch)
    assert {*later.trained}.isdisjoint(backend.trained) and len(later.trained) == 3


def test_a_run_without_its_certificate_is_not_finished(tmp_path, monkeypatch):
    monkeypatch.setattr("orac.experiments.launcher.schedule.POLL_SECONDS", 0)
    study, folder = small("limit"), tmp_path / "record"
    study = with_settings(study, only=["GuardedMaze 0.15"])
    train(study, tmp_path / "a", folder, monkeypatch, seeds=(0, 1))
    (path, _) = [run.path for run in plan(study, (0, 1), tmp_path / "a")]
    (path / "certificate.json").unlink()
    shutil.rmtree(folder)
    render(study, tmp_path / "a", record=folder)
    assert [row["finished"] for row in rows_of(folder)] == ["False", "True"]
    write_certificate(path)
    render(study, tmp_path / "a", record=folder)
    assert [row["certified"] for row in rows_of(folder)] == ["True", "True"]
    backend, _ = train(study, tmp_path / "b", folder, monkeypatch, seeds=(0, 1))
    assert backend.trained == []


def test_cases_that_are_not_wanted_stay_in_the_record(orac, tmp_path, monkeypatch):
    folder = tmp_path / "record"
    train(orac, tmp_path / "a", folder, monkeypatch, seeds=(0,))
    before = rows_of(folder)
    # Other settings of a case that is not wanted now do not matter.
    other = with_settings(STUDIES["table1"], 20_000, only=["sac-lag"])
    train(other, tmp_path / "b", folder, monkeypatch, seeds=(0,))
    labels = [row["case"] for row in rows_of(folder)]
    assert labels == [
        "SAC-Lag, guard 0.15",
        "ORAC, guard 0.15",
        "SAC-Lag, guard 0.1",
        "ORAC, guard 0.1",
    ]
    after = {row["case"]: row for row in rows_of(folder)}
    assert all(after[row["case"]] == row for row in before)
    assert (folder / "table.md").read_text().count("(paper 10)") == 4


def test_record_with_other_settings_raises_before_training(orac, tmp_path, monkeypatch):
    folder = tmp_path / "record"
    train(orac, tmp_path / "a", folder, monkeypatch, seeds=(0,))
    before = contents(folder)
    other = with_settings(STUDIES["table1"], 10_000, ["agent.kappa=0.5"], ["orac"])
    with pytest.raises(
        ValueError,
        match=r"record holds other settings than ORAC, guard 0.15, seed 1 \(agent.kappa: "
        r"1.0 there, 0.5 here\), but .* Repeat the recorded settings, or choose another",
    ):
        train(other, tmp_path / "b", folder, monkeypatch, seeds=(1,))
    assert not (tmp_path / "b").exists()
    run = plan(other, (1,), tmp_path / "b")[0]
    write_run(tmp_path / "b", run.config, name=run.name)
    with pytest.raises(ValueError, match="Repeat the recorded settings"):
        render(orac, tmp_path / "b", record=folder)
    assert contents(folder) == before


def test_a_more_advanced_run_replaces_its_row(orac, tmp_path, monkeypatch):
    folder, (run, *_) = tmp_path / "record", plan(orac, (0,), tmp_path / "a")
    for out, until, steps in (
        ("a", 5_000, 5_000),
        ("b", 2_500, 5_000),
        ("c", None, 10_000),
    ):
        write_run(tmp_path / out, run.config, name=run.name, until=until, rows=4)
        render(orac, tmp_path / out, record=folder)
        assert [int(row["steps"]) for row in rows_of(folder)] == [steps]
    # Without a checkpoint of its last step the run is not finished.
    backend, _ = train(orac, tmp_path / "d", folder, monkeypatch, seeds=(0,))
    assert len(backend.trained) == 2


def test_record_of_another_study_raises(maze, record):
    study = with_settings(STUDIES["figure1"], 100_000)
    with pytest.raises(
        ValueError, match="is a record of the study table1, not of figure1"
    ):
        render(study, maze[1], record=record)


def test_empty_record_without_runs_raises(maze, tmp_path):
    with pytest.raises(ValueError, match=r"nothing to record .* Is --out the folder"):
        render(maze[0], tmp_path / "none", record=tmp_path / "record")


@pytest.mark.parametrize("name", ["table1", "table1_one_per_step", "table2", "table3"])
def test_record_of_an_earlier_version_is_not_rewritten(name, tmp_path, capsys):
    folder = tmp_path / name
    shutil.copytree(RESULTS / name, folder)
    if "config" in rows_of(folder)[0]:
        pytest.skip("this record was made again")
    before = contents(folder)
    study = name.removesuffix("_one_per_step")
    command = ["reproduce", study, f"--record={folder}", f"--out={tmp_path / 'none'}"]
    for option in (["--render-only"], []):
        assert main([*command, *option]) == 1
        assert "was recorded by an earlier version of orac" in capsys.readouterr().err
    assert contents(folder) == before


def with_line(text, line, number):
    lines = text.splitlines()
    return "\n".join([*lines[:number], line, *lines[number:]]) + "\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "it has no column case"),
        (lambda text: text + '"', "it is not a table"),
        (lambda text: text.replace("case", "kase", 1), "it has no column case"),
        (lambda text: with_line(text, "a,b,c", 2), "line 3 has 3 cells instead of"),
        (
            lambda text: with_line(text, text.splitlines()[1], 1),
            "it has two rows of SAC-Lag, guard 0.15, seed 0",
        ),
        (
            lambda text: text.replace(",100000,", ",x,", 1),
            "line 2 has 'x' in the column steps",
        ),
        (
            lambda text: text.replace(",10,100000", ",9,100000", 1),
            "seed 0 has 9 evaluations there and 10 in curves.csv",
        ),
        (
            lambda text: text.replace("SAC-Lag", "SAC", 1),
            "config.yaml does not have the config of SAC, guard 0.15",
        ),
    ],
)
def test_damaged_record_raises_and_is_not_touched(
    damage, message, maze, record, tmp_path
):
    folder = tmp_path / "table1"
    shutil.copytree(record, folder)
    (folder / "runs.csv").write_text(damage((record / "runs.csv").read_text()))
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        render(*maze, record=folder)
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["curves.csv", "config.yaml"])
def test_record_without_one_of_its_files_raises(name, maze, record, tmp_path):
    folder = tmp_path / "table1"
    shutil.copytree(record, folder)
    (folder / name).unlink()
    with pytest.raises(
        ValueError, match=f"{name} must be a file that orac wrote for --record"
    ):
        render(*maze, record=folder)


def test_recorded_config_of_another_version_is_still_the_same(maze, record, tmp_path):
    """A field that is added with its default later does not change recorded settings."""
    study, _ = maze
    folder = tmp_path / "table1"
    shutil.copytree(record, folder)
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written["all"].pop("agent.kappa") == 1.0
    (folder / "config.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
    with pytest.raises(ValueError, match="does not have the config of"):
        read_record(folder, study)
    rows = (folder / "runs.csv").read_text()
    for label, fields in written["cases"].items():
        old = next(row["config"] for row in rows_of(folder) if row["case"] == label)
        rows = rows.replace(old, config_hash({**written["all"], **fields}))
    (folder / "runs.csv").write_text(rows)
    found = read_record(folder, study)
    for case in study.cases:
        found.check(case.label, "it", case.config)
