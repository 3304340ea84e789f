"""Tests of the study `limit`: its cases, and its table of certificates."""

import json

import pytest

from helpers.study_examples import write_synthetic_runs
from orac.experiments.limit import LIMIT, too_fast
from orac.experiments.study import collect, plan, with_settings


def test_runs_use_seeds_that_no_setting_was_chosen_on(tmp_path):
    seeds = {run.config.seed for run in plan(LIMIT, None, tmp_path)}
    assert seeds == set(range(2000, 2010))
    assert all(run.certify for run in plan(LIMIT, None, tmp_path))


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
    first = collect(study.cases, out)[0]
    for run, (certified, reward) in zip(
        first.runs, [(True, 6.0), (False, 4.0)], strict=True
    ):
        look = {
            "reward": reward,
            "episodes": 2700,
            "bounds": [{"estimate": 4.0, "upper": 4.6 if certified else 5.4}],
        }
        record = {"certified": certified, "step": 9000, "looks": [look]}
        record["confidence"] = 0.95
        (run.path / "certificate.json").write_text(json.dumps(record))
    (table,) = study.make_tables(collect(study.cases, out))
    judged, unjudged = table.rows
    assert judged[2:6] == ("1 of 2", "5.00", "4.00", "5.00")
    assert unjudged[2:4] == ("0 of 0", "–")
    columns = study.run_columns(first.runs[0])
    assert columns["certified"] is True and columns["upper_bound"] == 4.6
