"""The implicit form: quantile networks that take the level as an input (IQN).

The loss is evaluated at random levels, and the risk at levels that the risk measure selects,
which for CVaR are inside the tail. If the critics have layer norms, the gradient of the
network's head (`normalized_head`) is written by hand, because XLA compiles the automatic
gradient to slow code on CPUs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig
from orac.core import critics, networks, risk
from orac.core.cost_models import CostModel, Problem, Quantiles
from orac.core.critics import Fractions
from orac.core.encoders import Encoded, encode, fold_in_each, init_ensemble
from orac.core.networks import EPSILON, Layer, Mlp, broadcast_rows
from orac.core.risk_forms.fixed_quantiles import quantile_loss, without_pivot


class ImplicitQuantile(NamedTuple):
    """Parameters of a quantile network that takes the level as an input."""

    features: Mlp
    embedding: Layer
    merge: Layer
    output: Layer


def init_network(
    key: Key[Array, ""],
    input_size: int,
    hidden_sizes: tuple[int, ...],
    embedding_size: int,
    layer_norm: bool,
) -> ImplicitQuantile:
    """Return a new network. The last entry of `hidden_sizes` is the merge layer's width."""
    keys = jax.random.split(key, 4)
    *feature_sizes, merge_size = hidden_sizes
    width = feature_sizes[-1]
    features = networks.init_mlp(
        keys[0], (input_size, *feature_sizes), layer_norm, head=False
    )
    embedding, merge, output = networks.init_layers(
        keys[1:],
        [(embedding_size, width), (width, merge_size), (merge_size, 1)],
        [layer_norm, layer_norm, False],
    )
    return ImplicitQuantile(features, embedding, merge, output)


