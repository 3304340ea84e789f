"""The multipliers: where they go, where they stop, and the PID controller."""

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
from orac.config.schema import MultiplierConfig
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
