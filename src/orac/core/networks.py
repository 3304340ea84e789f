"""The networks: the actor, and ensembles of critics, as plain NamedTuples of arrays.

An ensemble is a tuple of members, so that every layer is a 2-D product, which XLA's CPU
backend runs near the hardware's limit. We measured that the backward pass is 20 to 25 %
slower if the ensemble is one batched product, which is why no module library is used. The
quantile critics are in `risk_forms/`: `fixed_quantiles.py` and `implicit.py` (IQN).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.core.encoders import Encoded, encode

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
EPSILON = 1e-5
"""Added to the variance in a layer norm."""


class Layer(NamedTuple):
    """A linear map, with the scale and offset of the layer norm after it, if any."""

    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]
    scale: Float[Array, " output"] | None
    offset: Float[Array, " output"] | None


Mlp = tuple[Layer, ...]
Network = Mlp | Encoded
"""Layers, or layers behind an encoder."""


def init_layer(
    key: Key[Array, ""], inputs: int, outputs: int, layer_norm: bool
) -> Layer:
    """Return a random layer whose norm, if it has one, starts as the identity."""
    # Choice: uniform within 1/sqrt(inputs), as in the common PyTorch SACs.
    bound = inputs**-0.5
    weight_key, bias_key = jax.random.split(key)
    uniform = jax.random.uniform
    return Layer(
        weight=uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound),
        bias=uniform(bias_key, (outputs,), minval=-bound, maxval=bound),
        scale=jnp.ones(outputs) if layer_norm else None,
        offset=jnp.zeros(outputs) if layer_norm else None,
    )


def init_mlp(
    key: Key[Array, ""], sizes: tuple[int, ...], layer_norm: bool, head: bool = True
) -> Mlp:
    """Return layers between consecutive sizes; with `head` the last has no norm."""
    keys = jax.random.split(key, max(len(sizes) - 1, 1))
    last = len(sizes) - 2
    return tuple(
        init_layer(
            keys[i], sizes[i], sizes[i + 1], layer_norm and not (head and i == last)
        )
        for i in range(len(sizes) - 1)
    )


def broadcast_rows(vector: Float[Array, " output"], shape: tuple[int, ...]) -> Array:
    """Repeat `vector` over rows, with a gradient that is a product.

    XLA's CPU backend is slow at summing a gradient over thousands of rows; the same sum
    as a product with a vector of ones is fast.
    """
    return _repeat(vector, shape)


def _sum_rows(shape: tuple[int, ...], saved: None, gradient: Array) -> tuple[Array]:
    flat = gradient.reshape(-1, shape[-1])
    return (jnp.ones(flat.shape[0], flat.dtype) @ flat,)


_repeat: Any = jax.custom_vjp(jnp.broadcast_to, nondiff_argnums=(1,))
_repeat.defvjp(lambda vector, shape: (jnp.broadcast_to(vector, shape), None), _sum_rows)


def centred(layer: Layer) -> tuple[Array, Array]:
    """Return weight and bias whose outputs have zero mean if a layer norm follows.

    A layer norm subtracts each row's mean, and the mean of a linear map is linear.
    Subtracting it from the weights once saves a pass over every row.
    """
    if layer.scale is None:
        return layer.weight, layer.bias
    weight = layer.weight - layer.weight.mean(axis=1, keepdims=True)
    return weight, layer.bias - layer.bias.mean()


def normalize(layer: Layer, rows: Float[Array, "*rows output"]) -> Array:
    """Apply the rest of the layer norm to rows made with `centred` weights."""
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
    """Apply the layers with a ReLU between them and none after the last."""
    layers, rows = encode(network, rows)
    for layer in layers[:-1]:
        rows = jax.nn.relu(apply_layer(layer, rows))
    return apply_layer(layers[-1], rows)


def init_actor(
    key: Key[Array, ""],
    observation_size: int,
    action_size: int,
    hidden_sizes: tuple[int, ...],
    layer_norm: bool,
) -> Mlp:
    """Return a network with two outputs per action: its mean and its deviation."""
    sizes = (observation_size, *hidden_sizes, 2 * action_size)
    return init_mlp(key, sizes, layer_norm)


def apply_actor(
    actor: Network, observation: Float[Array, "batch observation"]
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Return mean and standard deviation of the policy before its tanh. Eq. (12)."""
    mean, raw = jnp.split(apply_mlp(actor, observation), 2, axis=-1)
    # Choice: a tanh squash rather than a clip keeps a gradient at both ends.
    middle, half = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
    return mean, jnp.exp(middle + half * jnp.tanh(raw))


def log_prob(
    noise: Float[Array, "batch action"],
    pre_tanh: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> Float[Array, " batch"]:
    """Return the log-density of tanh(pre_tanh) with pre_tanh = mean + std * noise."""
    gaussian = -0.5 * jnp.square(noise) - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)
    # Numerics: log(1 - tanh(u)^2) without cancellation; finite at any u.
    squash = 2 * (jnp.log(2.0) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))
    return (gaussian - squash).sum(axis=-1)


def sample_action(
    key: Key[Array, ""],
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
    """Sample a squashed Gaussian action in (-1, 1); also return its log-probability."""
    noise = jax.random.normal(key, mean.shape)
    pre_tanh = mean + std * noise
    return jnp.tanh(pre_tanh), log_prob(noise, pre_tanh, std)


def apply_ensemble(
    members: tuple[Network, ...], rows: Float[Array, "batch input"]
) -> Float[Array, "ensemble batch quantile"]:
    """Apply every member to the same rows. A scalar critic has one quantile."""
    return jnp.stack([apply_mlp(member, rows) for member in members])
