"""Tests of statistics over seeds."""

import numpy as np
import pytest

from orac.core.risk import cvar
from orac.evaluation.intervals import mean_interval
from orac.evaluation.result import risk_of_episodes
from orac.reports.metrics import bounds_of
from orac.reports.seed_statistics import (
    average_curves,
    cvar_curve,
    metric_curve,
    seed_mean,
    seed_values,
)


def test_seed_values_are_those_of_each_last_evaluation(groups):
    group = groups["wcsac"]
    values = seed_values(group)
    by_hand = []
    for run in group.runs:
        rows = np.genfromtxt(run.path / "evaluations.csv", delimiter=",", names=True)
        last = rows[rows["env_steps"] == 10_000]
        by_hand.append(risk_of_episodes(last["cost"], cvar(0.05)))
    key = "cost/cvar_0.05"
    np.testing.assert_allclose(values[key], by_hand)
    bounds = bounds_of(key, np.array(by_hand), group)
    assert seed_mean(values, key, group) == mean_interval(by_hand, bounds=bounds)
    assert seed_mean(values, "no such number", group) is None


def test_mean_of_a_cost_is_cut_at_zero(groups):
    values = {"cost/mean": np.array([0.0, 1.0, 9.0])}
    mean = seed_mean(values, "cost/mean", groups["orac"])
    assert mean is not None and mean.low == 0


def test_curve_has_the_interval_of_the_seeds_at_each_step(groups):
    steps = np.array([1.0, 2.0, 3.0])
    curves = [
        (steps, np.array([1.0, 2.0, 3.0])),
        (steps[:2], np.array([3.0, 4.0])),
        (steps[:1], np.array([8.0])),
    ]
    curve = average_curves(curves, groups["orac"], "reward")
    np.testing.assert_array_equal(curve.seeds, [3, 2, 1])
    np.testing.assert_allclose(curve.mean, [4, 3, 3])
    two = mean_interval([2.0, 4.0])
    assert (curve.low[1], curve.high[1]) == pytest.approx((two.low, two.high))
    assert np.isnan(curve.low[2]) and np.isnan(curve.high[2])


def test_half_std_band_is_half_a_standard_deviation_each_way(groups):
    curves = [
        (np.array([1, 2]), np.array([0.0, 5.0])),
        (np.array([1]), np.array([4.0])),
    ]
    curve = average_curves(curves, groups["orac"], "reward", "half-std")
    # At step 1 the values are 0 and 4: deviation 2, half of it 1. Step 2 has one seed.
    np.testing.assert_array_equal(curve.low, [1, np.nan])
    np.testing.assert_array_equal(curve.high, [3, np.nan])


@pytest.mark.parametrize("band", ["interval", "half-std"])
def test_bands_of_shares_and_costs_are_cut_at_their_bounds(groups, band):
    # The means are 0.1 and 0.9, the deviations 0.3: both bands would exceed [0, 1].
    curves = [(np.array([1, 2]), np.array([0.0, 1.0]))] * 9
    curves += [(np.array([1, 2]), np.array([1.0, 0.0]))]
    share = average_curves(curves, groups["orac"], "env/path_long", band)
    assert share.low[0] == 0 and share.high[1] == 1
    cost = average_curves(curves, groups["orac"], "cost", band)
    assert cost.low[0] == 0 and cost.high[1] > 1


def test_average_of_no_curves_is_empty(groups):
    assert len(average_curves([], groups["orac"], "reward").x) == 0


def test_cvar_curve_has_the_risk_of_each_evaluations_episodes(groups):
    run = groups["wcsac"].runs[0]
    steps, risks = cvar_curve(run, "cost", 0.05)
    np.testing.assert_array_equal(steps, [2000, 4000, 6000, 8000, 10_000])
    first = run.evaluations["cost"][run.evaluations["env_steps"] == 2000]
    assert risks[0] == risk_of_episodes(first, cvar(0.05))


def test_metric_curve_leaves_out_missing_values(groups):
    run = groups["orac"].runs[0]
    steps, values = metric_curve(run, "constraint/multiplier/cost")
    assert steps[0] == 2000 and np.isfinite(values).all()
    assert len(metric_curve(run, "no such metric")[0]) == 0
