"""The networks of the actor and of the critics, as plain NamedTuples of arrays.

An ensemble is a tuple of members, so that every layer is a 2-D matrix product, which XLA's
CPU backend runs near the hardware's limit. With one batched product for the whole ensemble,
the backward pass was 20 to 25 % slower when we measured it. Networks this simple need no
module library. The quantile critics are in `risk_forms/`: `fixed_quantiles.py` and
`implicit.py` (IQN).
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.core.encoders import Encoded, encode

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
EPSILON = 1e-5
"""Number that a layer norm adds to the variance."""
SMALL_DRAW = 1 << 17
"""Maximum number of entries of an array that is drawn together with others."""


class Layer(NamedTuple):
    """A linear map, with the scale and offset of the layer norm after it, if any."""

    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]
    scale: Float[Array, " output"] | None
    offset: Float[Array, " output"] | None


Mlp = tuple[Layer, ...]
Network = Mlp | Encoded
"""Layers, with or without an encoder in front of them."""


def init_layers(
    keys: Key[Array, " layer"],
    sizes: Sequence[tuple[int, int]],
    layer_norms: Sequence[bool],
) -> Mlp:
    """Return layers with random weights. A layer norm starts with scale 1 and offset 0.

    `sizes` has the number of inputs and outputs of each layer.
    """
    if not sizes:
        return ()
    # Choice: weights are uniform within 1/sqrt(inputs), as in common PyTorch SACs.
    shapes = [shape for layer in sizes for shape in (layer, layer[1:])]
    units = draw_units(jax.vmap(jax.random.split)(keys).reshape(-1), shapes)
    layers = []
    for i, ((inputs, outputs), layer_norm) in enumerate(
        zip(sizes, layer_norms, strict=True)
    ):
        bound = inputs**-0.5
        weight, bias = (
            jnp.maximum(-bound, unit * (2 * bound) - bound)
            for unit in units[2 * i : 2 * i + 2]
        )
        scale = jnp.ones(outputs) if layer_norm else None
        offset = jnp.zeros(outputs) if layer_norm else None
        layers.append(Layer(weight, bias, scale, offset))
    return tuple(layers)


def draw_units(
    keys: Key[Array, " array"], shapes: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Return one array per key, with numbers that are uniform in [0, 1).

    All small arrays are drawn in one loop, because XLA takes seconds to compile a loop for
    each. An array consists of the first numbers of a longer draw with its key, which are the
    same numbers as in a separate draw.
    """
    sizes = [math.prod(shape) for shape in shapes]
    longest = max((size for size in sizes if size <= SMALL_DRAW), default=0)
    small = [i for i, size in enumerate(sizes) if size <= SMALL_DRAW]
    together = jax.vmap(lambda key: jax.random.uniform(key, (longest,)))(
        keys[jnp.array(small, int)]
    )
    rows = dict(zip(small, together, strict=True))
    return [
        rows[i][:size].reshape(shape)
        if i in rows
        else jax.random.uniform(keys[i], shape)
        for i, (size, shape) in enumerate(zip(sizes, shapes, strict=True))
    ]


def init_mlp(
    key: Key[Array, ""], sizes: tuple[int, ...], layer_norm: bool, head: bool = True
) -> Mlp:
    """Return one layer for each pair of consecutive sizes.

    If `head` is true, the last layer has no layer norm.
    """
    pairs = list(pairwise(sizes))
    norms = [layer_norm] * len(pairs)
    if head:
        norms[-1] = False
    return init_layers(jax.random.split(key, max(len(pairs), 1)), pairs, norms)


def broadcast_rows(vector: Float[Array, " output"], shape: tuple[int, ...]) -> Array:
    """Repeat `vector` over rows, with a gradient that is a matrix product.

    XLA's CPU backend is slow at summing a gradient over thousands of rows. Multiplying by a
    vector of ones gives the same sum and is fast.
    """
    return _repeat(vector, shape)


def _sum_rows(shape: tuple[int, ...], saved: None, gradient: Array) -> tuple[Array]:
    flat = gradient.reshape(-1, shape[-1])
    return (jnp.ones(flat.shape[0], flat.dtype) @ flat,)


_repeat: Any = jax.custom_vjp(jnp.broadcast_to, nondiff_argnums=(1,))
_repeat.defvjp(lambda vector, shape: (jnp.broadcast_to(vector, shape), None), _sum_rows)


def centred(layer: Layer) -> tuple[Array, Array]:
    """Return the weight and the bias. If a layer norm follows, both are centred.

    A layer norm subtracts the mean of each output row. The mean is linear in the weights and
    the bias. If their means are subtracted once, the output rows already have mean 0, and no
    pass over all rows is needed.
    """
    if layer.scale is None:
        return layer.weight, layer.bias
    weight = layer.weight - layer.weight.mean(axis=1, keepdims=True)
    return weight, layer.bias - layer.bias.mean()


def normalize(layer: Layer, rows: Float[Array, "*rows output"]) -> Array:
    """Finish the layer norm of rows whose mean is already 0 (see `centred`).

    Divide each row by its standard deviation, then scale and shift it. Without a layer norm,
    return the rows unchanged.
    """
    if layer.scale is None or layer.offset is None:
        return rows
    variance = jnp.square(rows).mean(axis=-1, keepdims=True)
    unit = rows * jax.lax.rsqrt(variance + EPSILON)
    return unit * broadcast_rows(layer.scale, rows.shape) + broadcast_rows(
        layer.offset, rows.shape
    )


def apply_layer(layer: Layer, rows: Float[Array, "rows input"]) -> Array:
    """Apply the linear map and then the layer norm, if there is one."""
    weight, bias = centred(layer)
    product = rows @ weight
    return normalize(layer, product + broadcast_rows(bias, product.shape))


def apply_mlp(network: Network, rows: Float[Array, "rows input"]) -> Array:
    """Apply the layers, with a ReLU after each layer except the last."""
    layers, rows = encode(network, rows)
    for layer in layers[:-1]:
        rows = jax.nn.relu(apply_layer(layer, rows))
    return apply_layer(layers[-1], rows)


def apply_actor(
    actor: Network, observation: Float[Array, "batch observation"]
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Return the policy's mean and standard deviation before the tanh. Eq. (12)."""
    mean, raw = jnp.split(apply_mlp(actor, observation), 2, axis=-1)
    # Choice: a tanh bounds the log standard deviation. Unlike a clip, it has a gradient
    # everywhere.
    middle, half = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
    return mean, jnp.exp(middle + half * jnp.tanh(raw))


def log_prob(
    noise: Float[Array, "batch action"],
    pre_tanh: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> Float[Array, " batch"]:
    """Return the log-density of tanh(pre_tanh) with pre_tanh = mean + std * noise."""
    gaussian = -0.5 * jnp.square(noise) - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)
    # Numerics: this is log(1 - tanh(u)^2) without cancellation, and finite at any u.
    squash = 2 * (jnp.log(2.0) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))
    return (gaussian - squash).sum(axis=-1)


def sample_action(
    key: Key[Array, ""],
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
    """Return a Gaussian sample that a tanh squashes to (-1, 1), and its log-density."""
    noise = jax.random.normal(key, mean.shape)
    pre_tanh = mean + std * noise
    return jnp.tanh(pre_tanh), log_prob(noise, pre_tanh, std)


def apply_ensemble(
    members: tuple[Network, ...], rows: Float[Array, "batch input"]
) -> Float[Array, "ensemble batch quantile"]:
    """Apply every member to the same rows. The last axis of a scalar critic has length 1."""
    return jnp.stack([apply_mlp(member, rows) for member in members])
