"""The Lagrange multipliers: what a unit of risk costs the actor, and how that price moves.

Risks and limits come in as numbers; whose they are is not known here.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from orac.config import AgentConfig
from orac.optimizers import make_optimizers


class Multiplier(NamedTuple):
    """The Lagrange multipliers, and what Adam or the PID controller remembers."""

    value: Float[Array, " constraint"]
    opt_state: optax.OptState
    integral: Float[Array, " constraint"]
    previous_error: Float[Array, " constraint"]


def init(count: int, config: AgentConfig) -> Multiplier:
    """Every multiplier at its first value, with nothing remembered."""
    value = jnp.full(count, config.multiplier.initial, jnp.float32)
    return Multiplier(
        value,
        make_optimizers(config).multiplier.init(value),
        integral=jnp.copy(value),
        previous_error=jnp.zeros(count),
    )


def risk_of_starts(
    risk: Float[Array, "constraint batch"],
    accumulated_discount: Float[Array, " batch"],
    limits: Float[Array, " constraint"],
) -> Float[Array, "constraint batch"]:
    """The mean risk of the rows that begin an episode, in every row.

    What is promised is the risk of an episode. Later states, with less left to pay, would
    make up for starts with too much. A batch without a start says nothing, so the limit.
    """
    starts = accumulated_discount == 1.0
    mean = jnp.where(starts, risk, 0).sum(axis=1) / jnp.maximum(starts.sum(), 1)
    mean = jnp.where(starts.any(), mean, limits)
    return jnp.broadcast_to(mean[:, None], risk.shape)


def update(
    multiplier: Multiplier,
    risk: Float[Array, "constraint batch"],
    limits: Float[Array, " constraint"],
    config: AgentConfig,
) -> Multiplier:
    """Raise each multiplier while its mean risk is above the limit; at least 0. Eq. (2).

    Gradient of multiplier * (limit - mean risk). Projected rather than squashed: the
    paper starts at 0, which neither softplus nor exp can represent.
    """
    violation = risk.mean(axis=1) - limits
    cap = jnp.inf if config.multiplier.cap is None else config.multiplier.cap
    if config.multiplier.pid:
        proportional, integral_gain, derivative = config.multiplier.pid_gains
        # A limit of 0 has no scale of its own.
        error = violation / jnp.where(limits > 0, limits, 1.0)
        integral = jnp.clip(multiplier.integral + integral_gain * error, 0, cap)
        rise = jnp.maximum(error - multiplier.previous_error, 0)
        value = proportional * error + integral + derivative * rise
        return Multiplier(
            jnp.clip(value, 0, cap), multiplier.opt_state, integral, error
        )
    updates, opt_state = make_optimizers(config).multiplier.update(
        -violation, multiplier.opt_state
    )
    value = jnp.clip(multiplier.value + jnp.asarray(updates), 0, cap)
    return Multiplier(value, opt_state, multiplier.integral, multiplier.previous_error)
