"""Tests of exploration: the shift of the mean, optimistic bounds, exploration multiplier."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orac.core import exploration

examples = settings(max_examples=40, deadline=None, derandomize=True)
entries = st.floats(-1e3, 1e3, width=32)
spreads = st.floats(0.0078125, 4, width=32)
gradients = hnp.arrays(np.float32, (3, 2), elements=entries)
stds = hnp.arrays(np.float32, (3, 2), elements=spreads)
ensembles = hnp.arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32))
mean_shift = jax.jit(exploration.mean_shift)


def array(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(rows, jnp.float32)


def lengths(shift, std):
    """Mahalanobis length of each row's shift in the policy's own metric."""
    scaled = np.asarray(shift, np.float64) / np.asarray(std, np.float64)
    return np.linalg.norm(scaled, axis=-1)


@given(gradients, stds, st.floats(0, 8, width=32))
@examples
def test_the_shift_has_the_radius_as_its_length_and_points_uphill(g, std, radius):
    shift = np.asarray(mean_shift(jnp.asarray(g), jnp.asarray(std), radius))
    assert np.isfinite(shift).all()
    moved = (np.abs(std * g) > 1e-6).any(axis=-1)
    np.testing.assert_allclose(lengths(shift, std)[moved], radius, 1e-5, atol=1e-30)
    assert ((np.float64(g) * shift).sum(axis=-1) >= 0).all()


@given(gradients, stds, st.sampled_from([1e-6, 1e-3, 1.0, 1e6, 1e18, 1e30]))
@examples
def test_scaling_the_objective_changes_nothing(g, std, factor):
    rows = (np.abs(g) > 1e-2).any(axis=-1)
    plain = np.asarray(mean_shift(jnp.asarray(g), jnp.asarray(std), 4.0))
    scaled = np.asarray(mean_shift(factor * jnp.asarray(g), jnp.asarray(std), 4.0))
    np.testing.assert_allclose(scaled[rows], plain[rows], rtol=1e-4, atol=1e-5)


def test_a_zero_gradient_gives_a_zero_shift_and_no_nan():
    std = jnp.array([[0.5, 1.0], [0.5, 1.0]])
    gradient = jnp.array([[0.0, 0.0], [0.0, 3.0]])
    np.testing.assert_array_equal(mean_shift(gradient, std, 4.0), [[0, 0], [0, 4]])
    # Nor in its own gradient, should anybody differentiate through it.
    slope = jax.jit(jax.grad(lambda g: mean_shift(g, std, 4.0).sum()))(gradient)
    assert np.isfinite(slope).all()


def test_a_shift_is_whole_or_nothing_on_either_side_of_1e_12():
    # Times std they are (0.9, 0.9), (1.1, 0.9), (-0.1, 1.1) and (0, 1e-8) e-12: what
    # counts is the largest entry, not the norm, which in the first row is 1.3e-12.
    std = jnp.array([[0.5, 2.0]])
    entries = jnp.array([[1.8, 0.45], [2.2, 0.45], [-0.2, 0.55], [0.0, 5e-9]])
    shift = mean_shift(1e-12 * entries, jnp.tile(std, (4, 1)), 4.0)
    np.testing.assert_allclose(lengths(shift, std), [0, 4, 4, 0], rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(shift)[[0, 3]], 0)


def test_a_shift_by_hand_in_two_dimensions():
    # std (0.5, 2), so S = diag(0.25, 4); g = (8, 3/2): S g = (2, 6);
    # g' S g = 16 + 9 = 25, its root is 5; radius 4: 4 / 5 * (2, 6) = (1.6, 4.8).
    # In the policy's metric: (1.6 / 0.5)^2 + (4.8 / 2)^2 = 10.24 + 5.76 = 16 = 4^2.
    std, gradient = jnp.array([[0.5, 2.0]]), jnp.array([[8.0, 1.5]])
    shift = exploration.mean_shift(gradient, std, 4.0)
    np.testing.assert_allclose(shift, [[1.6, 4.8]], rtol=1e-6)


@given(gradients, stds, st.floats(0, 4, width=32))
@examples
def test_the_kl_divergence_is_half_the_squared_radius(g, std, radius):
    shift = np.asarray(mean_shift(jnp.asarray(g), jnp.asarray(std), radius))
    # KL of two Gaussians with one covariance: half the squared Mahalanobis distance.
    kl = lengths(shift, std) ** 2 / 2
    moved = (np.abs(std * g) > 1e-6).any(axis=-1)
    np.testing.assert_allclose(kl[moved], radius**2 / 2, rtol=1e-4, atol=1e-12)


def test_the_kl_divergence_measured_from_draws_agrees():
    std, shift = np.array([0.5, 2.0]), np.array([1.6, 4.8])
    draws = shift + std * np.random.default_rng(0).normal(size=(100_000, 2))
    log_ratio = ((draws / std) ** 2 - ((draws - shift) / std) ** 2).sum(axis=-1) / 2
    assert log_ratio.mean() == pytest.approx(8, abs=0.1)
    # Four is the radius here; to OAC four is the divergence, and the radius its root.
    assert exploration.radius_from_kl(8.0) == pytest.approx(4)


@pytest.mark.parametrize("kl", [0.0, 0.5, 4.0, 23.53])
def test_a_radius_from_a_kl_gives_that_kl(kl):
    radius = exploration.radius_from_kl(kl)
    assert radius == pytest.approx((2 * kl) ** 0.5)
    assert radius**2 / 2 == pytest.approx(kl)


def test_the_spread_of_two_critics_is_half_their_difference():
    values = jnp.array([[1.0, -2.0], [4.0, -2.0]])
    np.testing.assert_allclose(exploration.ensemble_spread(values), [1.5, 0.0])
    bound = exploration.reward_upper_bound(values, 3.0)
    # Means 2.5 and -2, plus 3 times 1.5 and 0.
    np.testing.assert_allclose(bound, [7.0, -2.0])


def test_the_spread_is_the_population_one_and_zero_for_one_member():
    values = array(5, 7)
    expected = np.asarray(values, np.float64).std(axis=0)
    np.testing.assert_allclose(exploration.ensemble_spread(values), expected, rtol=1e-5)
    np.testing.assert_array_equal(exploration.ensemble_spread(values[:1]), 0)


@given(ensembles, st.floats(-5, 5, width=32), st.floats(0, 5, width=32))
@examples
def test_bounds_are_monotone_in_their_optimism(values, optimism, more):
    values = jnp.asarray(values)
    low, high = (
        np.asarray(exploration.reward_upper_bound(values, float(o)))
        for o in (optimism, optimism + more)
    )
    assert (high >= low - 1e-3).all()
    low, high = (
        np.asarray(exploration.optimistic_quantiles(values, float(o)))
        for o in (optimism, optimism + more)
    )
    assert (high <= low + 1e-3).all()


@given(ensembles, st.permutations(range(5)))
@examples
def test_permuting_the_ensemble_changes_nothing(values, order):
    for bound in (exploration.reward_upper_bound, exploration.optimistic_quantiles):
        one = bound(jnp.asarray(values), 2.0)
        other = bound(jnp.asarray(values[order]), 2.0)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 7])
def test_agreeing_critics_have_a_finite_spread_with_a_finite_gradient(members):
    # Members that are the same function of x, up to a gap: the mean of three or five
    # equal numbers need not equal them, and a plain square root has no slope at 0.
    @jax.jit
    def spread_and_slope(x, gap):
        def spread(x):
            return exploration.ensemble_spread(jnp.sin(x) + gap * jnp.arange(members))

        return jax.value_and_grad(spread)(x)

    for gap in (0.0, 1e-30, 1e-20, 1e-7):
        value, slope = spread_and_slope(0.1, gap)
        assert 0 <= float(value) <= 10 * gap + 1e-7
        # The members move together, so their spread does not change.
        assert float(slope) == pytest.approx(0, abs=1e-3)


def test_the_gradient_of_a_spread_is_finite_for_members_that_touch():
    # Two members that cross at 0: the slope jumps there, and 0 is between the sides.
    def spread(x):
        return exploration.ensemble_spread(jnp.array([x, -x]))

    slope = jax.jit(jax.grad(spread))
    slopes = [float(slope(x)) for x in (-0.5, 0.0, 0.5)]
    np.testing.assert_allclose(slopes, [-1, 0, 1], atol=1e-6)


def test_the_weight_of_the_cost_by_hand():
    # Multiplier 2, limit 5. A bound of 4 leaves room of 1: 2 - 1 = 1. At 6: 2 + 1 = 3.
    # At 1 the room is 4 and the weight would be -2: clipped.
    weight = exploration.exploration_multiplier(
        jnp.float32(2), jnp.float32(5), jnp.array([4.0, 6.0, 1.0])
    )
    np.testing.assert_array_equal(weight, [1, 3, 0])


numbers = st.floats(-100, 100, width=32)


@given(numbers, st.floats(0, 50, width=32), numbers, st.floats(0, 9, width=32))
@examples
def test_the_weight_of_the_cost_is_never_negative_and_never_falls(
    limit, multiplier, bound, more
):
    def weight(multiplier, bound):
        return float(
            exploration.exploration_multiplier(
                jnp.float32(multiplier), jnp.float32(limit), jnp.float32(bound)
            )
        )

    here = weight(multiplier, bound)
    assert here >= 0
    assert weight(multiplier + more, bound) >= here
    assert weight(multiplier, bound + more) >= here


def quadratic_bounds(reward_centre, cost_centre):
    """Concave reward and convex cost of the action, per row, one constraint."""

    def bounds(action):
        reward = -jnp.square(action - reward_centre).sum(axis=-1)
        cost = 3 + jnp.square(action - cost_centre).sum(axis=-1)
        return reward, cost[None]

    return bounds


shift_policy = jax.jit(exploration.shift_policy, static_argnums=2)


def shifted(mean, std, bounds, multiplier=1.5, limit=2.0, radius=0.7):
    return shift_policy(
        mean, std, bounds, jnp.array([multiplier]), jnp.array([[limit]]), radius
    )


def test_the_gradient_is_taken_before_the_tanh_with_the_weight_held_fixed():
    mean = jnp.array([[0.4]])
    reward_centre, cost_centre = jnp.array([[0.9]]), jnp.array([[-0.5]])
    bounds = quadratic_bounds(reward_centre, cost_centre)
    gradient, weight = exploration.optimistic_gradient(
        mean, bounds, jnp.array([1.5]), jnp.array([[2.0]])
    )
    # a = tanh(0.4). Weight: 1.5 - (2 - cost); d/da: -2 (a - 0.9) - weight * 2 (a + 0.5);
    # times 1 - a^2 for the tanh. The weight's own slope in a is not part of it.
    a = np.tanh(0.4)
    by_hand = 1.5 - (2 - (3 + (a + 0.5) ** 2))
    slope = (-2 * (a - 0.9) - by_hand * 2 * (a + 0.5)) * (1 - a**2)
    assert float(weight[0, 0]) == pytest.approx(by_hand, rel=1e-5)
    assert float(gradient[0, 0]) == pytest.approx(slope, rel=1e-5)


def test_the_objective_is_the_reward_bound_minus_the_weighted_cost_bounds():
    mean = jnp.array([[0.4], [-0.2]])

    def bounds(action):
        return action[:, 0], jnp.stack([action[:, 0] ** 2, 2 + action[:, 0]])

    total, weight = exploration.optimistic_objective(
        mean, bounds, jnp.array([1.0, 0.5]), jnp.array([[0.5], [1.0]])
    )
    a = np.tanh([0.4, -0.2])
    costs = np.stack([a**2, 2 + a])
    expected = np.maximum(np.array([[1], [0.5]]) - (np.array([[0.5], [1]]) - costs), 0)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    assert float(total) == pytest.approx((a - (expected * costs).sum(axis=0)).sum())


def test_rows_of_a_batch_equal_single_calls():
    mean, std = array(4, 3), jnp.exp(array(4, 3, seed=1))
    centres = array(4, 3, seed=2), array(4, 3, seed=3)
    together = shifted(mean, std, quadratic_bounds(*centres))
    for i in range(4):
        row = slice(i, i + 1)
        bounds = quadratic_bounds(centres[0][row], centres[1][row])
        alone = shifted(mean[row], std[row], bounds)
        np.testing.assert_allclose(together.mean[row], alone.mean, rtol=1e-4)
        np.testing.assert_allclose(together.length[row], alone.length, rtol=1e-4)


def test_a_radius_of_zero_gives_the_actor_back_to_the_bit():
    mean, std = array(4, 3), jnp.exp(array(4, 3, seed=1))
    shift = shifted(mean, std, quadratic_bounds(array(4, 3), array(4, 3)), radius=0.0)
    np.testing.assert_array_equal(shift.mean, mean)
    np.testing.assert_array_equal(shift.length, 0)


def test_without_constraints_the_shift_follows_the_reward_alone():
    mean, std = jnp.zeros((2, 1)), jnp.ones((2, 1))

    def bounds(action):
        return action[:, 0], jnp.zeros((0, 2))

    shift = shift_policy(mean, std, bounds, jnp.zeros(0), jnp.zeros((0, 1)), 0.5)
    np.testing.assert_allclose(shift.mean, 0.5)
    assert shift.exploration_multiplier.shape == (0, 2)


def test_room_below_the_limit_turns_the_shift_from_cost_to_reward():
    # Reward grows to the right, cost too. With little room the cost decides.
    mean, std = jnp.zeros((1, 1)), jnp.ones((1, 1))

    def bounds(action):
        return action[:, 0], 4 + action.T

    tight = shifted(mean, std, bounds, multiplier=1.0, limit=3.0)
    roomy = shifted(mean, std, bounds, multiplier=1.0, limit=9.0)
    assert float(tight.mean[0, 0]) < 0 < float(roomy.mean[0, 0])


def test_every_constraint_pulls_with_its_own_weight():
    # Two constraints on two actions; the second is far below its limit.
    mean, std = jnp.zeros((1, 2)), jnp.ones((1, 2))

    def bounds(action):
        return 0 * action[:, 0], 2 + action.T

    shift = shift_policy(
        mean, std, bounds, jnp.array([1.0, 1.0]), jnp.array([[1.0], [9.0]]), 2.0
    )
    # Weights 1 - (1 - 2) = 2 and max(1 - (9 - 2), 0) = 0: all of the shift is along 1.
    np.testing.assert_allclose(shift.exploration_multiplier[:, 0], [2, 0])
    np.testing.assert_allclose(shift.mean, [[-2, 0]], atol=1e-6)
