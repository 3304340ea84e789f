"""Tests of the multipliers: their direction, their bounds and the PID controller."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agent_examples import (
    BATCH,
    assert_same_bits,
    compiled_update,
    make_agent,
    make_batch,
    problem_for,
    small_config,
    with_multiplier,
)
from orac.config.schema import AgentConfig, MultiplierConfig
from orac.core import lagrange
from orac.core.optimizers import make_optimizers

KEY = jax.random.key(3)


def multiplier_after(risks, start=0.0, steps=1, **settings):
    """Both multipliers after steps at the given mean risks; the limits are about 4, 8."""
    config = small_config("wcsac-iqn", 2, multiplier=MultiplierConfig(**settings))
    agent = with_multiplier(make_agent(config), start)
    multiplier = agent.multiplier
    limits = problem_for(config).limits
    optimizer = make_optimizers(config.agent).multiplier
    spread = jnp.linspace(-1.0, 1.0, BATCH)
    path = []
    for risk in jnp.broadcast_to(jnp.asarray(risks), (steps, 2)):
        rows = (risk * limits)[:, None] + spread
        multiplier = lagrange.update(multiplier, rows, limits, config.agent, optimizer)
        path.append(multiplier.value)
    return np.array(path)


@pytest.mark.parametrize("risks", [(0.9, 1.1), (1.1, 0.9), (1.3, 1.1), (0.5, 0.9)])
def test_one_step_from_rest_rises_iff_mean_risk_is_above_the_limit(risks):
    above = np.array(risks) > 1
    value = multiplier_after(risks)[0]
    np.testing.assert_allclose(value, np.where(above, 5e-4, 0.0), rtol=1e-3)
    # From above zero it falls as readily.
    value = multiplier_after(risks, start=1.0)[0]
    np.testing.assert_allclose(value, 1 + np.where(above, 5e-4, -5e-4), rtol=1e-6)


@pytest.mark.parametrize("pid", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_multiplier_is_never_negative_nor_above_its_cap(seed, pid):
    noise = jax.random.uniform(jax.random.key(seed), (60, 2))
    low_then_high_then_low = jnp.repeat(jnp.array([0.2, 1.2, 0.2]), 20)
    risks = low_then_high_then_low[:, None] + noise
    settings = {"learning_rate": 0.2, "pid": pid, "pid_gains": (0.5, 0.1, 0.5)}
    free = multiplier_after(risks, steps=60, **settings)
    capped = multiplier_after(risks, steps=60, cap=0.3, **settings)
    assert free.min() == 0 and free.max() > 0.3
    assert capped.min() == 0 and capped.max() == np.float32(0.3)


def test_one_constraint_does_not_move_the_others_multiplier():
    calm = multiplier_after((1.2, 1.1), steps=20)
    wild = multiplier_after((1.2, 9.0), steps=20)
    np.testing.assert_array_equal(calm[:, 0], wild[:, 0])


def test_the_pid_controller_by_hand():
    risks = jnp.array([[1.5, 1.0], [1.2, 0.5], [1.4, 2.0]])
    found = multiplier_after(risks, steps=3, pid=True, pid_gains=(0.5, 0.1, 2.0))
    # Errors are risk / limit - 1. First: 0.5, 0.2, 0.4 with integrals (gain 0.1)
    # 0.05, 0.07, 0.11; only a rise is answered by the derivative: 0.5, 0, 0.2.
    first = [0.25 + 0.05 + 1.0, 0.10 + 0.07, 0.20 + 0.11 + 0.4]
    # Second: 0, -0.5, 1 with integrals 0, 0 (not -0.05), 0.1; rises 0, 0, 1.5.
    second = [0.0, 0.0, 0.5 + 0.1 + 3.0]
    np.testing.assert_allclose(found, np.array([first, second]).T, atol=1e-5)


def test_the_mean_risk_of_some_rows_is_theirs_alone_and_0_without_any():
    risk = jnp.array([[1.0, 2.0, 3.0, 4.0], [8.0, 0.0, 2.0, 0.0]])
    some = jnp.array([True, False, True, False])
    np.testing.assert_array_equal(lagrange.mean_risk(risk, some), [2.0, 5.0])
    np.testing.assert_array_equal(lagrange.mean_risk(risk, None), [2.5, 2.5])
    np.testing.assert_array_equal(lagrange.mean_risk(risk, ~some & some), [0, 0])


@pytest.mark.parametrize("pid", [False, True])
def test_without_a_start_nothing_moves_not_even_adams_moments(pid):
    config = small_config("wcsac-iqn", multiplier=MultiplierConfig(pid=pid))
    limits, risk = problem_for(config).limits, jnp.full((1, BATCH), 9.0)
    optimizer = make_optimizers(config.agent).multiplier
    multiplier = lagrange.init(1, config.agent, optimizer)
    some, none = jnp.arange(BATCH) < 3, jnp.zeros(BATCH, bool)
    moved = lagrange.update(multiplier, risk, limits, config.agent, optimizer, some)
    assert moved.value > multiplier.value
    assert_same_bits(
        lagrange.update(moved, 5 * risk, limits, config.agent, optimizer, none), moved
    )


def test_starts_alone_teach_the_multiplier_when_asked_to():
    everywhere = small_config("wcsac-iqn")
    starts = small_config("wcsac-iqn", multiplier=MultiplierConfig(states="starts"))
    agent, batch = make_agent(everywhere), make_batch(everywhere)
    agent = with_multiplier(agent, 1.0)

    def step(config, discount, agent=agent):
        rows = batch._replace(accumulated_discount=jnp.asarray(discount))
        return compiled_update(config)(KEY, agent, rows)

    ones = np.ones(BATCH, np.float32)
    # Every row a start: the two are the same.
    (left, seen), (right, also_seen) = step(everywhere, ones), step(starts, ones)
    np.testing.assert_allclose(left.multiplier.value, right.multiplier.value, rtol=1e-6)
    name = "constraint/risk/cost"
    np.testing.assert_allclose(seen[name], also_seen[name], rtol=1e-5)
    # No row a start: nothing is learned about it, and what was last seen stands.
    after, seen = step(starts, 0.9 * ones, right)
    assert_same_bits(after.multiplier, right.multiplier)
    np.testing.assert_array_equal(seen[name], also_seen[name])
    # One: it alone counts.
    one = step(starts, np.where(np.arange(BATCH) == 5, 1.0, 0.9).astype("float32"))[1]
    assert one[name] != pytest.approx(float(also_seen[name]), rel=1e-6)


def test_the_logged_risk_is_that_of_the_critics_if_the_multiplier_follows_episodes():
    name, found = "constraint/risk/cost", []
    for states in ("replay", "starts"):
        multiplier = MultiplierConfig(follows="episodes", initial=1.0, states=states)
        config = small_config("wcsac-iqn", multiplier=multiplier)
        agent = make_agent(config)
        relative = agent.multiplier._replace(previous_error=jnp.full(1, 0.25))
        agent = agent._replace(multiplier=relative)
        found.append(compiled_update(config)(KEY, agent, make_batch(config))[1][name])
    assert found[0] == found[1]


def following(**settings):
    """A config whose multiplier follows episodes from 1, with a proportional part of 0."""
    defaults = {"initial": 1.0, "cap": 100.0, "proportional": 0.0}
    multiplier = MultiplierConfig(follows="episodes", **{**defaults, **settings})
    return AgentConfig(multiplier=multiplier)


def start_of(config, count=1):
    return lagrange.init(count, config, make_optimizers(config).multiplier)


def moved(config, *errors, improving=False, episodes=30.0):
    """The multipliers after measurements with these relative errors."""
    multiplier = start_of(config, len(np.atleast_1d(errors[0])))
    for error in errors:
        error = np.atleast_1d(np.asarray(error, float))
        falling = np.broadcast_to(improving, error.shape)
        multiplier = lagrange.follow_episodes(
            multiplier, error, falling, episodes, config
        )
    return multiplier


def test_at_the_target_it_rests_and_at_the_limit_it_rises_by_gain_times_margin():
    config = following(margin=0.05, episodes_per_unit=300.0)
    assert moved(config, 0.0).value[0] == 1
    # The error at the limit is margin / limit; 30 episodes are a tenth of a unit.
    np.testing.assert_allclose(moved(config, 0.05).integral, 0.1 * 0.05, rtol=1e-6)
    np.testing.assert_allclose(moved(config, 0.05).value, np.exp(0.005), rtol=1e-6)


def test_the_proportional_part_is_added_and_not_summed():
    config = following(proportional=0.2)
    multiplier = moved(config, 0.5, 0.5)
    np.testing.assert_allclose(multiplier.integral, 0.1, rtol=1e-5)
    np.testing.assert_allclose(multiplier.value, np.exp(0.1 + 0.2 * 0.5), rtol=1e-5)
    # Back in the dead zone only the sum is left.
    np.testing.assert_allclose(moved(config, 0.5, 0.5, -0.1).value, np.exp(0.1))


def test_it_rests_in_the_dead_zone_and_falls_below_it():
    config = following(dead_zone=0.3)
    assert moved(config, -0.01, -0.2, -0.29).value[0] == 1
    np.testing.assert_allclose(moved(config, -0.4).integral, -0.04, rtol=1e-6)


def test_errors_are_clipped_so_that_no_measurement_moves_it_far():
    config = following()
    np.testing.assert_allclose(moved(config, 40.0).integral, 0.1, rtol=1e-6)
    np.testing.assert_allclose(moved(config, -0.95).integral, -0.05, rtol=1e-6)


def test_a_small_largest_error_bounds_both_parts_and_does_not_widen_the_dead_zone():
    config = following(max_error=0.1, dead_zone=0.2, proportional=0.5)
    multiplier = moved(config, 0.8)
    np.testing.assert_allclose(multiplier.integral, 0.1 * 0.1, rtol=1e-6)
    np.testing.assert_allclose(multiplier.value, np.exp(0.01 + 0.05), rtol=1e-6)
    np.testing.assert_allclose(moved(config, 0.04).integral, 0.1 * 0.04, rtol=1e-6)
    assert moved(config, -0.15).value[0] == 1
    np.testing.assert_allclose(moved(config, -0.3).integral, -0.1 * 0.1, rtol=1e-6)


def test_it_does_not_rise_while_the_risk_is_falling_but_may_fall():
    config = following()
    assert moved(config, 0.8, improving=True).value[0] == 1
    assert moved(config, 0.8, improving=False).value[0] > 1
    assert moved(config, -0.8, improving=True).value[0] < 1


def test_every_constraint_has_its_own_multiplier():
    together = moved(following(), (0.4, -0.6), (0.4, -0.1))
    apart = [moved(following(), 0.4, 0.4), moved(following(), -0.6, -0.1)]
    for m, alone in enumerate(apart):
        one = jax.tree.map(lambda leaf, m=m: leaf[m : m + 1], together)
        assert_same_bits(one, alone)


def test_it_stays_between_its_floor_and_its_cap():
    config = following(cap=2.0, floor=0.5, proportional=0.3)
    np.testing.assert_allclose(moved(config, *[1.0] * 20).value, 2.0, rtol=1e-6)
    np.testing.assert_allclose(moved(config, *[-0.5] * 40).value, 0.5, rtol=1e-6)


def test_the_floor_rises_above_the_value_at_which_the_limit_was_broken():
    config = following(floor=0.01, margin=0.1)
    fallen = moved(config, *[-0.5] * 10)
    np.testing.assert_allclose(fallen.integral, -0.5, rtol=1e-5)
    # A risk between target and limit is no break, and the fall is not forgotten.
    for errors in ((0.5,), (0.05, 0.5)):
        broken = moved(config, *[-0.5] * 10, *errors)
        before = -0.5 + 0.1 * sum(errors[:-1])
        np.testing.assert_allclose(broken.floor, before + np.log(1.5), rtol=1e-5)
        np.testing.assert_allclose(broken.integral, broken.floor)
    # A second break without a fall in between does not raise it again.
    again = moved(config, *[-0.5] * 10, 0.5, 0.5)
    assert again.floor < broken.floor and again.value > broken.value
    # A break that no fall came before is not remembered either.
    np.testing.assert_allclose(moved(config, 0.5, 0.5).floor, np.log(0.01), rtol=1e-5)


def test_without_memory_a_break_leaves_the_floor_where_it_is():
    config = following(floor=0.01, margin=0.1, remember_breaks=False)
    broken = moved(config, *[-0.5] * 10, 0.5)
    np.testing.assert_allclose(broken.floor, np.log(0.01), rtol=1e-5)
    np.testing.assert_allclose(broken.integral, -0.45, rtol=1e-5)


def test_the_floor_relaxes_by_one_unit_in_twenty_times_the_gain():
    config = following(floor=0.01, margin=0.1, episodes_per_unit=300.0)
    broken = moved(config, *[-0.5] * 10, 0.5)
    multiplier = broken
    for _ in range(100):  # 3000 episodes, half of 20 * 300
        multiplier = lagrange.follow_episodes(
            multiplier, np.array([-0.9]), np.array([False]), 30.0, config
        )
        assert multiplier.value >= jnp.exp(multiplier.floor) * (1 - 1e-6)
    np.testing.assert_allclose(multiplier.floor, broken.floor - 0.5, atol=1e-4)
    np.testing.assert_allclose(multiplier.integral, multiplier.floor)


def steer_plant(plant, limit, rounds, delay=3, noise=0.0, seed=0, **settings):
    """Risks and multipliers of a plant `(multiplier, round) -> risk` under control.

    The measured risk is a mean over the last `delay` rounds of 20 episodes, with noise.
    """
    config = following(**settings)
    margin = config.multiplier.margin
    numbers = np.random.default_rng(seed)
    multiplier = start_of(config)
    seen, risks, values = [], [], []
    for t in range(rounds):
        values.append(float(multiplier.value[0]))
        risks.append(plant(values[-1], t))
        seen.append(max(risks[-1] + noise * limit * numbers.normal(), 0))
        error = (np.mean(seen[-delay:]) - (1 - margin) * limit) / limit
        multiplier = lagrange.follow_episodes(
            multiplier, np.array([error]), np.array([False]), 20.0, config
        )
    return np.array(risks), np.array(values)


@pytest.mark.parametrize(("delay", "noise"), [(1, 0.0), (6, 0.0), (3, 0.1), (6, 0.1)])
def test_a_smooth_plant_settles_within_its_limit(delay, noise):
    # The risk is 8 at the start; a multiplier of 2.56 brings it to the limit.
    risks, _ = steer_plant(lambda x, t: 8 / x**0.5, 5.0, 300, delay, noise)
    assert risks[0] > 5 and (risks[150:] <= 5).all()
    # It uses the limit: no lower than the dead zone and the noise allow.
    assert (risks[150:] > 0.4 * 5).all()


def test_a_settled_plant_rests():
    # The risk is 4.28, between 0.65 and 0.95 of the limit.
    _, values = steer_plant(lambda x, t: 8 / x**0.5, 5.0, 50, initial=3.5)
    np.testing.assert_allclose(values, 3.5, rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_plant_recovers_after_a_step_change(noise):
    # From round 150 on the same multiplier gives twice the risk, from 450 on half of it.
    def plant(multiplier, t):
        factor = 1 + (t >= 150) - 1.5 * (t >= 450)
        return factor * 8 / multiplier**0.5

    risks, values = steer_plant(plant, 5.0, 900, noise=noise)
    assert risks[150] > 5
    assert (risks[300:450] <= 5).all()
    # It gives back what it no longer needs: the risk is near the limit again.
    assert values[-1] < 0.2 * values[449]
    assert (risks[800:] <= 5).all() and (risks[800:] > 2).all()


@pytest.mark.parametrize("threshold", [0.1, 0.7, 20.0])
@pytest.mark.parametrize(
    ("delay", "margin", "noise"), [(1, 0.05, 0.0), (6, 0.05, 0.1), (4, 0.15, 0.0)]
)
def test_a_plant_of_two_modes_stays_feasible(threshold, delay, margin, noise):
    """Below a multiplier that nobody knows the risk is 7, above it 0; the limit is 2.

    At a delay of 4 the measured risk passes between target and limit on its way up.
    """
    risks, _ = steer_plant(
        lambda x, t: 7.0 if x < threshold else 0.0,
        2.0,
        900,
        delay,
        noise,
        margin=margin,
    )
    found = np.argmax(risks == 0)
    assert (risks[found:] == 7).any(), "the threshold was never tried"
    assert (risks[found:] == 0).mean() >= 0.95


def test_costs_and_limit_times_a_thousand_change_nothing():
    def plant(scale):
        return lambda x, t: scale * 8 / x**0.5

    _, small = steer_plant(plant(1.0), 5.0, 100, noise=0.1)
    _, large = steer_plant(plant(1000.0), 5000.0, 100, noise=0.1)
    np.testing.assert_allclose(small, large, rtol=1e-5)
