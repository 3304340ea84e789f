"""The Lagrange multipliers: what a unit of risk costs the actor, and how that price moves.

Risks and limits come in as numbers; which rows of a batch are held to a limit is said here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from orac.config.schema import AgentConfig
from orac.core.optimizers import make_optimizers


class Multiplier(NamedTuple):
    """The Lagrange multipliers, and what Adam or the PID controller remembers."""

    value: Float[Array, " constraint"]
    opt_state: optax.OptState
    integral: Float[Array, " constraint"]
    previous_error: Float[Array, " constraint"]
    """Mean risk minus limit, when it was last seen."""


def init(count: int, config: AgentConfig) -> Multiplier:
    """Every multiplier at its first value, with nothing remembered."""
    value = jnp.full(count, config.multiplier.initial, jnp.float32)
    return Multiplier(
        value,
        make_optimizers(config).multiplier.init(value),
        integral=jnp.copy(value),
        previous_error=jnp.zeros(count),
    )


def starts_held(
    accumulated_discount: Float[Array, " batch"], config: AgentConfig
) -> Bool[Array, " batch"] | None:
    """The rows that begin an episode, if their risk alone is held to the limit.

    What is promised is the risk of an episode. Later states, with less left to pay, may make
    up for starts with too much.
    """
    if config.multiplier.states == "replay":
        return None
    return accumulated_discount == 1.0


def mean_risk(
    risk: Float[Array, "constraint batch"], rows: Bool[Array, " batch"] | None
) -> Float[Array, " constraint"]:
    """Over these rows, or all; 0 where there is none."""
    if rows is None:
        return risk.mean(axis=1)
    return jnp.where(rows, risk, 0).sum(axis=1) / jnp.maximum(rows.sum(), 1)


def update(
    multiplier: Multiplier,
    risk: Float[Array, "constraint batch"],
    limits: Float[Array, " constraint"],
    config: AgentConfig,
    rows: Bool[Array, " batch"] | None = None,
) -> Multiplier:
    """Raise each multiplier while its mean risk is above the limit; at least 0. Eq. (2).

    Gradient of multiplier * (limit - mean risk). Projected rather than squashed: the
    paper starts at 0, which neither softplus nor exp can represent. Of `rows` without
    any, nothing is learned, and nothing moves: neither the multiplier nor Adam's moments.
    """
    moved = move(multiplier, mean_risk(risk, rows) - limits, limits, config)
    if rows is None:
        return moved
    return jax.tree.map(
        lambda new, old: jnp.where(rows.any(), new, old), moved, multiplier
    )


def move(
    multiplier: Multiplier,
    violation: Float[Array, " constraint"],
    limits: Float[Array, " constraint"],
    config: AgentConfig,
) -> Multiplier:
    """One step of Adam or of the PID controller."""
    cap = jnp.inf if config.multiplier.cap is None else config.multiplier.cap
    if config.multiplier.pid:
        proportional, integral_gain, derivative = config.multiplier.pid_gains
        # A limit of 0 has no scale of its own.
        scale = jnp.where(limits > 0, limits, 1.0)
        error = violation / scale
        integral = jnp.clip(multiplier.integral + integral_gain * error, 0, cap)
        rise = jnp.maximum(error - multiplier.previous_error / scale, 0)
        value = proportional * error + integral + derivative * rise
        return Multiplier(
            jnp.clip(value, 0, cap), multiplier.opt_state, integral, violation
        )
    updates, opt_state = make_optimizers(config).multiplier.update(
        -violation, multiplier.opt_state
    )
    value = jnp.clip(multiplier.value + jnp.asarray(updates), 0, cap)
    return Multiplier(value, opt_state, multiplier.integral, violation)
