"""When a maze run has converged, with answers worked out on paper."""

import numpy as np

from helpers.synthetic_runs import make_config, write_rows
from orac.config.serialization import to_dict
from orac.experiments.convergence import (
    Convergence,
    converged,
    convergence_of,
    long_path_curve,
    steps_to_converge,
)
from orac.reports.run_reader import read_run
from orac.runs.directory import RunDirectory

STEPS = np.arange(1, 13) * 10_000


def curve(*percents):
    return STEPS[: len(percents)], np.array(percents) / 100


def test_five_good_evaluations_in_a_row_count_from_the_first():
    # Good from the third (30,000) to the seventh; then one of three later ones is bad.
    shares = curve(0, 50, 90, 95, 100, 90, 91, 89, 100, 100)
    assert converged(*shares) == Convergence(30_000, 2 / 3)


def test_four_in_a_row_are_not_enough():
    assert converged(*curve(0, 90, 90, 90, 90, 89, 90, 90, 90, 90)).step is None


def test_a_spell_that_breaks_off_does_not_count_towards_the_next():
    # Four good ones from 10,000, a bad one, then five from 60,000 to the end.
    shares = curve(95, 95, 95, 95, 10, 95, 95, 95, 95, 95)
    assert converged(*shares) == Convergence(60_000, None)


def test_nine_in_ten_is_enough_and_less_is_not():
    assert converged(*curve(*[90] * 5)).step == 10_000
    assert converged(*curve(*[89.99] * 5)).step is None


def test_without_evaluations_nothing_has_converged():
    assert converged(np.empty(0), np.empty(0)) == Convergence(None, None)


def write_paths(root, shares, total=500_000):
    """A run whose evaluations have these many long paths of ten episodes each."""
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
            for i, count in enumerate(shares)
            for j in range(10)
        ]
        write_rows(run, "evaluations", rows)
        return run.path


def test_a_run_is_judged_by_where_its_episodes_went(tmp_path):
    run = read_run(write_paths(tmp_path, [0, 8, 9, 10, 9, 9, 10, 0]))
    steps, shares = long_path_curve(run)
    assert steps.tolist() == [10_000 * i for i in range(1, 9)]
    assert shares.tolist() == [0.0, 0.8, 0.9, 1.0, 0.9, 0.9, 1.0, 0.0]
    assert convergence_of(run) == Convergence(30_000, 0.0)
    assert steps_to_converge(run) == 30_000


def test_a_run_that_fails_counts_as_its_whole_budget(tmp_path):
    run = read_run(write_paths(tmp_path, [10, 10, 10, 10, 0, 10]))
    assert steps_to_converge(run) == 500_000
