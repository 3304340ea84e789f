"""Tests of a report's metrics, their valid ranges, and statistics over seeds."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.synthetic_runs import make_config
from orac.config.schema import EnvConfig
from orac.core.risk import cvar
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.episodes import risk_of_episodes
from orac.evaluation.seed_intervals import mean_interval
from orac.reports.report_metrics import (
    average_curves,
    common_tails,
    env_metrics,
    evaluation_curve,
    metric_curve,
    seed_mean,
    seed_values,
    summary_metrics,
    valid_range,
)
from orac.reports.run_reader import Group, Run

SOME = np.array([0.5, 1.0])


def make_group(config, path):
    return Group("orac", (Run(path, config, {}, {}, {}, {}),))


@pytest.fixture
def group(tmp_path):
    return make_group(make_config(), tmp_path)


def test_agents_without_a_tail_are_evaluated_at_the_others_tail(groups):
    several = [*groups.values()]
    titles = [metric.title for metric in summary_metrics(several)]
    assert titles == [
        "reward",
        "mean cost",
        "CVaR of cost at tail 0.05",
        "P(cost > limit)",
        "worst cost",
    ]
    tails = common_tails(several)
    assert all("cost/cvar_0.05" in seed_values(group, tails) for group in several)


def test_declared_metrics_have_the_environments_titles_and_directions():
    values = [{"env/guard_present": np.ones(2), "env/path_none": np.ones(2)}]
    found = env_metrics("orac/GuardedMaze-v0", values)
    assert [(metric.title, metric.better) for metric in found] == [
        ("guard present", ""),
        ("never arrived", "lower"),
    ]
    (metric,) = env_metrics("orac/CityLearn-v0", [{"env/unserved_energy": np.ones(2)}])
    assert (metric.title, metric.better) == ("unserved energy", "lower")


def test_undeclared_metrics_have_their_name_and_no_direction():
    (metric,) = env_metrics("Pendulum-v1", [{"env/speed": np.ones(2)}])
    assert (metric.title, metric.better) == ("speed", "")


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("env/path_long", SOME, (0, 1)),
        ("env/moved", SOME, (0, 1)),
        ("cost/violation_rate", SOME, (0, 1)),
        ("cost/heat/violation_rate", SOME, (0, 1)),
        ("train/cost", SOME, (0, np.inf)),
        ("cost/mean", np.array([-0.5, 1.0]), (-np.inf, 24)),
        ("reward/mean", SOME, (-np.inf, np.inf)),
        ("train/reward", SOME, (-np.inf, np.inf)),
        ("env/speed", SOME, (-np.inf, np.inf)),
    ],
)
def test_bounds_are_those_of_shares_counts_and_declared_ranges(
    group, key, values, expected
):
    assert valid_range(key, values, group) == expected


def test_lengths_and_costs_end_at_the_environments_maximum(tmp_path):
    config = make_config(changes=["env.params.time_limit=70"])
    group = make_group(config, tmp_path)
    few = np.array([1.0, 2.0])
    assert valid_range("length/mean", few, group) == (0, 70)
    highest = GuardedMaze(time_limit=70).spec.cost_bounds[0]
    for key in ("cost", "cost/mean", "cost/cvar_0.05", "cost/worst"):
        assert valid_range(key, few, group) == (0, highest)
    # A maximum that was exceeded does not hold.
    assert valid_range("length/mean", 100 * few, group) == (0, np.inf)


def test_gymnasium_environments_may_have_a_maximal_length_in_the_config(tmp_path):
    env = EnvConfig("Pendulum-v1", episode_length=200)
    group = make_group(replace(make_config(), env=env), tmp_path)
    few = np.array([1.0, 2.0])
    assert valid_range("length/mean", few, group) == (0, 200)
    assert valid_range("cost/mean", few, group) == (0, np.inf)


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
    bounds = valid_range(key, np.array(by_hand), group)
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
    np.testing.assert_array_equal(curve.count, [3, 2, 1])
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


def test_evaluation_curve_has_the_risk_of_each_evaluations_episodes(groups):
    run = groups["wcsac"].runs[0]
    steps, risks = evaluation_curve(run, "cost", cvar(0.05))
    np.testing.assert_array_equal(steps, [2000, 4000, 6000, 8000, 10_000])
    first = run.evaluations["cost"][run.evaluations["env_steps"] == 2000]
    assert risks[0] == risk_of_episodes(first, cvar(0.05))


def test_metric_curve_leaves_out_missing_values(groups):
    run = groups["orac"].runs[0]
    steps, values = metric_curve(run, "constraint/multiplier/cost")
    assert steps[0] == 2000 and np.isfinite(values).all()
    assert len(metric_curve(run, "no such metric")[0]) == 0
