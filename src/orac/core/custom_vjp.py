"""Gradients written by hand where XLA's CPU backend makes slow ones of the same numbers.

Each function here is plain maths with a plain meaning; only its backward pass is ours, and
the tests hold it against JAX's own; results/benchmarks has what they save. Nothing here
knows of networks or critics.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float

EPSILON = 1e-5


def across(vector: Float[Array, " output"], shape: tuple[int, ...]) -> Array:
    """`vector` repeated over rows, with a gradient that is a product.

    XLA's CPU backend sums a gradient over thousands of rows slowly; as a product with
    ones the same sum is quick.
    """
    return _repeat(vector, shape)


def _sum_rows(shape: tuple[int, ...], _: None, gradient: Array) -> tuple[Array]:
    flat = gradient.reshape(-1, shape[-1])
    return (jnp.ones(flat.shape[0], flat.dtype) @ flat,)


_repeat: Any = jax.custom_vjp(jnp.broadcast_to, nondiff_argnums=(1,))
_repeat.defvjp(lambda vector, shape: (jnp.broadcast_to(vector, shape), None), _sum_rows)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a loop of its own on a CPU, whatever stands before and after it.

    XLA would draw its neighbours in: random bits that are made anew for every element,
    and changes of shape after which the loop no longer runs on vectors. That measured
    seven times slower. Other platforms compile it as they see fit.
    """
    alone = jax.jit(function, inline=False)

    def on_cpu(*arguments: Array) -> Any:
        with set_xla_metadata(inlineable="false"):
            return alone(*arguments)

    def call(*arguments: Array) -> Any:
        return jax.lax.platform_dependent(*arguments, cpu=on_cpu, default=function)

    return call


def normalized_head(
    rows: Float[Array, "rows hidden"],
    bias: Float[Array, " hidden"],
    scale: Float[Array, " hidden"],
    offset: Float[Array, " hidden"],
    weight: Float[Array, " hidden"],
) -> Float[Array, " rows"]:
    """relu(z / rms(z) * scale + offset) @ weight with z = rows + bias: two last layers.

    The gradient that reaches the hidden layer is of rank one, a number a row times
    `weight`, so that all gradients follow from two matrices: where the relu is on,
    and the normalised rows there.
    """
    return _head(rows, bias, scale, offset, weight)


@apart
def _values(
    rows: Array, bias: Array, scale: Array, offset: Array, weight: Array
) -> tuple[Array, Array]:
    rows = rows + bias
    # A mean over a row as a product, for the reason that `across` has.
    even = jnp.full(rows.shape[-1], 1 / rows.shape[-1], rows.dtype)
    inverse = jax.lax.rsqrt(jnp.square(rows) @ even + EPSILON)
    hidden = jnp.maximum(rows * inverse[:, None] * scale + offset, 0)
    return hidden @ weight, inverse


@apart
def _gradients(
    rows: Array,
    bias: Array,
    scale: Array,
    offset: Array,
    weight: Array,
    inverse: Float[Array, " rows"],
    gradient: Float[Array, " rows"],
) -> tuple[Array, ...]:
    unit = (rows + bias) * inverse[:, None]
    on = (unit * scale + offset > 0).astype(rows.dtype)
    lit = on * unit
    pull = weight * scale
    along = (lit @ pull)[:, None] / rows.shape[-1]
    to_rows = (gradient * inverse)[:, None] * (on * pull - unit * along)
    sum_on, sum_lit = gradient @ on, gradient @ lit
    return (
        to_rows,
        jnp.ones_like(gradient) @ to_rows,
        weight * sum_lit,
        weight * sum_on,
        scale * sum_lit + offset * sum_on,
    )


def _head_forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    values, inverse = _values(*arguments)
    return values, (*arguments, inverse)


_head: Any = jax.custom_vjp(lambda *arguments: _values(*arguments)[0])
_head.defvjp(_head_forward, lambda saved, gradient: _gradients(*saved, gradient))
