"""Tests of the numbers that are computed from episodes: risk, summary, rows, certificates."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.config.schema import Constraint, RiskMeasure
from orac.core import risk
from orac.envs.base import EnvSpec, MetricLabel, MetricSpec
from orac.evaluation.episodes import (
    Episodes,
    certify,
    risk_of_episodes,
    summarise,
    value_at_risk,
)


def make_episodes(**metrics):
    count = 4
    costs = np.stack([np.arange(count), 10.0 * np.arange(count)], axis=1)
    arrays = {name: np.array(values, float) for name, values in metrics.items()}
    return Episodes(np.ones(count), costs.astype(float), np.full(count, 7), arrays)


def test_evaluations_use_the_risk_function_of_the_critics():
    costs = np.array([1.0, 2.0, 3.0, 10.0])
    with jax.enable_x64(True):
        expected = float(risk.sample_risk(jnp.asarray(costs), risk.cvar(0.3)))
    assert risk_of_episodes(costs, risk.cvar(0.3)) == expected
    # The worst 0.3 of four episodes: all of the 10 (0.25) and 0.05 of the 3.
    assert expected == pytest.approx((0.25 * 10 + 0.05 * 3) / 0.3, rel=1e-12)


def test_risk_of_episodes_is_computed_in_double_precision():
    costs = np.array([16_777_216.0, 16_777_217.0])
    assert risk_of_episodes(costs, RiskMeasure("mean")) == 16_777_216.5


def test_value_at_risk_is_the_smallest_cost_that_most_episodes_do_not_exceed():
    costs = np.arange(1.0, 101.0)
    assert value_at_risk(costs, 0.05) == 95
    assert value_at_risk(costs, 1.0) == 1
    assert value_at_risk(costs, 0.001) == 100


def test_rows_have_one_dict_per_episode():
    episodes = Episodes(
        np.array([1.0, 2.0]), np.array([[3.0, 5.0], [4.0, 6.0]]), np.array([7, 8]), {}
    )
    rows = episodes.rows(["cost", "heat"])
    assert rows[1] == {
        "episode": 1,
        "reward": 2.0,
        "cost": 4.0,
        "cost/heat": 6.0,
        "length": 8,
    }


def test_summary_has_the_tail_of_each_constraint():
    constraints = [Constraint("heat", limit=15.0, tail=0.25)]
    summary = summarise(make_episodes(), constraints, ["cost", "heat"], tails=[0.5])
    assert {key for key in summary if key.startswith("cost/heat/")} == {
        f"cost/heat/{name}"
        for name in (
            *("mean", "worst", "cvar_0.25", "var_0.25", "cvar_0.5", "var_0.5"),
            *("risk", "limit", "violation_rate"),
        )
    }
    assert summary["cost/heat/cvar_0.25"] == summary["cost/heat/risk"] == 30
    assert summary["cost/heat/violation_rate"] == 0.5
    assert "cost/risk" not in summary and summary["cost/cvar_0.5"] == 2.5


def test_a_metric_with_labels_is_summarised_by_the_fraction_of_each():
    labels = (MetricLabel(1, "long", ""), MetricLabel(0, "none", ""))
    metrics = [MetricSpec("path", labels=labels), MetricSpec("speed")]
    episodes = make_episodes(path=[1, 1, 1, 0], speed=[1, 2, np.nan, 3])
    summary = summarise(episodes, [], ["cost"], metrics)
    assert {k: v for k, v in summary.items() if k.startswith("env/")} == {
        "env/path_long": 0.75,
        "env/path_none": 0.25,
        "env/speed": 2.0,
    }
    # A value without a label would be lost in the fractions, so the mean is reported.
    unknown = make_episodes(path=[1, 1, 1, 5], speed=[np.nan] * 4)
    summary = summarise(unknown, [], ["cost"], metrics)
    assert summary["env/path"] == 2 and math.isnan(summary["env/speed"])


def test_each_constraint_is_certified_from_the_cost_that_it_names():
    spec = EnvSpec(
        "probe", 1, (0.0,), (1.0,), 9, cost_names=("cost", "heat"), cost_bounds=(9, 90)
    )
    constraints = [
        Constraint("heat", limit=50.0, tail=0.5),
        Constraint("cost", limit=5.0, tail=0.5, risk="wang", risk_parameter=0.5),
    ]
    heat, cost = certify(make_episodes(), constraints, spec, 0.9)
    assert (heat.estimate, heat.limit, heat.cost_bound) == (25.0, 50.0, 90)
    assert heat.level == 0.9 and heat.upper is not None
    assert cost.upper is None and "only for CVaR and the mean" in cost.sentence()


def test_a_sample_without_episodes_is_refused_in_a_sentence():
    with pytest.raises(ValueError) as caught:
        Episodes(np.zeros(0), np.zeros((0, 1)), np.zeros(0, int))
    assert str(caught.value) == (
        "a sample of episodes must contain at least one episode, got none. Play at least "
        "one, for example with agent.evaluate(100)."
    )
