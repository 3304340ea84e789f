# pyright: strict, reportUnknownMemberType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Optimistic exploration, the paper's contribution: shift the policy's mean uphill.

At each environment step the mean of the actor moves a set distance along the gradient of
an optimistic reward bound minus a weighted optimistic cost bound (13). Only acting uses
the shift: training and evaluation do not, and with radius 0 this is the plain actor. Rows
of a batch are independent. The bounds are passed in as a function of the action.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bounds = Callable[[Array], tuple[Array, Array]]
"""Actions (batch, action) to reward bound (batch) and cost bound (constraint, batch)."""


class Shift(NamedTuple):
    """The behaviour policy's mean, with the cost weights and the length of the shift."""

    mean: Float[Array, "batch action"]
    exploration_multiplier: Float[Array, "constraint batch"]
    length: Float[Array, " batch"]


def ensemble_spread(
    values: Float[Array, "ensemble *batch"],
) -> Float[Array, "*batch"]:
    """Return the population standard deviation over the first axis.

    Its gradient is finite also where all members agree.
    """
    variance = jnp.square(values - values.mean(axis=0)).mean(axis=0)
    # Numerics: sqrt has no slope at 0, where members agree; there the gradient is 0.
    agree = variance == 0
    return jnp.where(agree, 0.0, jnp.sqrt(jnp.where(agree, 1.0, variance)))


def reward_upper_bound(
    values: Float[Array, "ensemble *batch"], optimism: float
) -> Float[Array, "*batch"]:
    """Return the ensemble mean plus `optimism` standard deviations. Eq. (14).

    The deviation of two critics is half their absolute difference. Negative optimism
    gives a lower bound.
    """
    # Deviates from Eq. (14): the printed deviation lacks its square.
    return values.mean(axis=0) + optimism * ensemble_spread(values)


def optimistic_quantiles(
    quantiles: Float[Array, "ensemble *batch"], optimism: float
) -> Float[Array, "*batch"]:
    """Return cost quantiles `optimism` deviations below the ensemble mean. Eq. (15)."""
    return quantiles.mean(axis=0) - optimism * ensemble_spread(quantiles)


def exploration_multiplier(
    multiplier: Float[Array, "*#batch"],
    cost_value_limit: Float[Array, "*#batch"],
    cost_bound: Float[Array, "*batch"],
) -> Float[Array, "*batch"]:
    """Return the weight of the cost bound, less if it is below the limit. Eq. (19)."""
    return jnp.maximum(multiplier - (cost_value_limit - cost_bound), 0)


def mean_shift(
    gradient: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
    shift_radius: Float[Array, ""] | float,
) -> Float[Array, "batch action"]:
    """Return a step of Mahalanobis length `shift_radius` uphill, per row. Eq. (18).

    radius * S g / sqrt(g' S g) with S = diag(std^2). Exactly zero where the gradient
    vanishes: where every entry of std * g is below 1e-12 in size.
    """
    # Choice: the radius is a factor, as printed, so that KL(behaviour, actor) is
    # radius^2 / 2. The text bounds the KL by it, as OAC does: `radius_from_kl`.
    # Numerics: scaling by the largest entry first keeps squares inside float32's range.
    largest = jnp.abs(std * gradient).max(axis=-1, keepdims=True)
    flat = largest < 1e-12
    unit = jnp.where(flat, 0.0, std * gradient / jnp.where(flat, 1.0, largest))
    norm = jnp.sqrt(jnp.square(unit).sum(axis=-1, keepdims=True))
    # Choice: nothing is added to the norm; OAC's code adds 1e-5, which shortens the
    # shift of small gradients.
    return shift_radius * std * unit / jnp.where(flat, 1.0, norm)


def radius_from_kl(kl: float) -> float:
    """Return the radius at which KL(behaviour, actor) is `kl`, as in OAC."""
    return (2 * kl) ** 0.5


def optimistic_objective(
    pre_tanh: Float[Array, "batch action"],
    bounds: Bounds,
    multiplier: Float[Array, " constraint"],
    cost_value_limits: Float[Array, "constraint #batch"],
    unit: Float[Array, " #batch"] | float = 1.0,
) -> tuple[Float[Array, ""], Float[Array, "constraint batch"]]:
    """Return the reward bound minus weighted cost bounds, summed over rows. Eq. (13).

    The weights have no gradient and are the second output. The multiplier was learned in
    the units of an episode's cost; `unit` converts the cost to go at this step to them.
    """
    reward_bound, cost_bound = bounds(jnp.tanh(pre_tanh))
    weight = jax.lax.stop_gradient(
        exploration_multiplier(
            multiplier[:, None], unit * cost_value_limits, unit * cost_bound
        )
    )
    return (reward_bound - (weight * cost_bound).sum(axis=0)).sum(), weight


def optimistic_gradient(
    mean: Float[Array, "batch action"],
    bounds: Bounds,
    multiplier: Float[Array, " constraint"],
    cost_value_limits: Float[Array, "constraint #batch"],
    unit: Float[Array, " #batch"] | float = 1.0,
) -> tuple[Float[Array, "batch action"], Float[Array, "constraint batch"]]:
    """Return the gradient of the objective at the actor's mean action. Eq. (17)."""
    # Choice: with respect to the mean before its tanh, as OAC's code has it; printed
    # is the action. Rows are independent, so one gradient of the sum serves all.
    gradient_of = jax.grad(optimistic_objective, has_aux=True)
    return gradient_of(mean, bounds, multiplier, cost_value_limits, unit)


def shift_policy(
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
    bounds: Bounds,
    multiplier: Float[Array, " constraint"],
    cost_value_limits: Float[Array, "constraint #batch"],
    shift_radius: Float[Array, ""] | float,
    unit: Float[Array, " #batch"] | float = 1.0,
) -> Shift:
    """Return the mean of the behaviour policy N(shifted mean, std). Eq. (20)."""
    gradient, weight = optimistic_gradient(
        mean, bounds, multiplier, cost_value_limits, unit
    )
    shift = mean_shift(gradient, std, shift_radius)
    return Shift(mean + shift, weight, jnp.linalg.norm(shift, axis=-1))
