"""Tests of reading runs and grouping them by config."""

import time

import numpy as np
import pytest

from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.reports.run_reader import find_runs, read_columns, read_results, read_run


def test_runs_are_grouped_by_everything_except_the_seed(results):
    assert [group.label for group in results.groups] == ["orac", ODD_LABEL, "wcsac"]
    seeds = [[run.config.seed for run in group.runs] for group in results.groups]
    assert seeds == [[*range(5)], [0], [*range(5)]]
    assert results.notes == ()
    assert list(results.by_env()) == ["orac/GuardedMaze-v0"]


def test_run_is_found_once_however_often_it_is_named(study):
    one = next(study.rglob("seed-001"))
    assert len(find_runs([study, one, one / ".." / "seed-001"])) == 11


def test_missing_runs_are_an_error_that_shows_how_a_run_looks(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run found .*seed-000 and has"):
        find_runs([tmp_path])


def test_labels_list_the_fields_that_differ(tmp_path):
    for radius in (1.0, 4.0):
        config = make_config(changes=[f"agent.exploration.shift_radius={radius}"])
        write_run(tmp_path, config, name=f"radius-{radius:g}")
    labels = [group.label for group in read_results([tmp_path]).groups]
    assert labels == ["orac (shift_radius=1.0)", "orac (shift_radius=4.0)"]


def test_labels_have_the_runs_name_if_many_fields_differ(tmp_path):
    changes = ["agent.kappa=0.5", "agent.polyak=0.01", "agent.discount=0.9"]
    write_run(tmp_path, make_config(), name="plain")
    write_run(tmp_path, make_config(changes=changes), name="other")
    labels = {group.label for group in read_results([tmp_path]).groups}
    assert labels == {"orac (plain)", "orac (other)"}


def test_repeated_seed_counts_once_with_a_note(tmp_path):
    partial = write_run(tmp_path, make_config(), name="a", until=4000)
    whole = write_run(tmp_path, make_config(), name="b")
    found = read_results([tmp_path])
    assert [run.path for run in found.groups[0].runs] == [whole]
    (note,) = found.notes
    assert note == f"{partial} repeats seed 0 of {whole} and is not counted."


def test_stopped_run_without_evaluations_has_notes(tmp_path):
    write_run(tmp_path, make_config(seed=0), until=1000)
    found = read_results([tmp_path])
    assert "is at step 1,000 of 10,000" in found.notes[0]
    assert "has no evaluation" in found.notes[1]
    assert found.groups[0].evaluated == ()


def test_columns_allow_an_incomplete_last_row_and_empty_cells(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text('env_steps,"a,b",c\n1,,\n,nan,3\n3,4,5\n4,5')
    columns = read_columns(file)
    np.testing.assert_array_equal(columns["env_steps"], [1, np.nan, 3])
    np.testing.assert_array_equal(columns["a,b"], [np.nan, np.nan, 4])
    np.testing.assert_array_equal(columns["c"], [np.nan, 3, 5])
    assert read_columns(tmp_path / "none.csv") == {}


def test_damaged_log_is_an_error_that_names_it(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match=r"metrics\.csv must have 2 numbers in each"):
        read_columns(file)


def test_config_of_another_version_is_an_error_that_names_the_run(tmp_path):
    path = write_run(tmp_path, make_config())
    (path / "config.yaml").write_text("algo: orac\nflavour: sweet\n")
    with pytest.raises(ValueError, match=r"seed-000 cannot be used: .*flavour"):
        read_run(path)


def test_log_of_40_000_episodes_is_read_quickly(tmp_path):
    path = write_run(tmp_path, make_config(), training_episodes=40_000)
    started = time.perf_counter()
    episodes = read_columns(path / "episodes.csv")
    # About 0.1 s; the rest is for a busy machine.
    assert time.perf_counter() - started < 5
    assert len(episodes["cost"]) == 40_000
    assert set(np.unique(episodes["cost"])) == {2.0, 20.0}
