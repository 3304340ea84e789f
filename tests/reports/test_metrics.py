"""Tests of which metrics a report has, and of their valid ranges."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.synthetic_runs import make_config
from orac.config.schema import EnvConfig
from orac.envs.maze.env import GuardedMaze
from orac.reports.metrics import bounds_of, common_tails, env_metrics, summary_metrics
from orac.reports.run_reader import Group, Run
from orac.reports.seed_statistics import seed_values

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
        "CVaR at 0.05 of cost",
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
    assert bounds_of(key, values, group) == expected


def test_lengths_and_costs_end_at_the_environments_maximum(tmp_path):
    config = make_config(changes=["env.params.time_limit=70"])
    group = make_group(config, tmp_path)
    few = np.array([1.0, 2.0])
    assert bounds_of("length/mean", few, group) == (0, 70)
    highest = GuardedMaze(time_limit=70).spec.cost_bounds[0]
    for key in ("cost", "cost/mean", "cost/cvar_0.05", "cost/worst"):
        assert bounds_of(key, few, group) == (0, highest)
    # A maximum that was exceeded does not hold.
    assert bounds_of("length/mean", 100 * few, group) == (0, np.inf)


def test_gymnasium_environments_may_have_a_maximal_length_in_the_config(tmp_path):
    env = EnvConfig("Pendulum-v1", episode_length=200)
    group = make_group(replace(make_config(), env=env), tmp_path)
    few = np.array([1.0, 2.0])
    assert bounds_of("length/mean", few, group) == (0, 200)
    assert bounds_of("cost/mean", few, group) == (0, np.inf)
