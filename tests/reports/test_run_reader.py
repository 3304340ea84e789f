"""Tests of reading runs and grouping them by config."""

import json
import math
import time

import numpy as np
import pytest

from helpers.certificates import make_certificate
from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.cli.train import delivered_line
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
    started = time.process_time()
    episodes = read_columns(path / "episodes.csv")
    # About 0.1 s; the rest is for a slow machine.
    assert time.process_time() - started < 5
    assert len(episodes["cost"]) == 40_000
    assert set(np.unique(episodes["cost"])) == {2.0, 20.0}


@pytest.mark.parametrize("row", ["", "#2,3", "2,3 # four"])
def test_no_row_of_a_log_is_skipped(tmp_path, row):
    file = tmp_path / "metrics.csv"
    file.write_text(f"a,b\n1,2\n{row}\n3,4\n")
    with pytest.raises(ValueError, match=r"metrics\.csv must have 2 numbers in each"):
        read_columns(file)


def swapped(rows):
    return [*rows[:20], *rows[40:60], *rows[20:40], *rows[60:]]


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        (lambda rows: rows + rows[-20:], "step 10,000"),
        (lambda rows: rows + rows[:20], "one step"),
        (lambda rows: [rows[0], *rows], "step 2,000"),
        (lambda rows: rows[:30] + rows[31:], "step 4,000"),
        (lambda rows: rows[1:], "step 2,000"),
        (lambda rows: [*rows[:20], *rows[60:80], *rows[20:]], "one step"),
    ],
)
def test_episodes_of_an_evaluation_that_were_added_or_removed_are_noticed(
    tmp_path, edit, step
):
    path = write_run(tmp_path, make_config())
    file = path / "evaluations.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, *swapped(rows)]) + "\n")
    assert read_run(path).steps == 10_000
    file.write_text("\n".join([header, *edit(rows)]) + "\n")
    with pytest.raises(ValueError, match=f"numbered 0, 1, 2, ..., but those of {step}"):
        read_run(path)


@pytest.mark.parametrize(
    "meta",
    [
        {"evaluated": {"env_steps": "many"}},
        {"evaluated": {"env_steps": math.inf}},
        {"evaluated": {"env_steps": -1}},
        {"evaluated": {"rule": ["thermostat"]}},
        {"versions": 5},
        {"versions": "0.1"},
    ],
)
def test_metadata_that_a_report_cannot_use_leave_out_only_their_run(tmp_path, meta):
    good = write_run(tmp_path, make_config(seed=0))
    bad = write_run(tmp_path, make_config(seed=1))
    (bad / "meta.json").write_text(json.dumps(meta))
    found = read_results([tmp_path])
    assert [run.path for run in found.runs] == [good]
    assert f"{next(iter(meta))} in {bad / 'meta.json'} must be" in found.notes[0]


def test_seeds_that_were_not_evaluated_in_the_same_way_have_a_note(tmp_path):
    for seed, evaluated in enumerate(
        (None, {"checkpoint": "best"}, {"checkpoint": "last", "deterministic": False})
    ):
        path = write_run(tmp_path, make_config(seed=seed))
        if evaluated:
            evaluated |= {"run": "runs/a", "env_steps": 10_000}
            (path / "meta.json").write_text(json.dumps({"evaluated": evaluated}))
    (note,) = read_results([tmp_path]).notes
    assert note.startswith(
        "The seeds of orac in orac/GuardedMaze-v0 were not evaluated in the same way: "
        "evaluations during training, mean actions of the delivered policy, sampled "
        "actions of the last policy."
    )


def test_a_column_that_occurs_twice_is_an_error(tmp_path):
    file = tmp_path / "evaluations.csv"
    file.write_text("env_steps,cost,cost\n1,50,0\n")
    with pytest.raises(ValueError, match="but cost is there twice"):
        read_columns(file)


def test_a_step_that_no_run_can_have_is_an_error(tmp_path):
    path = write_run(tmp_path, make_config())
    (path / "metrics.csv").write_text("env_steps\n1e300\n")
    with pytest.raises(
        ValueError,
        match="must have a whole number of env_steps, at least 0, in every row",
    ):
        read_run(path)


DELIVERED = {"step": 6000, "reward": 5.5, "episodes": 900}


