"""Tests of targets, fractions and losses, against loops, sums by hand and known quantiles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orac.core import critics, risk


def array(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(rows, jnp.float32)


@given(st.integers(0, 2**31 - 1), st.sampled_from([(32,), (4, 32), (1,)]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_widths_are_positive_and_sum_to_one_and_midpoints_lie_inside(seed, shape):
    fractions = critics.sample_fractions(jax.random.key(seed), shape)
    levels, widths = map(np.asarray, fractions)
    assert levels.shape == widths.shape == shape
    # The floor of 0.1 keeps a width above 0.1 / (32 * 1.1).
    assert (widths >= 0.1 / (1.1 * shape[-1]) - 1e-6).all()
    np.testing.assert_allclose(widths.sum(axis=-1), 1, atol=1e-5)
    assert ((levels > 0) & (levels < 1)).all()
    edges = np.cumsum(widths, axis=-1)
    np.testing.assert_allclose(levels, edges - widths / 2, atol=1e-6)
    assert (np.diff(levels, axis=-1) > 0).all()


@given(st.integers(0, 2**31 - 1), st.sampled_from([1.0, 0.25, 0.05, 0.001]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_tail_midpoints_lie_inside_the_tail(seed, tail):
    levels = critics.sample_fractions(jax.random.key(seed), (32,)).levels
    moved = np.asarray(risk.distort_levels(risk.cvar(tail), levels))
    assert ((moved > 1 - tail) & (moved < 1)).all()


def test_rows_of_fractions_are_drawn_apart_and_even_ones_are_even():
    drawn = critics.sample_fractions(jax.random.key(0), (2, 8))
    assert not np.allclose(drawn.levels[0], drawn.levels[1])
    levels, widths = critics.uniform_fractions(4)
    np.testing.assert_allclose(levels, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(widths, 0.25)


@pytest.mark.parametrize("kappa", [0.1, 1.0, 3.0])
def test_huber_is_a_parabola_that_goes_on_as_its_tangent(kappa):
    errors = jnp.linspace(-5, 5, 101)
    size = np.abs(np.asarray(errors))
    expected = np.where(size <= kappa, 0.5 * size**2, kappa * (size - 0.5 * kappa))
    np.testing.assert_allclose(critics.huber(errors, kappa), expected, atol=1e-5)
    slope = jax.vmap(jax.grad(lambda x: critics.huber(x, kappa)))(errors)
    np.testing.assert_allclose(slope, np.clip(errors, -kappa, kappa), atol=1e-6)


def test_quantile_huber_by_hand_on_two_predictions_and_three_targets():
    # Predictions 1 and 3 at levels 0.25 and 0.75, targets 0.5, 2 and 5 of widths
    # 0.5, 0.3 and 0.2, kappa 1.
    #
    # Errors, target - prediction:       Huber (x^2 / 2 up to 1, then |x| - 1/2):
    #   1:  -0.5   1.0   4.0               0.125   0.5   3.5
    #   3:  -2.5  -1.0   2.0               2.0     0.5   1.5
    # Weights |level - 1[error < 0]|:    Products:
    #   1:   0.75  0.25  0.25              0.09375  0.125  0.875
    #   3:   0.25  0.25  0.75              0.5      0.125  1.125
    # Summed with the widths 0.5, 0.3, 0.2:
    #   1:   0.046875 + 0.0375 + 0.175 = 0.259375
    #   3:   0.25     + 0.0375 + 0.225 = 0.5125
    # The mean over the predictions: 0.771875 / 2 = 0.3859375.
    predictions, levels = jnp.array([1.0, 3.0]), jnp.array([0.25, 0.75])
    targets, widths = jnp.array([0.5, 2.0, 5.0]), jnp.array([0.5, 0.3, 0.2])
    errors = critics.pairwise_errors(predictions, targets)
    np.testing.assert_allclose(errors, [[-0.5, 1, 4], [-2.5, -1, 2]])
    pairwise = critics.quantile_huber(errors, levels[:, None], 1.0)
    np.testing.assert_allclose(
        pairwise, [[0.09375, 0.125, 0.875], [0.5, 0.125, 1.125]], rtol=1e-6
    )
    loss = critics.quantile_loss(predictions, levels, targets, widths, 1.0)
    assert float(loss) == pytest.approx(0.3859375, rel=1e-6)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("kappa", [0.2, 1.0])
def test_the_loss_equals_a_double_loop(per_row, kappa):
    # 2 constraints, 3 members, 4 rows, 5 predictions, 6 targets.
    predictions, targets = array(2, 3, 4, 5), 2 * array(2, 3, 4, 6, seed=1)
    batch = (4,) if per_row else ()
    asked = critics.sample_fractions(jax.random.key(0), (*batch, 5))
    widths = critics.sample_fractions(jax.random.key(1), (*batch, 6)).widths
    rows = critics.quantile_loss(predictions, asked.levels, targets, widths, kappa)
    levels = np.broadcast_to(np.float64(asked.levels), (4, 5))
    mass = np.broadcast_to(np.float64(widths), (4, 6))
    predictions, targets = np.float64(predictions), np.float64(targets)
    total = 0.0
    for c, e, b in itertools.product(range(2), range(3), range(4)):
        for i in range(5):
            for j in range(6):
                error = targets[c, e, b, j] - predictions[c, e, b, i]
                size = abs(error)
                square = 0.5 * size**2
                huber = square if size <= kappa else kappa * (size - 0.5 * kappa)
                weight = abs(levels[b, i] - (error < 0))
                total += mass[b, j] * weight * huber / kappa / 5 / 4
    assert float(rows.mean(axis=-1).sum()) == pytest.approx(total, rel=1e-5)


def fit_quantiles(targets, num_quantiles, kappa, steps=3000):
    """Adam on the loss until the predictions rest."""
    levels = critics.uniform_fractions(num_quantiles).levels
    widths = jnp.full(targets.shape, 1 / targets.shape[0])
    start = jnp.full(num_quantiles, targets.mean())
    optimizer = optax.adam(optax.linear_schedule(0.05, 0.0, steps))

    def loss(predictions):
        return critics.quantile_loss(predictions, levels, targets, widths, kappa)

    def step(carry, _):
        predictions, state = carry
        updates, state = optimizer.update(jax.grad(loss)(predictions), state)
        return (predictions + updates, state), None

    carry = (start, optimizer.init(start))
    return np.asarray(jax.lax.scan(step, carry, None, steps)[0][0])


def test_fitted_quantiles_recover_known_ones_as_kappa_falls():
    grid = (np.arange(400) + 0.5) / 400
    targets = jnp.asarray(stats.gamma.ppf(grid, 2.0), jnp.float32)
    true = stats.gamma.ppf((np.arange(8) + 0.5) / 8, 2.0)
    error = {
        kappa: np.abs(fit_quantiles(targets, 8, kappa) - true).max()
        for kappa in (1.0, 0.1, 0.01)
    }
    assert error[0.01] < 0.02
    assert error[0.01] < error[0.1] < error[1.0]


def test_a_kappa_of_1_underestimates_the_tail():
    # Why kappa is a field: the fitted upper quantiles are expectile-like, too low.
    grid = (np.arange(400) + 0.5) / 400
    targets = jnp.asarray(stats.gamma.ppf(grid, 2.0), jnp.float32)
    top = stats.gamma.ppf(7.5 / 8, 2.0)
    assert fit_quantiles(targets, 8, 1.0)[-1] < top - 0.1


def test_a_terminated_target_is_the_cost_alone_and_a_truncated_one_bootstraps():
    cost = jnp.array([[1.0, 2.0, 3.0]])
    terminated = jnp.array([False, True, False])
    next_quantiles = jnp.broadcast_to(jnp.array([10.0, 20.0]), (1, 2, 3, 2))
    # The third row was cut by a time limit: to the learner it is no end.
    targets = critics.cost_targets(cost, terminated, next_quantiles, 0.5)
    np.testing.assert_allclose(targets[0, 0], [[6, 11], [2, 2], [8, 13]])
    np.testing.assert_array_equal(targets[0, 0], targets[0, 1])


def test_each_constraint_has_its_own_cost_in_its_targets():
    cost, ends = jnp.array([[1.0], [7.0]]), jnp.array([False])
    next_quantiles = jnp.array([[[[2.0]]], [[[4.0]]]])
    targets = critics.cost_targets(cost, ends, next_quantiles, 0.9)
    np.testing.assert_allclose(targets.reshape(-1), [2.8, 10.6], rtol=1e-6)


def test_perturbing_one_target_changes_that_members_loss_alone():
    predictions, targets = array(2, 3, 4, 5), array(2, 3, 4, 5, seed=1)
    fractions = critics.uniform_fractions(5)

    def member_losses(targets):
        rows = critics.quantile_loss(
            predictions, fractions.levels, targets, fractions.widths, 1.0
        )
        return rows.mean(axis=-1)

    before = member_losses(targets)
    after = member_losses(targets.at[1, 2].add(1.0))
    changed = np.argwhere(np.asarray(before != after))
    np.testing.assert_array_equal(changed, [[1, 2]])
    # And the gradient of the summed loss keeps members apart as well.
    gradient = jax.jit(
        jax.jacobian(
            lambda p: critics.quantile_loss(
                p, fractions.levels, targets, fractions.widths, 1.0
            ).mean(axis=-1)
        )
    )(predictions)
    gradient = np.asarray(gradient)
    for c, e, c2, e2 in itertools.product(range(2), range(3), range(2), range(3)):
        touched = bool((gradient[c, e, c2, e2] != 0).any())
        assert touched == ((c, e) == (c2, e2))


def test_the_reward_target_is_soft_and_careful():
    # min(5, 4) - 0.5 * (-2) = 5, times 0.9, plus 1; at an end the reward alone.
    target = critics.reward_target(
        jnp.array([1.0, 1.0]),
        jnp.array([False, True]),
        jnp.array([[5.0, 5.0], [4.0, 4.0]]),
        jnp.array([-2.0, -2.0]),
        jnp.float32(0.5),
        0.9,
    )
    np.testing.assert_allclose(target, [5.5, 1.0], rtol=1e-6)


def test_squared_loss_sums_members_and_averages_rows():
    predictions = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    targets = jnp.array([1.0, 4.0])
    # Member 1: (0 + 4) / 2 = 2; member 2: (4 + 1) / 2 = 2.5.
    assert float(critics.squared_loss(predictions, targets)) == 4.5
