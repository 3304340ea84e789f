"""Whole episodes, kept one by one, and the numbers made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.config.schema import Constraint
from orac.core import risk
from orac.envs.gym_adapter.make import make_host
from orac.envs.baselines import long_path, short_path
from orac.envs.maze.env import GuardedMaze
from orac.evaluation import rollout
from orac.evaluation.result import Episodes, risk_of_episodes, summarise, value_at_risk
from orac.evaluation.rollout import roll_out, roll_out_host

CONSTRAINT = Constraint("cost", limit=5.0, tail=0.05)


def play(controller, episodes=400, seed=0):
    maze = GuardedMaze()
    rule = controller(maze)
    return roll_out(
        jax.random.key(seed), None, maze, lambda _, __, seen: rule(seen), episodes
    )


def test_the_long_path_costs_four_in_every_episode():
    rolled = play(long_path)
    assert len(rolled) == 400 and (rolled.cost == 4).all()
    assert (rolled.metrics["path"] == 1).all()
    summary = summarise(rolled, [CONSTRAINT], ["cost"], GuardedMaze.METRICS)
    assert summary["cost/cvar_0.05"] == summary["cost/mean"] == 4
    assert summary["cost/violation_rate"] == 0 and summary["cost/limit"] == 5


def test_the_short_path_is_cheap_on_average_and_dear_in_the_tail():
    rolled = play(short_path, episodes=4000)
    assert set(np.unique(rolled.cost)) == {2.0, 20.0}
    summary = summarise(
        rolled, [CONSTRAINT], ["cost"], GuardedMaze.METRICS, tails=(1.0,)
    )
    # Four standard errors of 18 * sqrt(0.15 * 0.85 / 4000).
    assert summary["cost/mean"] == pytest.approx(4.7, abs=0.41)
    assert summary["cost/cvar_0.05"] == 20
    assert summary["cost/cvar_1"] == pytest.approx(summary["cost/mean"], rel=1e-12)
    assert summary["cost/violation_rate"] == (rolled.cost > 5).mean()


def test_evaluations_use_the_critics_own_risk_function():
    costs = np.array([1.0, 2.0, 3.0, 10.0])
    with jax.enable_x64(True):
        expected = float(risk.sample_risk(jnp.asarray(costs), risk.cvar(0.3)))
    assert risk_of_episodes(costs, risk.cvar(0.3)) == expected
    # The worst 0.3 of four episodes: all of the 10 (0.25) and 0.05 of the 3.
    assert expected == pytest.approx((0.25 * 10 + 0.05 * 3) / 0.3, rel=1e-12)


def test_episode_costs_are_summed_in_double_precision():
    costs = np.array([16_777_216.0, 16_777_217.0])
    assert risk_of_episodes(costs, risk.mean()) == 16_777_216.5


def test_value_at_risk_is_the_least_cost_that_most_episodes_keep():
    costs = np.arange(1.0, 101.0)
    assert value_at_risk(costs, 0.05) == 95
    assert value_at_risk(costs, 1.0) == 1
    assert value_at_risk(costs, 0.001) == 100


def test_the_same_key_plays_the_same_episodes():
    one, same, other = play(short_path), play(short_path), play(short_path, seed=1)
    np.testing.assert_array_equal(one.reward, same.reward)
    assert not np.array_equal(one.reward, other.reward)


def test_more_episodes_than_fit_side_by_side_are_played_in_batches(monkeypatch):
    monkeypatch.setattr(rollout, "MAX_BATCH", 64)
    rolled = play(short_path, episodes=149)
    assert len(rolled) == 149 and rolled.cost.shape == (149, 1)
    assert all(len(values) == 149 for values in rolled.metrics.values())
    first, second, third = np.split(rolled.reward, [50, 100])
    assert not np.array_equal(first, second)
    assert not np.array_equal(second[:49], third)


def test_rows_hold_every_episode_with_its_metrics():
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


def test_environments_on_the_host_contribute_the_same_number_of_episodes():
    host = make_host("orac/GuardedMaze-v0", 3, vectorization="sync")
    rolled = roll_out_host(
        jax.random.key(0), lambda key, seen: np.zeros((3, 2), np.float32), host, 7
    )
    host.close()
    assert len(rolled) == 7 and rolled.cost.shape == (7, 1)
    # A still agent drifts: most episodes last their hundred steps.
    assert rolled.length.max() == 100 and (rolled.reward >= -32).all()


@pytest.mark.parametrize("episodes", [0, -1, 10**9])
def test_episodes_that_cannot_be_played_are_refused(episodes):
    with pytest.raises(ValueError, match="episodes must be"):
        play(long_path, episodes=episodes)
