"""Tests of the window of measured episodes, and of the steps that depend on its risk."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agent_examples import learner_of, make_agent, small_config
from orac import envs
from orac.config import presets
from orac.config.schema import (
    Constraint,
    MultiplierConfig,
    RiskMeasure,
    TrainingConfig,
)
from orac.core import agent as agent_core
from orac.core import risk
from orac.evaluation.episodes import Episodes, risk_and_error
from orac.training import measurement
from orac.training.state import problem_for

TOTAL = 10_000
LENGTH = 10
"""Steps of an episode."""


def config_of(*constraints, algo="wcsac", margin=0.05, **training):
    """A run of 10,000 steps that starts to learn at once."""
    config = small_config(
        algo,
        risk_form="scalar" if algo == "sac-lag" else "quantile",
        multiplier=MultiplierConfig(
            follows="episodes", initial=1.0, proportional=0.0, margin=margin
        ),
    )
    settings = {"total_steps": TOTAL, "learning_starts": 0, **training}
    return replace(
        config,
        constraints=constraints or (Constraint("cost", 4.0, 0.25),),
        training=TrainingConfig(**settings),
    )


def filled(config, values, step=0):
    """A window with one episode per value, which is the cost of every constraint."""
    costs = np.repeat(np.asarray(values, float)[:, None], len(config.constraints), 1)
    return measurement.add(measurement.init(config), costs, step)


def evenly(value, count=60):
    return np.full(count, float(value))


def test_the_penalty_tail_changes_the_risk_of_the_critics_but_not_the_measured_one():
    config = presets.preset("orac", "orac/GuardedMaze-v0", "fast")
    changed = replace(config, agent=replace(config.agent, penalty_tail=0.5))
    spec = envs.make("orac/GuardedMaze-v0").spec
    assert problem_for(spec, config).constraints[0].measure == RiskMeasure("cvar", 0.05)
    problem = problem_for(spec, changed)
    assert problem.constraints[0].measure == RiskMeasure("cvar", 0.5)
    assert problem.limits == problem_for(spec, config).limits
    costs = np.where(np.arange(200) < 10, 20.0, 4.0)
    for run in (config, changed):
        reading = measurement.window_risk(filled(run, costs), 0, run)
        assert reading is not None and reading.risk[0] == pytest.approx(20.0)


def test_the_window_holds_ten_of_the_tail_and_at_least_sixty():
    for tail, size in ((1.0, 60), (0.25, 60), (0.1, 100), (0.05, 200)):
        constraint = Constraint("cost", 4.0, tail)
        assert measurement.window_size(config_of(constraint)) == size
        # SAC-Lagrangian measures the mean, so its window does not depend on the tail.
        assert measurement.window_size(config_of(constraint, algo="sac-lag")) == 60
    both = (Constraint("cost", 4.0, 0.5), Constraint("other", 4.0, 0.02))
    assert measurement.window_size(config_of(*both)) == 500
    wang = Constraint("cost", 4.0, risk="wang", risk_parameter=0.5)
    assert measurement.window_size(config_of(wang)) == 100


@pytest.mark.parametrize("batches", [(60,), (59, 2), (30, 50, 7), (200,), (1,) * 90])
def test_the_window_keeps_the_newest_episodes_in_order(batches):
    config = config_of()
    measured, count = measurement.init(config), 0
    for batch in batches:
        costs = np.arange(count, count + batch, dtype=float)[:, None]
        measured = measurement.add(measured, costs, step=0)
        count += batch
    held = measurement.recent_costs(measured, 0, config)[:, 0]
    np.testing.assert_array_equal(held, np.arange(max(count - 60, 0), count))


def test_adding_does_not_change_the_window_that_was_given():
    before = filled(config_of(), evenly(1.0))
    measurement.add(before, np.full((5, 1), 9.0), 10)
    assert before.added == 60 and (before.costs == 1).all()


def test_nothing_is_read_until_the_window_is_full():
    config = config_of()
    assert measurement.window_risk(filled(config, evenly(3.0, 59)), 0, config) is None
    window = measurement.window_risk(filled(config, evenly(3.0, 60)), 0, config)
    assert window is not None and window.episodes == 60
    np.testing.assert_allclose(window.risk, [3.0], rtol=1e-6)


def test_episodes_older_than_a_tenth_of_the_run_are_not_used():
    config = config_of()
    measured = filled(config, evenly(9.0, 30), step=1000)
    measured = measurement.add(measured, np.full((30, 1), 2.0), 1500)
    both = measurement.window_risk(measured, 2000, config)
    assert both is not None and both.episodes == 60 and both.risk[0] > 8.9
    newer = measurement.window_risk(measured, 2001, config)
    assert newer is not None and newer.episodes == 30
    np.testing.assert_allclose(newer.risk, [2.0], rtol=1e-6)
    # Less than half of a window is not enough.
    assert measurement.window_risk(measured, 2501, config) is None


def test_an_emptied_window_starts_again():
    config = config_of()
    measured = filled(config, evenly(9.0))._replace(added=np.zeros((), np.int32))
    assert measurement.window_risk(measured, 0, config) is None
    measured = measurement.add(measured, np.full((59, 1), 1.0), 0)
    assert measurement.window_risk(measured, 0, config) is None
    measured = measurement.add(measured, np.full((1, 1), 1.0), 0)
    np.testing.assert_allclose(measurement.window_risk(measured, 0, config).risk, [1.0])


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("cost", 4.0, 0.05),
        Constraint("cost", 4.0, 0.37),
        Constraint("cost", 4.0, risk="mean"),
        Constraint("cost", 4.0, risk="wang", risk_parameter=0.75),
        Constraint("cost", 4.0, risk="power", risk_parameter=2.0),
        Constraint("cost", 4.0, risk="dual_power", risk_parameter=2.0),
        Constraint("cost", 4.0, risk="cpw", risk_parameter=0.71),
    ],
)
def test_the_window_has_the_risk_of_its_sample_in_any_measure(constraint):
    config = config_of(constraint)
    costs = np.random.default_rng(0).exponential(4.0, 250)
    window = measurement.window_risk(filled(config, costs), 0, config)
    sample = jnp.asarray(costs[-measurement.window_size(config) :])
    expected = risk.sample_risk(sample, constraint.measure)
    np.testing.assert_allclose(window.risk, [expected], rtol=1e-4)


def test_every_constraint_is_read_on_its_own_cost():
    constraints = (Constraint("cost", 4.0, 0.5), Constraint("other", 8.0, 1.0))
    config = config_of(*constraints)
    costs = np.stack([np.arange(60.0), 100 - np.arange(60.0)], axis=1)
    measured = measurement.add(measurement.init(config), costs, 0)
    window = measurement.window_risk(measured, 0, config)
    np.testing.assert_allclose(window.risk, [44.5, 70.5], rtol=1e-5)
    assert window.improving.tolist() == [False, True]


def test_sac_lagrangian_holds_the_mean_whatever_the_tail():
    config = config_of(algo="sac-lag")
    window = measurement.window_risk(filled(config, np.arange(60.0)), 0, config)
    np.testing.assert_allclose(window.risk, [29.5], rtol=1e-6)


def test_the_jackknife_error_of_a_mean_is_its_standard_error():
    costs = np.random.default_rng(1).exponential(2.0, 50)
    value, error = risk_and_error(costs, RiskMeasure("mean"))
    assert value == pytest.approx(costs.mean(), rel=1e-6)
    assert error == pytest.approx(costs.std(ddof=1) / math.sqrt(50), rel=1e-4)


def test_the_jackknife_error_of_cvar_agrees_with_simulation():
    generator = np.random.default_rng(2)
    measure = RiskMeasure("cvar", 0.25)
    pairs = [
        risk_and_error(generator.exponential(2.0, 100), measure) for _ in range(200)
    ]
    values, errors = np.array(pairs).T
    assert errors.mean() == pytest.approx(values.std(), rel=0.2)


def test_a_risk_is_improving_only_if_it_falls_by_more_than_a_standard_error():
    config = config_of()
    noise = np.random.default_rng(3).normal(0, 1, 30)
    for fall, improving in ((0.05, False), (3.0, True), (-3.0, False)):
        costs = np.concatenate([20 + noise, 20 - fall + noise[::-1]])
        window = measurement.window_risk(filled(config, costs), 0, config)
        assert window.improving.tolist() == [improving], fall


def steered(config, measured, step, agent=None):
    """Agent and window after steering at this step."""
    learner = learner_of(replace(config, training=TrainingConfig()))
    agent = agent or make_agent(replace(config, training=TrainingConfig()))
    return measurement.steer(
        jax.random.key(0), agent, measured, step, learner, config, LENGTH
    )


def test_the_multiplier_rests_until_the_window_is_full_and_then_moves():
    config = config_of()
    agent, measured, window = steered(config, filled(config, evenly(8.0, 59)), 300)
    assert window is None and agent.multiplier.value[0] == 1
    # It moves by the steps since it could first have moved, not since the start.
    assert measured.moved_at == 300
    measured = measurement.add(measured, np.full((1, 1), 8.0), 600)
    agent, measured, window = steered(config, measured, 600, agent)
    # The risk is twice the limit, so the error of 1.05 is clipped to 1: 30 episodes' worth
    # of steps at one unit in 300 episodes.
    np.testing.assert_allclose(agent.multiplier.integral, [0.1], rtol=1e-5)
    assert measured.moved_at == 600 and window.episodes == 60


def test_nothing_moves_during_the_warm_up():
    config = config_of(learning_starts=500)
    agent, measured, window = steered(config, filled(config, evenly(8.0)), 499)
    assert window is None and agent.multiplier.value[0] == 1
    assert measured.moved_at == 499 and agent.steering.clock == 0


def test_a_unit_of_cost_that_the_user_chose_does_not_move_the_limit():
    plain = config_of(Constraint("cost", 4.0, 0.25))
    scaled = config_of(Constraint("cost", 4.0, 0.25, cost_scale=40.0))
    for cost in (3.8, 4.0, 6.0, 1.0):
        left, right = (
            steered(c, filled(c, evenly(cost)), 300)[0].multiplier
            for c in (plain, scaled)
        )
        np.testing.assert_array_equal(left.integral, right.integral)


def test_with_several_constraints_the_clock_waits_for_all_of_them():
    constraints = (Constraint("cost", 4.0, 0.5), Constraint("other", 8.0, 0.5))
    config = config_of(*constraints)
    for costs, runs in (((3.5, 7.0), True), ((3.5, 8.1), False), ((3.5, 1.0), False)):
        rows = np.tile(costs, (60, 1))
        measured = measurement.add(measurement.init(config), rows, 0)
        agent, measured, _ = steered(config, measured, 400)
        assert bool(agent.steering.clock > 0) == runs, costs
        assert measured.settled_at == (400 if runs else 0)


@pytest.mark.parametrize(
    ("cost", "runs"), [(3.5, True), (4.01, False), (3.9, True), (0.5, False)]
)
def test_the_clock_runs_only_within_the_limit_and_the_dead_zone(cost, runs):
    """A stuck policy has a risk of 0, so being within the limit is not enough."""
    config = config_of()
    agent, _, _ = steered(config, filled(config, evenly(cost)), 400)
    expected = 400 / (measurement.SCHEDULE_SHARE * TOTAL) if runs else 0
    np.testing.assert_allclose(agent.steering.clock, expected, rtol=1e-5)


def test_the_clock_also_runs_when_the_multiplier_is_at_its_floor():
    config = config_of()
    agent = make_agent(replace(config, training=TrainingConfig()))
    floor = math.log(config.agent.multiplier.floor)
    lowest = agent.multiplier._replace(integral=jnp.array([floor], jnp.float32))
    agent, _, _ = steered(
        config, filled(config, evenly(0.5)), 400, agent._replace(multiplier=lowest)
    )
    assert agent.steering.clock > 0


def test_the_clock_ends_with_the_run_at_the_latest():
    config = config_of()
    agent = make_agent(replace(config, training=TrainingConfig()))
    clocks = []
    for step in range(500, TOTAL + 1, 500):
        agent = measurement.advance_clock(agent, False, step, 500, config)
        clocks.append(float(agent.steering.clock))
    forced = [step > 0.6 * TOTAL for step in range(500, TOTAL + 1, 500)]
    assert [clock > 0 for clock in clocks] == forced
    assert clocks[-1] == 1 and (np.diff(clocks) >= 0).all()


def test_the_clock_stops_at_one():
    config = config_of()
    agent = make_agent(replace(config, training=TrainingConfig()))
    for step in range(1000, TOTAL + 1, 1000):
        agent = measurement.advance_clock(agent, True, step, 1000, config)
    assert agent.steering.clock == 1


def test_jumps_over_the_dead_zone_are_counted_and_a_stop_in_it_forgives_them():
    measured = measurement.init(config_of())
    errors = [0.5, -0.9, 0.4, 0.6, -0.5, -0.1, 0.3, -0.8]
    expected = [0, 1, 2, 2, 3, 0, 0, 1]
    found = []
    for error in errors:
        measured = measurement.count_crossings(measured, np.array([error]), 0.3)
        found.append(int(measured.crossings))
    assert found == expected


def test_a_run_without_settled_time_in_its_last_third_is_stuck():
    config = config_of(restarts=2)
    measured = measurement.init(config)
    at = {step: measurement.is_stuck(measured, step, config) for step in (3000, 4000)}
    assert at == {3000: False, 4000: True}  # It looks from 35 % of the run on,
    assert not measurement.is_stuck(measured, 7001, config)  # until 70 %.
    settled = measured._replace(settled_at=np.int32(3000))
    assert not measurement.is_stuck(settled, 4500, config)
    assert measurement.is_stuck(settled, 4501, config)
    cycling = settled._replace(crossings=np.int32(measurement.MAX_CROSSINGS))
    assert measurement.is_stuck(cycling, 4000, config)
    enough = measured._replace(restarts=np.int32(2))
    assert not measurement.is_stuck(enough, 4000, config)
    assert not measurement.is_stuck(measured, 4000, config_of(restarts=0))


def test_a_stuck_actor_is_replaced_and_the_rest_of_the_agent_is_kept():
    config = config_of(restarts=1)
    before = make_agent(replace(config, training=TrainingConfig()))
    measured = filled(config, evenly(0.0), step=4000)
    agent, measured, _ = steered(config, measured, 4000, before)
    assert measured.restarts == 1 and measured.added == 0
    assert measured.settled_at == 4000 and measured.crossings == 0
    assert agent.steering.radius_factor == 2 and agent.steering.clock == 0

    def same(left, right):
        pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
        return all((a == b).all() for a, b in pairs)

    assert not same(agent.actor.params, before.actor.params)
    assert same(agent.cost_critics, before.cost_critics)
    assert same(agent.reward_critics, before.reward_critics)
    # Later steps give other weights.
    other, _, _ = steered(config, filled(config, evenly(0.0), 4500), 4500, before)
    assert not same(agent.actor.params, other.actor.params)


def test_evaluation_steps_are_counted_apart():
    measured = measurement.init(config_of())
    episodes = Episodes(np.zeros(3), np.zeros((3, 1)), np.array([10, 7, 3]))
    measured = measurement.count_steps(measured, episodes)
    assert measured.extra_steps == 20 and measured.added == 0


def test_mean_and_sampled_actions_are_compared_once_and_not_at_the_ends():
    config = config_of()
    agent = replace(config.agent, deployed_action="measured")
    config = replace(config, agent=agent)
    measured = measurement.init(config)
    compared = [
        measurement.compares_actions(measured, step, config)
        for step in (1999, 2000, 5000, 5001)
    ]
    assert compared == [False, True, True, False]
    switched = measured._replace(switched=np.True_)
    assert not measurement.compares_actions(switched, 3000, config)
    assert not measurement.compares_actions(measured, 3000, config_of())


def test_metrics_have_a_risk_only_when_the_window_is_full():
    config = config_of()
    agent = make_agent(replace(config, training=TrainingConfig()))
    few = filled(config, evenly(3.0, 20))
    row = measurement.metrics(few, None, 0, agent, config)
    assert row["measured/episodes"] == 20 and math.isnan(row["measured/risk/cost"])
    full = filled(config, evenly(3.0))
    window = measurement.window_risk(full, 0, config)
    row = measurement.metrics(full, window, 0, agent, config)
    assert row["measured/risk/cost"] == pytest.approx(3.0)
    assert row["measured/limit/cost"] == 4.0


def test_half_of_the_environments_play_the_deployed_policy_after_the_warm_up():
    config = config_of(num_envs=4, learning_starts=40)
    rounds, lengths = jnp.int32(30), jnp.array([5, 20, 25, 3])
    plays = measurement.plays_deployed(jax.random.key(0), rounds, lengths, config)
    # The episodes began in rounds 25, 10, 5 and 27; the warm-up ends with round 10.
    assert plays.tolist() == [True, True, False, False]
    none = replace(config, training=replace(config.training, deployed_envs=0))
    plays = measurement.plays_deployed(jax.random.key(0), rounds, lengths, none)
    assert not plays.any()


def test_a_single_environment_plays_the_deployed_policy_in_half_of_its_episodes():
    config = config_of(num_envs=1, learning_starts=40)
    key, starts = jax.random.key(0), range(40, 240)

    def plays(start, length, config=config):
        rounds, lengths = jnp.int32(start + length), jnp.array([length])
        return bool(measurement.plays_deployed(key, rounds, lengths, config)[0])

    share = np.mean([plays(start, 0) for start in starts])
    assert 0.35 < share < 0.65
    # The choice holds for the whole episode.
    assert all(plays(start, 0) == plays(start, 7) for start in (41, 42, 43, 44))
    assert not any(plays(start, 5) for start in range(20, 40))
    one, never = (
        replace(config, training=replace(config.training, deployed_envs=count))
        for count in (1, 0)
    )
    assert not any(plays(start, 0, never) for start in starts)
    assert all(plays(start, 0, one) == plays(start, 0) for start in starts)
    shares = [measurement.num_deployed_envs(c) for c in (config, one, never)]
    assert shares == [0.5, 0.5, 0]


def test_the_deployed_action_is_the_mean_or_a_sample():
    config = replace(config_of(), training=TrainingConfig())
    agent, learner = make_agent(config), learner_of(config)
    observation = jnp.ones((4, 3))
    policy = agent_core.deployed_policy(agent)
    mean = agent_core.mean_action(policy, observation, learner)

    def act(samples):
        steering = agent.steering._replace(samples=jnp.asarray(samples))
        return agent_core.deployed_action(
            jax.random.key(1), agent._replace(steering=steering), observation, learner
        )

    np.testing.assert_allclose(act(False), mean, rtol=1e-6)
    assert (act(True) != mean).all()


def test_without_a_constraint_only_the_clock_is_steered():
    config = replace(config_of(), constraints=())
    measured = measurement.add(measurement.init(config), np.zeros((60, 0)), 0)
    agent, measured, window = steered(config, measured, 400)
    assert window.risk.shape == (0,) and agent.multiplier.value.shape == (0,)
    assert agent.steering.clock > 0 and measured.settled_at == 400