def embed_levels(
    embedding: Layer, levels: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile feature"]:
    """Return sigmoid(linear(cos(pi i level))) for i = 1 .. embedding size."""
    multiples = jnp.pi * jnp.arange(1, embedding.weight.shape[0] + 1)
    cosines = jnp.cos(levels.reshape(-1, 1) * multiples)
    embedded = jax.nn.sigmoid(networks.apply_layer(embedding, cosines))
    return embedded.reshape(*levels.shape, -1)


def apply_network(
    network: ImplicitQuantile | Encoded,
    rows: Float[Array, "batch input"],
    levels: Float[Array, "*batch quantile"],
) -> Float[Array, "batch quantile"]:
    """Return the quantiles at `levels`, which all rows share or which differ per row."""
    member, rows = encode(network, rows)
    features = jax.nn.relu(networks.apply_mlp(member.features, rows))
    embedded = embed_levels(member.embedding, levels)
    merged, bias = merge(member.merge, features, embedded)
    scale, offset = member.merge.scale, member.merge.offset
    weight = member.output.weight[:, 0]
    if scale is None or offset is None:
        values = jax.nn.relu(merged + broadcast_rows(bias, merged.shape)) @ weight
    else:
        values = normalized_head(merged, bias, scale, offset, weight)
    return values.reshape(rows.shape[0], -1) + member.output.bias


def merge(
    layer: Layer,
    features: Float[Array, "batch feature"],
    embedded: Float[Array, "*batch quantile feature"],
) -> tuple[Float[Array, "batch*quantile output"], Float[Array, " output"]]:
    """Return linear(features * embedded) without its bias, and the bias.

    If all rows share the levels, the embedding can scale either the features or the weights,
    because (f * e) W = f (e * W). The smaller of the two is scaled.
    """
    weight, bias = networks.centred(layer)
    (batch, width), quantiles = features.shape, embedded.shape[-2]
    if embedded.ndim == 2 and batch >= width:
        scaled = embedded.T[:, :, None] * weight[:, None, :]
        product = features @ scaled.reshape(width, -1)
    else:
        product = (features[:, None] * embedded).reshape(-1, width) @ weight
    return product.reshape(batch * quantiles, -1), bias


def no_fusion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` as a separate loop on a CPU, not fused with other operations.

    Otherwise XLA would fuse it with the operations before and after it. The fused loop would
    draw random bits again for every element and could not be vectorised across reshapes,
    which was seven times slower when we measured it. Other platforms compile `function` as
    usual.
    """
    separate = jax.jit(function, inline=False)

    def on_cpu(*arguments: Array) -> Any:
        with set_xla_metadata(inlineable="false"):
            return separate(*arguments)

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
    """Return relu(z / rms(z) * scale + offset) @ weight with z = rows + bias.

    The gradient that reaches the hidden layer is the outer product of `weight` and a vector
    with one number per row. All gradients can therefore be computed from two matrices: the
    mask of active units, and the normalised rows times this mask.
    """
    return _head(rows, bias, scale, offset, weight)


@no_fusion
def _values(
    rows: Array, bias: Array, scale: Array, offset: Array, weight: Array
) -> tuple[Array, Array]:
    rows = rows + bias
    # The row means are computed as a matrix product, which is faster; see `broadcast_rows`.
    even = jnp.full(rows.shape[-1], 1 / rows.shape[-1], rows.dtype)
    inverse = jax.lax.rsqrt(jnp.square(rows) @ even + EPSILON)
    hidden = jnp.maximum(rows * inverse[:, None] * scale + offset, 0)
    return hidden @ weight, inverse


@no_fusion
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
    active = on * unit
    pull = weight * scale
    along = (active @ pull)[:, None] / rows.shape[-1]
    to_rows = (gradient * inverse)[:, None] * (on * pull - unit * along)
    sum_on, sum_active = gradient @ on, gradient @ active
    return (
        to_rows,
        jnp.ones_like(gradient) @ to_rows,
        weight * sum_active,
        weight * sum_on,
        scale * sum_active + offset * sum_on,
    )


def _head_forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    values, inverse = _values(*arguments)
    return values, (*arguments, inverse)


_head: Any = jax.custom_vjp(lambda *arguments: _values(*arguments)[0])
_head.defvjp(_head_forward, lambda saved, gradient: _gradients(*saved, gradient))


def tail_levels(
    fractions: Fractions, problem: Problem
) -> Float[Array, "constraint ..."]:
    """Map uniform levels through the inverse of each constraint's distortion. Eq. (26).

    The widths stay the same. The sum of the quantiles at the new levels, weighted by these
    widths, is the risk.
    """
    if not problem.constraints:
        return for_each_constraint(fractions.levels, problem)
    levels = [
        risk.distort_levels(constraint.measure, fractions.levels)
        for constraint in problem.constraints
    ]
    return jnp.stack(levels)


def for_each_constraint(levels: Array, problem: Problem) -> Array:
    """Repeat the levels along a new first axis with one entry per constraint."""
    return jnp.broadcast_to(levels, (problem.num_constraints, *levels.shape))


def level_quantiles(
    members: tuple[ImplicitQuantile | Encoded, ...],
    inputs: Float[Array, "batch input"],
    action: Float[Array, "batch action"],
    levels: Float[Array, "constraint *batch quantile"],
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, "constraint ensemble batch quantile"]:
    """Return the quantiles of every constraint's critics at the constraint's levels."""
    shape = (problem.num_constraints, config.num_cost_critics, inputs.shape[0])
    if not members:
        return jnp.zeros((*shape, levels.shape[-1]))
    rows = jnp.concatenate([inputs, action], axis=-1)
    flat = jnp.stack(
        [
            apply_network(member, rows, levels[i // config.num_cost_critics])
            for i, member in enumerate(members)
        ]
    )
    return flat.reshape(*shape, flat.shape[-1])


def implicit_model(problem: Problem, config: AgentConfig) -> CostModel:
    """Return the implicit form, for any risk measure."""

    def init_critic(key: Array, size: int) -> ImplicitQuantile:
        widths = config.hidden_sizes, config.embedding_size
        return init_network(key, size, *widths, config.critics_have_layer_norm)

    def init(key: Array) -> tuple[ImplicitQuantile | Encoded, ...]:
        rows = problem.observation_size + problem.action_size
        count = problem.num_constraints * config.num_cost_critics
        keys = fold_in_each(key, count)
        return init_ensemble(keys, rows, init_critic, problem, config)

    def sample_fractions(key: Array, batch: int, count: int) -> Fractions:
        rows = () if config.shared_fractions else (batch,)
        return critics.sample_fractions(key, (*rows, count))

    def critic_quantiles(
        key: Array, members: Any, inputs: Array, action: Array
    ) -> Quantiles:
        fractions = sample_fractions(key, inputs.shape[0], config.num_quantiles)
        levels = for_each_constraint(fractions.levels, problem)
        values = level_quantiles(members, inputs, action, levels, problem, config)
        return Quantiles(values, fractions)

    def policy_quantiles(
        key: Array | None, members: Any, inputs: Array, action: Array
    ) -> Quantiles:
        count = config.num_policy_quantiles
        if key is None:
            fractions = critics.uniform_fractions(count)
        else:
            fractions = sample_fractions(key, inputs.shape[0], count)
        levels = tail_levels(fractions, problem)
        values = level_quantiles(members, inputs, action, levels, problem, config)
        return Quantiles(values, fractions)

    return CostModel(
        input_size=problem.observation_size,
        init=init,
        critic_quantiles=critic_quantiles,
        policy_quantiles=policy_quantiles,
        loss=quantile_loss,
        hidden_rows=config.num_quantiles,
        **without_pivot(problem),
    )
