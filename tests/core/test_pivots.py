"""Tests of the sampler of pivots against SciPy's truncated normal distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orac.core.cost_models import pivot_from_uniform, pivot_location, sample_pivot

from_uniform = jax.jit(pivot_from_uniform, static_argnums=2)


def truncated(location, std):
    return stats.truncnorm((0 - location) / std, (1 - location) / std, location, std)


def test_the_mean_starts_in_the_middle_and_stays_inside():
    np.testing.assert_allclose(pivot_location(jnp.zeros(2)), 0.5)
    ends = np.asarray(pivot_location(jnp.array([-20.0, -3.0, 3.0, 20.0])))
    assert ((ends >= 0) & (ends <= 1)).all() and (np.diff(ends) > 0).all()


@pytest.mark.parametrize("raw", [-4.0, -1.0, 0.0, 2.0])
@pytest.mark.parametrize("std", [0.05, 0.5])
def test_draws_are_the_inverse_distribution_function(raw, std):
    levels = np.linspace(0.001, 0.999, 201)
    location = 1 / (1 + np.exp(-raw))
    draws = from_uniform(
        jnp.asarray(levels[:, None], jnp.float32), jnp.array([raw]), std
    )
    expected = truncated(location, std).ppf(levels)
    np.testing.assert_allclose(draws[:, 0], expected, atol=2e-4)


def test_many_draws_have_the_distribution_they_should():
    draws = sample_pivot(jax.random.key(0), jnp.array([0.0, 2.0]), 0.05, 20_000)
    assert draws.shape == (20_000, 2)
    for column, raw in zip(np.asarray(draws).T, (0.0, 2.0), strict=True):
        location = 1 / (1 + np.exp(-raw))
        assert stats.kstest(column, truncated(location, 0.05).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(np.asarray(draws).T)[0, 1]) < 0.05


@jax.jit
def draw_and_slope(uniform, raw):
    def draw(params):
        return from_uniform(uniform.reshape(1, 1), params, 0.05)[0, 0]

    return jax.value_and_grad(draw)(raw.reshape(1))


@given(st.floats(0, 1, width=32), st.floats(-30, 30, width=32))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_draw_is_finite_inside_and_never_falls_with_the_parameter(uniform, raw):
    value, slope = draw_and_slope(jnp.float32(uniform), jnp.float32(raw))
    assert 0 <= float(value) <= 1
    assert np.isfinite(slope).all() and float(slope[0]) >= -1e-5


def test_the_slope_of_a_draw_is_the_numerical_one():
    uniform = jnp.array([[0.3]])

    def draw(raw):
        return float(from_uniform(uniform, jnp.array([raw]), 0.2)[0, 0])

    slope = jax.jit(jax.grad(lambda p: from_uniform(uniform, p, 0.2).sum()))(
        jnp.array([-1.0])
    )
    numerical = (draw(-0.95) - draw(-1.05)) / 0.1
    assert float(slope[0]) == pytest.approx(numerical, rel=0.01)


def test_each_constraint_has_a_sampler_of_its_own():
    uniform = jnp.full((3, 2), 0.5)
    moved = jax.jit(jax.jacobian(lambda p: from_uniform(uniform, p, 0.05)[0]))(
        jnp.array([0.0, 1.0])
    )
    # A draw of one constraint does not move with the other's parameter.
    np.testing.assert_array_equal(np.asarray(moved) != 0, np.eye(2, dtype=bool))
    assert sample_pivot(jax.random.key(0), jnp.zeros(0), 0.05, 4).shape == (4, 0)
