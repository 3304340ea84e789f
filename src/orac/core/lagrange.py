"""The Lagrange multipliers and their update, by Adam or a PID controller."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from orac.config.schema import AgentConfig


class Multiplier(NamedTuple):
    """The Lagrange multipliers, and the state of Adam or of the PID controller."""

    value: Float[Array, " constraint"]
    opt_state: optax.OptState
    integral: Float[Array, " constraint"]
    previous_error: Float[Array, " constraint"]
    """Mean risk minus limit, when it was last measured."""


def init(
    count: int, config: AgentConfig, optimizer: optax.GradientTransformation
) -> Multiplier:
    """Return `count` multipliers at their initial value."""
    value = jnp.full(count, config.multiplier.initial, jnp.float32)
    return Multiplier(
        value,
        optimizer.init(value),
        integral=jnp.copy(value),
        previous_error=jnp.zeros(count),
    )


def initial_state_mask(
    accumulated_discount: Float[Array, " batch"], config: AgentConfig
) -> Bool[Array, " batch"] | None:
    """Return the mask of initial states, or None to use all states.

    A mean over all states lets late states with little remaining cost hide a violation at
    the start of episodes.
    """
    if config.multiplier.states == "replay":
        return None
    return accumulated_discount == 1.0


def mean_risk(
    risk: Float[Array, "constraint batch"], mask: Bool[Array, " batch"] | None
) -> Float[Array, " constraint"]:
    """Return the mean risk over the rows of the mask, or over all; 0 if there are none."""
    if mask is None:
        return risk.mean(axis=1)
    return jnp.where(mask, risk, 0).sum(axis=1) / jnp.maximum(mask.sum(), 1)


def update(
    multiplier: Multiplier,
    risk: Float[Array, "constraint batch"],
    limits: Float[Array, " constraint"],
    config: AgentConfig,
    optimizer: optax.GradientTransformation,
    mask: Bool[Array, " batch"] | None = None,
) -> Multiplier:
    """Raise each multiplier while its mean risk is above the limit; at least 0. Eq. (2).

    Descends on multiplier * (limit - mean risk). The value is projected rather than
    squashed: the paper starts at 0, which neither softplus nor exp can represent. If the
    mask selects no row, nothing moves: neither the multiplier nor Adam's moments.
    """
    violation = mean_risk(risk, mask) - limits
    moved = move(multiplier, violation, limits, config, optimizer)
    if mask is None:
        return moved
    return jax.tree.map(
        lambda new, old: jnp.where(mask.any(), new, old), moved, multiplier
    )


def move(
    multiplier: Multiplier,
    violation: Float[Array, " constraint"],
    limits: Float[Array, " constraint"],
    config: AgentConfig,
    optimizer: optax.GradientTransformation,
) -> Multiplier:
    """Take one step of Adam or of the PID controller."""
    cap = jnp.inf if config.multiplier.cap is None else config.multiplier.cap
    if config.multiplier.pid:
        proportional, integral_gain, derivative = config.multiplier.pid_gains
        # Do not divide by a limit of 0.
        scale = jnp.where(limits > 0, limits, 1.0)
        error = violation / scale
        integral = jnp.clip(multiplier.integral + integral_gain * error, 0, cap)
        rise = jnp.maximum(error - multiplier.previous_error / scale, 0)
        value = proportional * error + integral + derivative * rise
        return Multiplier(
            jnp.clip(value, 0, cap), multiplier.opt_state, integral, violation
        )
    updates, opt_state = optimizer.update(-violation, multiplier.opt_state)
    value = jnp.clip(multiplier.value + jnp.asarray(updates), 0, cap)
    return Multiplier(value, opt_state, multiplier.integral, violation)
