"""Tests of intervals over seeds: values computed by hand, properties, measured coverage."""

import numpy as np
import pytest
from scipy import stats

from orac.evaluation import seed_intervals


def success_like(random, shape):
    """Half of the runs have success rates near 0.9, the others near 0.1."""
    good = random.random(shape) < 0.5
    return np.where(good, random.beta(18, 2, shape), random.beta(2, 18, shape))


DISTRIBUTIONS = {
    "normal": (lambda random, shape: random.normal(size=shape), 0.0),
    "lognormal": (lambda random, shape: random.lognormal(0, 0.5, shape), np.exp(0.125)),
    "success_like": (success_like, 0.5),
}


def test_student_interval_of_three_runs_by_hand():
    # mean 2, standard deviation 1, standard error 1 / sqrt(3) = 0.57735,
    # t of two degrees at 0.975 is 4.30265: half width 2.48414.
    interval = seed_intervals.mean_interval([1.0, 2.0, 3.0])
    assert interval.n == 3
    expected = (2, 2 - 2.48414, 2 + 2.48414)
    found = (interval.estimate, interval.low, interval.high)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_run_has_no_interval():
    interval = seed_intervals.mean_interval([3.5])
    assert (interval.low, interval.high) == (None, None)
    assert str(interval) == "3.5 (n = 1: one run gives no interval)"


def test_an_interval_prints_its_level_and_number_of_runs():
    interval = seed_intervals.Interval(2.0, 1.25, 2.75, 0.95, "Student t", 5)
    assert str(interval) == "2 [1.25, 2.75] (95 %, n = 5)"


@pytest.mark.parametrize("value", [4.0, 0.1, 0.0, -1e6 / 3])
def test_equal_runs_have_no_interval(value):
    interval = seed_intervals.mean_interval([value] * 6)
    assert (interval.low, interval.high, interval.n) == (None, None, 6)
    assert interval.method == seed_intervals.ALL_EQUAL
    assert "(n = 6: all runs are equal, which gives no interval)" in str(interval)
    band = seed_intervals.mean_band(np.array([[1.0, value], [2.0, value]]))
    assert np.isfinite(band.low[0]) and np.isnan(band.low[1]) and np.isnan(band.high[1])


def test_the_method_names_the_widening_only_where_it_applies():
    for runs, method in (
        (3, "Student t"),
        (4, "Student t, widened by skew"),
        (200, "Student t, widened by skew"),
        (201, "Student t"),
    ):
        values = np.arange(float(runs))
        assert seed_intervals.mean_interval(values).method == method
        other = seed_intervals.difference_interval(values, [1.0, 2.0]).method
        assert other == method.replace("Student", "Welch")


def test_an_interval_stays_within_the_bounds():
    shares = [0.9, 1.0, 1.0]
    assert seed_intervals.mean_interval(shares).high > 1
    inside = seed_intervals.mean_interval(shares, bounds=(0.0, 1.0))
    assert inside.high == 1 and inside.low == seed_intervals.mean_interval(shares).low
    difference = seed_intervals.difference_interval(
        [0.0, 1.0], [1.0, 0.0], bounds=(0.0, 1.0)
    )
    assert (difference.low, difference.high) == (-1, 1)


@pytest.mark.parametrize("runs", [5, 10])
def test_bounded_intervals_of_success_rates_cover_the_mean(runs):
    # Seeds differ (beta with mean 0.2), and each is evaluated on 100 episodes.
    random = np.random.default_rng(runs)
    rates = random.binomial(100, random.beta(4, 16, (runs, 2000))) / 100
    band = seed_intervals.mean_band(rates, bounds=(0.0, 1.0))
    assert band.low.min() >= 0 and band.high.max() <= 1
    assert np.mean((band.low <= 0.2) & (band.high >= 0.2)) >= 0.93


def test_symmetric_runs_have_a_symmetric_interval():
    values = np.array([-3.0, -1.0, -0.5, 0.5, 1.0, 3.0])
    interval = seed_intervals.mean_interval(np.repeat(values, 3))
    assert interval.low == pytest.approx(-interval.high, rel=0.05)


