# pyright: strict, reportUnknownMemberType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Quantile fractions, targets and losses of the critics.

Quantiles have the shape (constraint, ensemble, batch, quantile). Only the reward target
contains the entropy. Each member of a cost ensemble has its own target, so that the members
stay independent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key


class Fractions(NamedTuple):
    """A partition of [0, 1] into intervals, given by their midpoints and widths.

    Quantiles are evaluated at the midpoints, which are called levels, and weighted by the
    widths.
    """

    levels: Float[Array, "*batch quantile"]
    widths: Float[Array, "*batch quantile"]


def uniform_fractions(num_quantiles: int) -> Fractions:
    """Return intervals of equal width, which critics with fixed quantiles use."""
    widths = jnp.full(num_quantiles, 1 / num_quantiles)
    return Fractions((jnp.arange(num_quantiles) + 0.5) / num_quantiles, widths)


def sample_fractions(
    key: Key[Array, ""], shape: tuple[int, ...], floor: float = 0.1
) -> Fractions:
    """Sample intervals whose widths sum to one along the last axis."""
    # Deviates from Eq. (24): there nothing is added to the uniform draws. Adding 0.1, as
    # DSAC's code does, keeps every width away from zero.
    raw = jax.random.uniform(key, shape) + floor
    widths = raw / raw.sum(axis=-1, keepdims=True)
    upper = jnp.cumsum(widths, axis=-1)
    return Fractions(upper - widths / 2, widths)


def huber(td_error: Float[Array, "*shape"], kappa: float) -> Float[Array, "*shape"]:
    """Return the Huber loss: quadratic up to `kappa` and linear beyond. Eq. (8)."""
    size = jnp.abs(td_error)
    # With c = min(|x|, kappa), both cases are c^2 / 2 + kappa (|x| - c).
    near = jnp.minimum(size, kappa)
    return 0.5 * near * near + kappa * (size - near)


def quantile_huber(
    td_error: Float[Array, "*shape"], levels: Float[Array, "*#shape"], kappa: float
) -> Float[Array, "*shape"]:
    """Return the asymmetric Huber loss. Eq. (9).

    At each level, its minimiser is the target's quantile if kappa is near 0, and otherwise
    close to it.
    """
    below = (td_error < 0).astype(td_error.dtype)
    return jnp.abs(levels - below) * huber(td_error, kappa) / kappa


def pairwise_errors(
    predictions: Float[Array, "*batch prediction"],
    targets: Float[Array, "*batch target"],
) -> Float[Array, "*batch prediction target"]:
    """Return every target minus every prediction. Eq. (23)."""
    return targets[..., None, :] - predictions[..., :, None]


def quantile_loss(
    predictions: Float[Array, "*batch prediction"],
    levels: Float[Array, "*#batch prediction"],
    targets: Float[Array, "*batch target"],
    target_widths: Float[Array, "*#batch target"],
    kappa: float,
) -> Float[Array, "*batch"]:
    """Return the loss over all pairs, weighted by the targets' widths. Eq. (24)."""
    td_error = pairwise_errors(predictions, targets)
    # Deviates from Eq. (24): we average over predictions instead of summing. The minimiser
    # is the same, and Adam is invariant to the scale of the loss.
    pairwise = quantile_huber(td_error, levels[..., :, None], kappa)
    return (pairwise * target_widths[..., None, :]).sum(axis=-1).mean(axis=-1)


def cost_targets(
    cost: Float[Array, "constraint batch"],
    ends: Bool[Array, " batch"],
    next_quantiles: Float[Array, "constraint ensemble batch quantile"],
    discount: Float[Array, " batch"] | float,
) -> Float[Array, "constraint ensemble batch quantile"]:
    """Return the cost plus the discounted quantiles at the next state. Eq. (10).

    There is no entropy and no minimum over members: the target of member e contains only
    the quantiles of target critic e.
    """
    onward = discount * (1 - ends.astype(cost.dtype))
    return cost[:, None, :, None] + onward[:, None] * next_quantiles


def squared_loss(
    predictions: Float[Array, "*members batch"],
    targets: Float[Array, "*#members batch"],
) -> Float[Array, ""]:
    """Return the mean squared error over the batch, summed over members."""
    return jnp.square(predictions - targets).mean(axis=-1).sum()


def reward_target(
    reward: Float[Array, " batch"],
    ends: Bool[Array, " batch"],
    next_values: Float[Array, "ensemble batch"],
    next_log_prob: Float[Array, " batch"],
    temperature: Float[Array, ""],
    discount: Float[Array, " batch"] | float,
) -> Float[Array, " batch"]:
    """Return the reward plus the discounted soft value of the lowest critic."""
    soft_value = next_values.min(axis=0) - temperature * next_log_prob
    return reward + discount * (1 - ends.astype(reward.dtype)) * soft_value
