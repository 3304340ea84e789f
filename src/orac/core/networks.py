"""The learned functions: actor, and ensembles of scalar, quantile and implicit critics.

Parameters are plain NamedTuples and an ensemble is a tuple of members. Each member's
layers are then 2-D products, which XLA's CPU backend runs near the hardware's limit;
the same ensemble as one batched product measured 20 to 25 % slower backward, and that is
why no module library is used. Nothing here knows what the outputs mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.core.custom_vjp import EPSILON, across, normalized_head

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class Layer(NamedTuple):
    """A linear map, and the scale and offset of the layer norm after it, if any."""

    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]
    scale: Float[Array, " output"] | None
    offset: Float[Array, " output"] | None


Mlp = tuple[Layer, ...]


class ImplicitQuantile(NamedTuple):
    """A quantile network that takes the level as an input."""

    features: Mlp
    embedding: Layer
    merge: Layer
    output: Layer


def init_layer(
    key: Key[Array, ""], inputs: int, outputs: int, layer_norm: bool
) -> Layer:
    """A layer at random, its norm (if any) doing nothing yet."""
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
    """Layers between consecutive sizes; with `head` the last one has no norm."""
    keys = jax.random.split(key, max(len(sizes) - 1, 1))
    last = len(sizes) - 2
    return tuple(
        init_layer(
            keys[i], sizes[i], sizes[i + 1], layer_norm and not (head and i == last)
        )
        for i in range(len(sizes) - 1)
    )


def centred(layer: Layer) -> tuple[Array, Array]:
    """Weight and bias whose outputs have zero mean where a layer norm follows.

    A norm subtracts each row's mean, and the mean of a linear map is linear: taking it
    out of the weights, once, saves a pass over every row.
    """
    if layer.scale is None:
        return layer.weight, layer.bias
    weight = layer.weight - layer.weight.mean(axis=1, keepdims=True)
    return weight, layer.bias - layer.bias.mean()


def normalize(layer: Layer, rows: Float[Array, "*rows output"]) -> Array:
    """The rest of the layer norm, for rows made with `centred` weights."""
    if layer.scale is None or layer.offset is None:
        return rows
    variance = jnp.square(rows).mean(axis=-1, keepdims=True)
    unit = rows * jax.lax.rsqrt(variance + EPSILON)
    return unit * across(layer.scale, rows.shape) + across(layer.offset, rows.shape)


def apply_layer(layer: Layer, rows: Float[Array, "rows input"]) -> Array:
    """The linear map, then the norm if there is one; no relu."""
    weight, bias = centred(layer)
    product = rows @ weight
    return normalize(layer, product + across(bias, product.shape))


def apply_mlp(layers: Mlp, rows: Float[Array, "rows input"]) -> Array:
    """ReLU between the layers, none after the last."""
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
    """A network with two outputs per action: for its mean and for its deviation."""
    sizes = (observation_size, *hidden_sizes, 2 * action_size)
    return init_mlp(key, sizes, layer_norm)


def apply_actor(
    actor: Mlp, observation: Float[Array, "batch observation"]
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Mean and standard deviation of the policy before its tanh. Eq. (12)."""
    mean, raw = jnp.split(apply_mlp(actor, observation), 2, axis=-1)
    # Choice: a tanh squash rather than a clip keeps a gradient at both ends.
    middle, half = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
    return mean, jnp.exp(middle + half * jnp.tanh(raw))


def log_prob(
    noise: Float[Array, "batch action"],
    pre_tanh: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> Float[Array, " batch"]:
    """Log-density of tanh(pre_tanh), pre_tanh = mean + std * noise."""
    gaussian = -0.5 * jnp.square(noise) - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)
    # Numerics: log(1 - tanh(u)^2) without cancellation; finite at any u.
    squash = 2 * (jnp.log(2.0) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))
    return (gaussian - squash).sum(axis=-1)


