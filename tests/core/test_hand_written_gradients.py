"""Tests that hand-written gradients equal those that JAX derives, up to rounding."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.core.networks import EPSILON, broadcast_rows
from orac.core.risk_forms.implicit import no_fusion, normalized_head

ROWS, HIDDEN = 40, 8


def plain_head(rows, bias, scale, offset, weight):
    rows = rows + bias
    variance = jnp.square(rows).mean(axis=-1, keepdims=True)
    unit = rows / jnp.sqrt(variance + EPSILON)
    return jax.nn.relu(unit * scale + offset) @ weight


def arguments(seed=0):
    keys = jax.random.split(jax.random.key(seed), 5)
    return (
        3 * jax.random.normal(keys[0], (ROWS, HIDDEN)),
        jax.random.normal(keys[4], (HIDDEN,)),
        1 + 0.5 * jax.random.normal(keys[1], (HIDDEN,)),
        jax.random.normal(keys[2], (HIDDEN,)),
        jax.random.normal(keys[3], (HIDDEN,)),
    )


def loss_of(head):
    return lambda *parts: jnp.sin(head(*parts)).sum()


def test_the_head_is_its_formula():
    np.testing.assert_allclose(
        normalized_head(*arguments()), plain_head(*arguments()), rtol=2e-5
    )


@pytest.mark.parametrize("argument", range(5))
def test_each_gradient_of_the_head_is_the_derived_one(argument):
    ours = jax.grad(loss_of(normalized_head), argument)(*arguments())
    derived = jax.grad(loss_of(plain_head), argument)(*arguments())
    np.testing.assert_allclose(ours, derived, rtol=1e-4, atol=2e-5)
    assert np.abs(derived).max() > 0.01


def test_rows_of_zeros_have_finite_gradients():
    _, _, *others = arguments()
    rows, bias = jnp.zeros((ROWS, HIDDEN)), jnp.zeros(HIDDEN)
    grads = jax.grad(loss_of(normalized_head), range(5))(rows, bias, *others)
    assert all(np.isfinite(part).all() for part in grads)


def test_the_head_maps_over_seeds():
    many = jax.vmap(jax.grad(loss_of(normalized_head)))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), arguments(0), arguments(1))
    for seed, ours in enumerate(many(*stacked)):
        one = jax.grad(loss_of(normalized_head))(*arguments(seed))
        np.testing.assert_allclose(ours, one, rtol=1e-5, atol=1e-6)


def test_a_repeated_vector_collects_its_rows_gradients():
    vector, weights = jnp.arange(3.0), jnp.arange(12.0).reshape(2, 2, 3)

    def loss(vector):
        return (broadcast_rows(vector, (2, 2, 3)) * weights).sum()

    assert broadcast_rows(vector, (2, 2, 3)).shape == (2, 2, 3)
    np.testing.assert_allclose(jax.grad(loss)(vector), [18.0, 22.0, 26.0])


def test_a_function_apart_is_compiled_apart():
    """Its name is that of a call in what XLA made, and its numbers are the same."""

    def double_sine(x):
        return jnp.sin(x) * 2

    def program(x):
        return no_fusion(double_sine)(x.reshape(2, 3)).reshape(3, 2) + 1

    x = jnp.arange(6.0)
    made = jax.jit(program).lower(x).compile().as_text()
    assert re.search(r" call\(.*to_apply=%\S*double_sine", made)
    np.testing.assert_allclose(program(x).ravel(), np.sin(x) * 2 + 1, rtol=1e-6)
