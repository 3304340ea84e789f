"""Gradients written by hand are those that JAX derives, to the last digits it has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac import gradients

ROWS, HIDDEN = 40, 8


def plain_head(rows, scale, offset, weight):
    variance = jnp.square(rows).mean(axis=-1, keepdims=True)
    unit = rows / jnp.sqrt(variance + gradients.EPSILON)
    return jax.nn.relu(unit * scale + offset) @ weight


def arguments(seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    return (
        3 * jax.random.normal(keys[0], (ROWS, HIDDEN)),
        1 + 0.5 * jax.random.normal(keys[1], (HIDDEN,)),
        jax.random.normal(keys[2], (HIDDEN,)),
        jax.random.normal(keys[3], (HIDDEN,)),
    )


def loss_of(head):
    return lambda *parts: jnp.sin(head(*parts)).sum()


def test_the_head_is_its_formula():
    np.testing.assert_allclose(
        gradients.normalized_head(*arguments()), plain_head(*arguments()), rtol=2e-5
    )


@pytest.mark.parametrize("argument", range(4))
def test_each_gradient_of_the_head_is_the_derived_one(argument):
    ours = jax.grad(loss_of(gradients.normalized_head), argument)(*arguments())
    derived = jax.grad(loss_of(plain_head), argument)(*arguments())
    np.testing.assert_allclose(ours, derived, rtol=1e-4, atol=2e-5)
    assert np.abs(derived).max() > 0.01


def test_rows_of_zeros_have_finite_gradients():
    _, scale, offset, weight = arguments()
    rows = jnp.zeros((ROWS, HIDDEN))
    grads = jax.grad(loss_of(gradients.normalized_head), (0, 1, 2, 3))(
        rows, scale, offset, weight
    )
    assert all(np.isfinite(part).all() for part in grads)


def test_the_head_maps_over_seeds():
    many = jax.vmap(jax.grad(loss_of(gradients.normalized_head)))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), arguments(0), arguments(1))
    for seed, ours in enumerate(many(*stacked)):
        one = jax.grad(loss_of(gradients.normalized_head))(*arguments(seed))
        np.testing.assert_allclose(ours, one, rtol=1e-5, atol=1e-6)


def test_a_repeated_vector_collects_its_rows_gradients():
    vector, weights = jnp.arange(3.0), jnp.arange(12.0).reshape(2, 2, 3)

    def loss(vector):
        return (gradients.across(vector, (2, 2, 3)) * weights).sum()

    assert gradients.across(vector, (2, 2, 3)).shape == (2, 2, 3)
    np.testing.assert_allclose(jax.grad(loss)(vector), [18.0, 22.0, 26.0])