def sample_action(
    key: Key[Array, ""],
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
    """A squashed Gaussian action in (-1, 1) and its log-probability."""
    noise = jax.random.normal(key, mean.shape)
    pre_tanh = mean + std * noise
    return jnp.tanh(pre_tanh), log_prob(noise, pre_tanh, std)


def apply_ensemble(
    members: tuple[Mlp, ...], rows: Float[Array, "batch input"]
) -> Float[Array, "ensemble batch quantile"]:
    """Every member on the same rows; a scalar critic has one quantile."""
    return jnp.stack([apply_mlp(member, rows) for member in members])


def init_implicit(
    key: Key[Array, ""],
    input_size: int,
    hidden_sizes: tuple[int, ...],
    embedding_size: int,
    layer_norm: bool,
) -> ImplicitQuantile:
    """All hidden sizes but the last are the features', the last is the merge layer's."""
    features_key, embedding_key, merge_key, output_key = jax.random.split(key, 4)
    *feature_sizes, merge_size = hidden_sizes
    width = feature_sizes[-1]
    return ImplicitQuantile(
        features=init_mlp(
            features_key, (input_size, *feature_sizes), layer_norm, head=False
        ),
        embedding=init_layer(embedding_key, embedding_size, width, layer_norm),
        merge=init_layer(merge_key, width, merge_size, layer_norm),
        output=init_layer(output_key, merge_size, 1, layer_norm=False),
    )


def embed_levels(
    embedding: Layer, levels: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile feature"]:
    """sigmoid(linear(cos(pi i level))), i = 1 .. embedding size."""
    multiples = jnp.pi * jnp.arange(1, embedding.weight.shape[0] + 1)
    cosines = jnp.cos(levels.reshape(-1, 1) * multiples)
    return jax.nn.sigmoid(apply_layer(embedding, cosines)).reshape(*levels.shape, -1)


def apply_implicit(
    member: ImplicitQuantile,
    rows: Float[Array, "batch input"],
    levels: Float[Array, "*batch quantile"],
) -> Float[Array, "batch quantile"]:
    """Quantile values at `levels`, shared by the batch (one axis) or per row (two)."""
    features = jax.nn.relu(apply_mlp(member.features, rows))
    embedded = embed_levels(member.embedding, levels)
    merged, bias = merge(member.merge, features, embedded)
    scale, offset = member.merge.scale, member.merge.offset
    weight = member.output.weight[:, 0]
    if scale is None or offset is None:
        values = jax.nn.relu(merged + across(bias, merged.shape)) @ weight
    else:
        values = normalized_head(merged, bias, scale, offset, weight)
    return values.reshape(rows.shape[0], -1) + member.output.bias


def merge(
    layer: Layer,
    features: Float[Array, "batch feature"],
    embedded: Float[Array, "*batch quantile feature"],
) -> tuple[Float[Array, "batch*quantile output"], Float[Array, " output"]]:
    """linear(features * embedded) for each row and level: one 2-D product, and the bias.

    With shared levels the embedding may scale the weights instead of the features:
    (f * e) W = f (e * W). It makes the same product from the smaller of the two.
    """
    weight, bias = centred(layer)
    (batch, width), quantiles = features.shape, embedded.shape[-2]
    if embedded.ndim == 2 and batch >= width:
        scaled = embedded.T[:, :, None] * weight[:, None, :]
        product = features @ scaled.reshape(width, -1)
    else:
        product = (features[:, None] * embedded).reshape(-1, width) @ weight
    return product.reshape(batch * quantiles, -1), bias


def apply_implicit_ensemble(
    members: tuple[ImplicitQuantile, ...],
    rows: Float[Array, "batch input"],
    levels: Float[Array, "constraint *batch quantile"],
) -> Float[Array, "ensemble batch quantile"]:
    """Members in constraint-major order, each at its own constraint's levels."""
    per_constraint = len(members) // levels.shape[0]
    return jnp.stack(
        [
            apply_implicit(member, rows, levels[i // per_constraint])
            for i, member in enumerate(members)
        ]
    )
