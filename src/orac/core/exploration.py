# pyright: strict, reportUnknownMemberType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Optimistic exploration, the paper's contribution: shift the policy's mean before acting.

At each environment step the actor's mean moves by a given distance along the gradient of
an optimistic reward bound minus weighted optimistic cost bounds, which is equation (13).
The shift is used only to collect experience, not in the losses and not in evaluations. With
radius 0 the behaviour policy is the plain actor. The rows of a batch are independent of
each other. The caller passes the bounds as a function of the action.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bounds = Callable[[Array], tuple[Array, Array]]
"""Function that takes actions (batch, action) and returns the reward bound (batch) and the
cost bounds (constraint, batch)."""


class Shift(NamedTuple):
    """The behaviour policy's mean, the weights of the cost bounds, and the shift length."""

    mean: Float[Array, "batch action"]
    exploration_multiplier: Float[Array, "constraint batch"]
    length: Float[Array, " batch"]


def ensemble_spread(
    values: Float[Array, "ensemble *batch"],
) -> Float[Array, "*batch"]:
    """Return the population standard deviation over the first axis.

    The gradient is finite even where all members agree.
    """
    variance = jnp.square(values - values.mean(axis=0)).mean(axis=0)
    # Numerics: the slope of sqrt is infinite at 0, so the gradient is set to 0 there.
    agree = variance == 0
    return jnp.where(agree, 0.0, jnp.sqrt(jnp.where(agree, 1.0, variance)))


def reward_upper_bound(
    values: Float[Array, "ensemble *batch"], optimism: float
) -> Float[Array, "*batch"]:
    """Return the ensemble mean plus `optimism` standard deviations. Eq. (14).

    The standard deviation of two values is half their absolute difference. Negative
    optimism gives a lower bound.
    """
    # Deviates from Eq. (14): the standard deviation as printed lacks the square.
    return values.mean(axis=0) + optimism * ensemble_spread(values)


def optimistic_quantiles(
    quantiles: Float[Array, "ensemble *batch"], optimism: float
) -> Float[Array, "*batch"]:
    """Return the mean quantiles minus `optimism` standard deviations. Eq. (15)."""
    return quantiles.mean(axis=0) - optimism * ensemble_spread(quantiles)


def exploration_multiplier(
    multiplier: Float[Array, "*#batch"],
    cost_value_limit: Float[Array, "*#batch"],
    cost_bound: Float[Array, "*batch"],
) -> Float[Array, "*batch"]:
    """Return the weight of the cost bound in the exploration's objective. Eq. (19).

    The weight is smaller than the multiplier if the bound is below the limit, and larger if
    the bound is above the limit. Multiplier and weight differ by the distance between bound
    and limit, except that the weight is never below 0.
    """
    return jnp.maximum(multiplier - (cost_value_limit - cost_bound), 0)


def mean_shift(
    gradient: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
    shift_radius: Float[Array, ""] | float,
) -> Float[Array, "batch action"]:
    """Return a step of Mahalanobis length `shift_radius` along the gradient. Eq. (18).

    The step of each row is radius * S g / sqrt(g' S g) with S = diag(std^2). This step is
    exactly zero if every entry of std * g is below 1e-12 in absolute value.
    """
    # Choice: the radius is a factor, as printed, so that KL(behaviour, actor) is
    # radius^2 / 2. The paper's text says that delta, our radius, bounds the KL, as in OAC.
    # `radius_from_kl` converts such a bound to a radius.
    # Numerics: dividing by the largest entry first keeps squares inside float32's range.
    largest = jnp.abs(std * gradient).max(axis=-1, keepdims=True)
    flat = largest < 1e-12
    unit = jnp.where(flat, 0.0, std * gradient / jnp.where(flat, 1.0, largest))
    norm = jnp.sqrt(jnp.square(unit).sum(axis=-1, keepdims=True))
    # Choice: nothing is added to the norm. OAC's code adds 1e-5, which shortens the shift
    # if the gradient is small.
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

    The second result is the weights. The gradient treats them as constants. The multiplier
    was learned in the units of an episode's cost, and the factor `unit` converts the cost to
    go from this step to these units.
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
    # Choice: the gradient is with respect to the mean before the tanh, as in OAC's code,
    # and not with respect to the action, as printed. Rows are independent, so the gradient
    # of the sum over rows contains the gradient of every row.
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
