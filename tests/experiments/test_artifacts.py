"""Tests of the files that record a study."""

import csv
from dataclasses import replace

import pytest
import yaml

from helpers.study_examples import render
from orac.config import serialization
from orac.experiments.run_study import STUDIES
from orac.experiments.study import with_settings


def test_record_that_would_lose_runs_raises_and_changes_nothing(maze, record, tmp_path):
    before = {path.name: path.read_bytes() for path in record.iterdir()}
    with pytest.raises(ValueError, match=r"nothing to record .* Is --out the folder"):
        render(maze[0], tmp_path, record=record)
    fewer = with_settings(STUDIES["table1"], 100_000, only=["orac"])
    with pytest.raises(ValueError, match="records 12 runs that are not among these"):
        render(fewer, maze[1], record=record)
    assert before == {path.name: path.read_bytes() for path in record.iterdir()}


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
    runs = [*csv.DictReader((record / "runs.csv").read_text().splitlines())]
    assert len(runs) == 18 and {"converged_at", "cost/cvar_0.05"} <= set(runs[0])
    curves = [*csv.DictReader((record / "curves.csv").read_text().splitlines())]
    assert len(curves) == 18 * 10
    assert {"reward", "cost", "cost/cvar_0.05", "long_path"} <= set(curves[0])


def test_recorded_config_has_every_field(maze, record):
    study, _ = maze
    written = yaml.safe_load((record / "config.yaml").read_text())
    case = study.cases[-1]
    flat = serialization.flatten(serialization.to_dict(replace(case.config, seed=0)))
    del flat["seed"]
    assert {**written["all"], **written["cases"][case.label]} == flat
    assert "env.params.guard_probability" in written["cases"][case.label]
