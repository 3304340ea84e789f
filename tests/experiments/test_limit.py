"""Tests of the study `limit`: its cases, and its table of certificates."""

import pytest

from helpers.certificates import write_certificate
from helpers.study_examples import write_synthetic_runs
from orac.experiments.limit import LIMIT, standing_note, too_fast
from orac.experiments.records import collect
from orac.experiments.study import plan, with_settings


def test_runs_use_seeds_that_no_setting_was_chosen_on(tmp_path):
    planned = plan(LIMIT, None, tmp_path)
    city = {run.config.seed for run in planned if run.label == "CityLearn"}
    assert city == set(range(2010, 2015))
    assert {run.config.seed for run in planned} - city == set(range(2000, 2010))
    assert all(run.certifies for run in plan(LIMIT, None, tmp_path))


def test_the_pendulum_pays_above_six_radians_per_second():
    assert too_fast(None, None, [0.0, 1.0, -6.5], {}) == 1.0
    assert too_fast(None, None, [0.0, 1.0, 6.0], {}) == 0.0


def test_companions_have_the_same_critics_and_follow_them():
    pairs = [
        (case, other)
        for case in LIMIT.cases
        for other in LIMIT.cases
        if other.label == f"{case.label}, multiplier follows critics"
    ]
    assert len(pairs) == 6
    for case, other in pairs:
        assert case.config.agent.follows_episodes
        assert not other.config.agent.follows_episodes
        assert other.config.agent.n_step == case.config.agent.n_step


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the maze's cases with 10,000 steps, and a folder with two seeds of each."""
    out = tmp_path_factory.mktemp("limit")
    study = with_settings(LIMIT, 10_000, only=("GuardedMaze 0.15", "GuardedMaze 0.10"))
    write_synthetic_runs(study, out, evaluations=2, episodes=8)
    return study, out


def test_the_table_counts_certified_runs_and_the_medians_of_all_judged(runs):
    study, out = runs
    first = collect(study, out)[0]
    for run, reward in zip(first.runs, [6.0, 4.0], strict=True):
        upper = 4.6 if reward == 6.0 else 5.4
        write_certificate(run.path, upper=upper, reward=reward)
    (table,) = study.make_tables(collect(study, out))
    judged, unjudged = table.rows
    assert judged[2:6] == ("1 of 2", "5.00", "4.00", "5.00")
    assert unjudged[2:4] == ("0 of 0", "–")
    row = collect(study, out)[0].runs[0].row
    assert row["certified"] is True and row["certificate/bound"] == 4.6


def test_certified_policies_that_stand_still_are_noted(runs):
    study, out = runs
    maze, _ = collect(study, out)
    walks, stands = maze.runs
    walks.row.update({"certified": True, "env/moved": 1.0})
    stands.row.update({"certified": False, "env/moved": 0.01})
    assert standing_note([maze]) == ""
    stands.row["certified"] = True
    sentence = "which is safe but earns little: 1 of 2 in the row 'GuardedMaze 0.15'."
    assert standing_note([maze]).endswith(sentence)
    # Environments other than the maze do not report `moved`.
    stands.row["env/moved"] = None
    assert standing_note([maze]) == ""


def test_cases_without_a_finished_run_are_only_in_a_note(runs, tmp_path):
    study, _ = runs
    (table,) = study.make_tables(collect(study, tmp_path))
    assert table.rows == ()
    assert (
        "These cases have no runs yet: GuardedMaze 0.15; GuardedMaze 0.10."
        in table.notes[-1]
    )


def test_a_run_whose_certificate_lacks_fields_is_not_certified(runs, tmp_path):
    study, _ = runs
    write_synthetic_runs(study, tmp_path, 1, evaluations=2, episodes=8)
    (path, *_) = [run.path for run in plan(study, [0], tmp_path)]
    (path / "certificate.json").write_text('{"certified": false}')
    row = collect(study, tmp_path)[0].runs[0].row
    assert "certified" not in row


def test_a_refusal_that_lacks_its_looks_raises(runs, tmp_path):
    study, _ = runs
    write_synthetic_runs(study, tmp_path, 1, evaluations=2, episodes=8)
    (path, *_) = [run.path for run in plan(study, [0], tmp_path)]
    write_certificate(path, certified=False, looks=7)
    with pytest.raises(ValueError, match=r"must be one that `orac certify` wrote"):
        collect(study, tmp_path)
