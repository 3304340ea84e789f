"""Aggregates of rliable: estimates computed by hand, and coverage with few runs."""

import numpy as np
import pytest
from scipy import stats

from orac.evaluation import aggregates
from orac.evaluation.intervals import ONE_RUN


def test_interquartile_mean_excludes_a_quarter_at_each_end():
    # Of eight values two are excluded at each end: (3 + 4 + 5 + 9) / 4.
    interval = aggregates.interquartile_mean(
        [100.0, 3.0, 4.0, -50.0, 5.0, 9.0, 1.0, 20.0]
    )
    assert interval.estimate == pytest.approx(5.25)


def test_interquartile_mean_pools_runs_of_all_tasks():
    scores = np.random.default_rng(0).normal(size=(5, 3))
    interval = aggregates.interquartile_mean(scores)
    assert interval.n == 5
    assert interval.estimate == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
    assert interval.low < interval.estimate < interval.high


def test_resamples_stay_within_their_task():
    scores = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    drawn = aggregates.stratified_resamples(scores, resamples=200)
    assert drawn.shape == (200, 3, 2)
    assert set(np.unique(drawn[..., 0])) == {1.0, 2.0, 3.0}
    assert set(np.unique(drawn[..., 1])) == {10.0, 20.0, 30.0}


@pytest.mark.parametrize(("runs", "tasks"), [(5, 1), (5, 4), (10, 1)])
def test_interquartile_mean_covers_at_least_93_percent_of_normal_truths(runs, tasks):
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        interval = aggregates.interquartile_mean(random.normal(size=(runs, tasks)))
        hits += interval.low <= 0 <= interval.high
    assert hits / 200 >= 0.93


def test_probability_of_improvement_counts_pairs_and_half_of_ties():
    # 3 beats 2 and 1, 1 loses to 2 and ties with 1: (1 + 1 + 0 + 0.5) / 4.
    interval = aggregates.probability_of_improvement([3.0, 1.0], [2.0, 1.0])
    assert interval.estimate == 0.625


def test_probability_of_improvement_averages_over_tasks():
    ours, theirs = (
        np.array([[2.0, 0.0], [3.0, 0.0]]),
        np.array([[1.0, 1.0], [0.0, 1.0]]),
    )
    assert aggregates.probability_of_improvement(ours, theirs).estimate == 0.5


def test_swapping_the_sets_mirrors_the_improvement():
    random = np.random.default_rng(4)
    ours, theirs = random.normal(1, 1, (5, 2)), random.normal(0, 1, (7, 2))
    forward = aggregates.probability_of_improvement(ours, theirs)
    backward = aggregates.probability_of_improvement(theirs, ours)
    assert forward.low == pytest.approx(1 - backward.high)
    assert forward.high == pytest.approx(1 - backward.low)


def test_many_tasks_make_a_narrower_interval():
    random = np.random.default_rng(6)
    ours, theirs = random.normal(0.5, 1, (5, 9)), random.normal(0, 1, (5, 9))
    many = aggregates.probability_of_improvement(ours, theirs)
    one = aggregates.probability_of_improvement(ours[:, 0], theirs[:, 0])
    assert many.high - many.low < 0.5 * (one.high - one.low)


def test_sets_that_do_not_overlap_still_have_an_interval():
    ours, theirs = np.arange(10.0, 15.0), np.arange(5.0)
    interval = aggregates.probability_of_improvement(ours, theirs)
    assert interval.estimate == interval.high == 1
    assert 0.5 < interval.low < 0.8


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_probability_of_improvement_covers_at_least_93_percent(shift):
    random = np.random.default_rng(5)
    truth, hits = stats.norm.cdf(shift / np.sqrt(2)), 0
    for _ in range(500):
        ours, theirs = random.normal(shift, 1, 5), random.normal(0, 1, 5)
        interval = aggregates.probability_of_improvement(ours, theirs)
        hits += interval.low <= truth <= interval.high
    assert hits / 500 >= 0.93


def test_profile_is_the_fraction_of_runs_above_each_threshold():
    # Strictly above, as in rliable: a score equal to the threshold does not count.
    scores = np.array([[1.0, 4.0], [2.0, 5.0]])
    profile = aggregates.performance_profile(scores, [0.0, 1.0, 3.0, 6.0])
    np.testing.assert_allclose(profile.estimate, [1, 0.75, 0.5, 0])
    assert (np.diff(profile.low) <= 0).all()
    assert (profile.low <= profile.estimate).all()
    assert (profile.high >= profile.estimate).all()
    assert profile.low.min() >= 0
    assert profile.high.max() <= 1


def test_profile_of_one_task_has_clopper_and_pearsons_limits():
    profile = aggregates.performance_profile([1.0, 2.0, 3.0, 4.0, 5.0], [3.5, 9.0])
    for i, successes in enumerate((2, 0)):
        oracle = stats.binomtest(successes, 5).proportion_ci(0.95, "exact")
        np.testing.assert_allclose((profile.low[i], profile.high[i]), oracle, atol=1e-9)


@pytest.mark.parametrize(
    "aggregate",
    [
        aggregates.interquartile_mean,
        lambda scores: aggregates.probability_of_improvement(scores, scores),
        lambda scores: aggregates.performance_profile(scores, [0.5]),
    ],
)
def test_one_run_per_task_gives_no_interval(aggregate):
    found = aggregate(np.array([[1.0, 2.0, 3.0]]))
    assert (found.low, found.high, found.method) == (None, None, ONE_RUN)


def test_both_sets_need_the_same_tasks():
    with pytest.raises(ValueError, match=r"got 2 and 3\. Compare the common"):
        aggregates.probability_of_improvement(np.ones((2, 2)), np.ones((2, 3)))


def test_failed_runs_raise_an_error():
    with pytest.raises(ValueError, match=r"in runs 0, 2 \(counted from 0\)"):
        aggregates.interquartile_mean([np.nan, 1.0, np.inf])


def test_an_interquartile_mean_of_equal_runs_has_no_interval():
    found = aggregates.interquartile_mean([4.0] * 6)
    assert (found.estimate, found.low, found.high) == (4.0, None, None)
    assert "all runs equal" in found.method