@pytest.mark.parametrize(
    ("risk", "claim", "within"),
    [(4.5, True, True), (4.5, "no", False), (17, False, False), (math.nan, 1, False)],
)
def test_a_risk_above_the_limit_is_not_within_it_whatever_the_file_claims(
    tmp_path, risk, claim, within
):
    path = write_run(tmp_path, make_config())
    record = {**DELIVERED, "risk": {"cost": risk}, "within_limits": claim}
    (path / "delivered.json").write_text(json.dumps(record))
    policy = read_run(path).delivered
    assert policy is not None and policy.within_limits is within


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"limit": {"cost": 6.0}}, "its limits are not those of"),
        ({"limit": {"other": 5.0}}, "its limits are not those of"),
        ({"written_at_step": 5000}, "but was written at step 5,000"),
        ({"risk": {"cost": 5.5}}, "but its risk of cost is 5.5 (limit 5)"),
        ({"step": 5999}, "describes a policy of step 5,999, at which"),
        ({"step": 0.5}, "describes a policy of step 0.5, at which"),
        (
            {"episodes": 19},
            "claims 19 episodes, but the evaluation at step 6,000 has 20",
        ),
        ({"checkpoint": "last"}, "claims 900 episodes, but the evaluation at step"),
        ({"checkpoint": "last", "step": 1}, "describes a policy of step 1, at which"),
        ({"episodes": 21}, "among them it is at least 19.1429"),
    ],
)
def test_a_record_of_the_delivery_of_another_run_is_ignored_with_a_note(
    tmp_path, changes, why
):
    path = write_run(tmp_path, make_config())
    record = {**DELIVERED, "risk": {"cost": 4.5}, "within_limits": True}
    record |= {"limit": {"cost": 5.0}, "written_at_step": 10_000}
    (path / "delivered.json").write_text(json.dumps(record))
    assert read_run(path).delivered is not None
    assert delivered_line(path) == (
        "reward 5.5, risk of cost 4.5 (limit 5), within the limits, on 900 episodes"
    )
    (path / "delivered.json").write_text(json.dumps({**record, **changes}))
    assert read_run(path).delivered is None
    (note,) = read_results([tmp_path]).notes
    assert why in note and delivered_line(path) == f"finished, but {note}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"risk": {"cost": 50.0}},
            "within the limits, but its risk of cost is 50 (lim",
        ),
        (
            {"risk": {"cost": math.nan}},
            "the limits, but its risk of cost is nan (limit",
        ),
        ({"within_limits": "yes"}, "(limit 5), not within the limits, on 900 episodes"),
        ({"episodes": "many"}, "finished, but delivered.json or certificate.json in"),
        ({"episodes": -3}, "finished, but delivered.json or certificate.json in"),
        ({"reward": math.inf}, "finished, but delivered.json or certificate.json in"),
        ({"episodes": 0}, "finished, and nothing was evaluated"),
    ],
)
def test_the_line_about_a_finished_run_claims_only_what_its_report_claims(
    tmp_path, changes, line
):
    path = write_run(tmp_path, make_config())
    record = {**DELIVERED, "risk": {"cost": 4.5}, "within_limits": True, **changes}
    (path / "delivered.json").write_text(json.dumps(record))
    assert line in delivered_line(path)


def test_an_infinite_step_is_an_error_that_names_the_file(tmp_path):
    path = write_run(tmp_path, make_config())
    record = {**DELIVERED, "risk": {"cost": 4}, "within_limits": True}
    (path / "delivered.json").write_text(json.dumps({**record, "step": math.inf}))
    with pytest.raises(ValueError, match="must have the fields that orac writes"):
        read_run(path)


@pytest.mark.parametrize("upper", [5.1, math.nan, None])
def test_a_certificate_above_the_limit_of_the_run_is_ignored_with_a_note(
    tmp_path, upper
):
    path = write_run(tmp_path, make_config())
    record = make_certificate(path)
    record["looks"][-1]["bounds"][0]["upper"] = upper
    (path / "certificate.json").write_text(json.dumps(record))
    (note,) = read_results([tmp_path]).notes
    assert "its bounds are not within the limits of" in note
    assert read_run(path).delivered is None
