"""Where the dual form's pivots come from: a truncated normal on [0, 1] per constraint.

A pivot is a share of the limit in critic units. Its sampler has one learned number per
constraint, the mean before a sigmoid; draws are a smooth function of it.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Key


def mean_pivot(params: Float[Array, " constraint"]) -> Float[Array, " constraint"]:
    """The sampler's mean, used at evaluation."""
    return jax.nn.sigmoid(params)


def from_uniform(
    uniform: Float[Array, "batch constraint"],
    params: Float[Array, " constraint"],
    std: float,
) -> Float[Array, "batch constraint"]:
    """Inverse distribution function of the truncated normal: differentiable in `params`."""
    mean = mean_pivot(params)
    low, high = ndtr((0 - mean) / std), ndtr((1 - mean) / std)
    # Numerics: ndtri is infinite at 0 and 1.
    level = jnp.clip(low + uniform * (high - low), 1e-6, 1 - 1e-6)
    return jnp.clip(mean + std * ndtri(level), 0, 1)


def sample(
    key: Key[Array, ""], params: Float[Array, " constraint"], std: float, batch: int
) -> Float[Array, "batch constraint"]:
    """Independent draws, one per row and constraint."""
    uniform = jax.random.uniform(key, (batch, params.shape[0]))
    return from_uniform(uniform, params, std)