def test_skewed_runs_have_a_longer_side_towards_the_tail():
    values = np.array([1.0, 1.1, 1.2, 1.3, 1.5, 1.8, 2.4, 6.0])
    half = stats.t.ppf(0.975, 7) * values.std(ddof=1) / np.sqrt(8)
    interval = seed_intervals.mean_interval(values)
    above, below = interval.high - values.mean(), values.mean() - interval.low
    assert below == pytest.approx(half)
    assert 1.1 * half < above <= 1.5 * half + 1e-12


def test_the_interval_shifts_and_scales_with_the_values():
    values = np.random.default_rng(0).lognormal(size=7)
    plain = seed_intervals.mean_interval(values)
    moved = seed_intervals.mean_interval(10 + 3 * values)
    expected = (10 + 3 * plain.low, 10 + 3 * plain.high)
    np.testing.assert_allclose((moved.low, moved.high), expected, rtol=1e-9)


def test_a_higher_level_gives_a_wider_interval():
    values = [1.0, 2.0, 4.0, 3.0, 2.5]
    narrow, wide = (
        seed_intervals.mean_interval(values, level) for level in (0.8, 0.99)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_band_is_the_interval_of_each_column():
    values = np.random.default_rng(1).lognormal(size=(5, 3))
    band = seed_intervals.mean_band(values)
    for column in range(3):
        interval = seed_intervals.mean_interval(values[:, column])
        assert band.low[column] == pytest.approx(interval.low)
        assert band.high[column] == pytest.approx(interval.high)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("runs", [5, 10, 20])
def test_nominal_95_percent_covers_at_least_93_from_five_runs_on(name, runs):
    draw, mean = DISTRIBUTIONS[name]
    random = np.random.default_rng(runs)
    hits = []
    for _ in range(4):
        band = seed_intervals.mean_band(draw(random, (runs, 500)))
        hits.append((band.low <= mean) & (mean <= band.high))
    # 2000 sets of runs: the standard error of the measured coverage is 0.5 %.
    assert np.mean(hits) >= 0.93


def test_difference_of_few_runs_agrees_with_scipys_welch():
    # With fewer than four runs nothing is widened.
    ours, theirs = [3.0, 5.0, 4.5], [1.0, 1.2, 0.7]
    oracle = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    interval = seed_intervals.difference_interval(ours, theirs)
    assert interval.n == 3
    assert interval.estimate == pytest.approx(np.mean(ours) - np.mean(theirs))
    np.testing.assert_allclose((interval.low, interval.high), oracle, rtol=1e-9)


def test_difference_is_between_one_and_one_and_a_half_times_welchs():
    random = np.random.default_rng(2)
    for _ in range(5):
        ours, theirs = random.lognormal(size=6), random.normal(1, 0.5, 8)
        welch = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
        interval = seed_intervals.difference_interval(ours, theirs)
        longer = (interval.high - interval.low) / (welch.high - welch.low)
        assert 1 <= longer <= 1.5


def test_swapping_the_sets_mirrors_the_difference():
    random = np.random.default_rng(3)
    ours, theirs = random.lognormal(size=6), random.lognormal(1, 0.5, 9)
    forward = seed_intervals.difference_interval(ours, theirs)
    backward = seed_intervals.difference_interval(theirs, ours)
    assert forward.low == pytest.approx(-backward.high)
    assert forward.high == pytest.approx(-backward.low)


@pytest.mark.parametrize("runs", [5, 10])
def test_difference_covers_at_least_93_percent_of_unequal_skewed_runs(runs):
    random, hits = np.random.default_rng(runs), 0
    truth = (1 - 3) * np.exp(0.125)
    for _ in range(1000):
        ours = random.lognormal(0, 0.5, runs)
        theirs = 3 * random.lognormal(0, 0.5, runs)
        interval = seed_intervals.difference_interval(ours, theirs)
        hits += interval.low <= truth <= interval.high
    assert hits / 1000 >= 0.93


def test_difference_of_equal_runs_has_no_interval():
    interval = seed_intervals.difference_interval([2.0, 2.0], [1.0, 1.0, 1.0])
    assert (interval.estimate, interval.low, interval.high) == (1.0, None, None)
    assert interval.method == seed_intervals.ALL_EQUAL
    # It is enough if the runs of one set differ.
    assert seed_intervals.difference_interval([2.0, 3.0], [1.0, 1.0]).low is not None


def test_difference_with_one_run_in_a_set_has_no_interval():
    interval = seed_intervals.difference_interval([2.0], [1.0, 1.5])
    assert (interval.low, interval.high, interval.n) == (None, None, 1)
    assert interval.method == seed_intervals.ONE_RUN


@pytest.mark.parametrize("successes", [0, 1, 7, 19, 20])
def test_proportion_agrees_with_scipys_exact_interval(successes):
    oracle = stats.binomtest(successes, 20).proportion_ci(0.95, "exact")
    interval = seed_intervals.proportion_interval(successes, 20)
    np.testing.assert_allclose((interval.low, interval.high), oracle, atol=1e-12)


def test_proportion_covers_at_least_its_level_for_every_true_value():
    runs, proportions = 15, np.linspace(0.001, 0.999, 331)
    found = [seed_intervals.proportion_interval(k, runs) for k in range(runs + 1)]
    covered = sum(
        stats.binom.pmf(k, runs, proportions)
        * ((i.low <= proportions) & (proportions <= i.high))
        for k, i in enumerate(found)
    )
    assert covered.min() >= 0.95


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: seed_intervals.mean_interval([1.0], 95.0), "0.95 for 95 % confidence"),
        (
            lambda: seed_intervals.mean_interval([1.0, np.nan]),
            "NaN or infinity in runs 1 ",
        ),
        (
            lambda: seed_intervals.mean_interval([]),
            "expected one value per run, got an arr",
        ),
        (
            lambda: seed_intervals.mean_interval(np.ones((2, 2))),
            r"array of shape \(2, 2\)",
        ),
        (
            lambda: seed_intervals.mean_band(np.ones((2, 2, 2))),
            r"\(run,\) or \(run, task\)",
        ),
        (lambda: seed_intervals.proportion_interval(3, 2), "got 3 of 2"),
        (lambda: seed_intervals.proportion_interval(0, 0), "n of at least 1"),
        (lambda: seed_intervals.proportion_interval(1.5, 3), "whole numbers"),
    ],
)
def test_invalid_arguments_raise_an_error_with_the_reason(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_interquartile_mean_excludes_a_quarter_at_each_end():
    # Of eight values two are excluded at each end: (3 + 4 + 5 + 9) / 4.
    interval = seed_intervals.interquartile_mean(
        [100.0, 3.0, 4.0, -50.0, 5.0, 9.0, 1.0, 20.0]
    )
    assert interval.estimate == pytest.approx(5.25)


def test_interquartile_mean_pools_runs_of_all_tasks():
    scores = np.random.default_rng(0).normal(size=(5, 3))
    interval = seed_intervals.interquartile_mean(scores)
    assert interval.n == 5
    assert interval.estimate == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
    assert interval.low < interval.estimate < interval.high


def test_resamples_stay_within_their_task():
    scores = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    drawn = seed_intervals.stratified_resamples(scores, resamples=200)
    assert drawn.shape == (200, 3, 2)
    assert set(np.unique(drawn[..., 0])) == {1.0, 2.0, 3.0}
    assert set(np.unique(drawn[..., 1])) == {10.0, 20.0, 30.0}


@pytest.mark.parametrize(("runs", "tasks"), [(5, 1), (5, 4), (10, 1)])
def test_interquartile_mean_covers_at_least_93_percent_of_normal_truths(runs, tasks):
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        interval = seed_intervals.interquartile_mean(random.normal(size=(runs, tasks)))
        hits += interval.low <= 0 <= interval.high
    assert hits / 200 >= 0.93


def test_probability_of_improvement_counts_pairs_and_half_of_ties():
    # 3 beats 2 and 1, 1 loses to 2 and ties with 1: (1 + 1 + 0 + 0.5) / 4.
    interval = seed_intervals.probability_of_improvement([3.0, 1.0], [2.0, 1.0])
    assert interval.estimate == 0.625


def test_probability_of_improvement_averages_over_tasks():
    ours, theirs = (
        np.array([[2.0, 0.0], [3.0, 0.0]]),
        np.array([[1.0, 1.0], [0.0, 1.0]]),
    )
    assert seed_intervals.probability_of_improvement(ours, theirs).estimate == 0.5


def test_swapping_the_sets_mirrors_the_improvement():
    random = np.random.default_rng(4)
    ours, theirs = random.normal(1, 1, (5, 2)), random.normal(0, 1, (7, 2))
    forward = seed_intervals.probability_of_improvement(ours, theirs)
    backward = seed_intervals.probability_of_improvement(theirs, ours)
    assert forward.low == pytest.approx(1 - backward.high)
    assert forward.high == pytest.approx(1 - backward.low)


def test_many_tasks_make_a_narrower_interval():
    random = np.random.default_rng(6)
    ours, theirs = random.normal(0.5, 1, (5, 9)), random.normal(0, 1, (5, 9))
    many = seed_intervals.probability_of_improvement(ours, theirs)
    one = seed_intervals.probability_of_improvement(ours[:, 0], theirs[:, 0])
    assert many.high - many.low < 0.5 * (one.high - one.low)


def test_sets_that_do_not_overlap_still_have_an_interval():
    ours, theirs = np.arange(10.0, 15.0), np.arange(5.0)
    interval = seed_intervals.probability_of_improvement(ours, theirs)
    assert interval.estimate == interval.high == 1
    assert 0.5 < interval.low < 0.8


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_probability_of_improvement_covers_at_least_93_percent(shift):
    random = np.random.default_rng(5)
    truth, hits = stats.norm.cdf(shift / np.sqrt(2)), 0
    for _ in range(500):
        ours, theirs = random.normal(shift, 1, 5), random.normal(0, 1, 5)
        interval = seed_intervals.probability_of_improvement(ours, theirs)
        hits += interval.low <= truth <= interval.high
    assert hits / 500 >= 0.93


def test_profile_is_the_fraction_of_runs_above_each_threshold():
    # Strictly above, as in rliable: a score equal to the threshold does not count.
    scores = np.array([[1.0, 4.0], [2.0, 5.0]])
    profile = seed_intervals.performance_profile(scores, [0.0, 1.0, 3.0, 6.0])
    np.testing.assert_allclose(profile.estimate, [1, 0.75, 0.5, 0])
    assert (np.diff(profile.low) <= 0).all()
    assert (profile.low <= profile.estimate).all()
    assert (profile.high >= profile.estimate).all()
    assert profile.low.min() >= 0
    assert profile.high.max() <= 1


def test_profile_of_one_task_has_clopper_and_pearsons_limits():
    profile = seed_intervals.performance_profile([1.0, 2.0, 3.0, 4.0, 5.0], [3.5, 9.0])
    for i, successes in enumerate((2, 0)):
        oracle = stats.binomtest(successes, 5).proportion_ci(0.95, "exact")
        np.testing.assert_allclose((profile.low[i], profile.high[i]), oracle, atol=1e-9)


@pytest.mark.parametrize(
    "aggregate",
    [
        seed_intervals.interquartile_mean,
        lambda scores: seed_intervals.probability_of_improvement(scores, scores),
        lambda scores: seed_intervals.performance_profile(scores, [0.5]),
    ],
)
def test_one_run_per_task_gives_no_interval(aggregate):
    found = aggregate(np.array([[1.0, 2.0, 3.0]]))
    assert (found.low, found.high, found.method) == (None, None, seed_intervals.ONE_RUN)


def test_both_sets_need_the_same_tasks():
    with pytest.raises(ValueError, match=r"got 2 and 3\. Compare the tasks"):
        seed_intervals.probability_of_improvement(np.ones((2, 2)), np.ones((2, 3)))


def test_failed_runs_raise_an_error():
    with pytest.raises(ValueError, match=r"in runs 0, 2 \(counted from 0\)"):
        seed_intervals.interquartile_mean([np.nan, 1.0, np.inf])


def test_an_interquartile_mean_of_equal_runs_has_no_interval():
    found = seed_intervals.interquartile_mean([4.0] * 6)
    assert (found.estimate, found.low, found.high) == (4.0, None, None)
    assert "all runs are equal" in found.method
