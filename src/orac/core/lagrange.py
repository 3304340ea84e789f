"""The Lagrange multipliers, which follow the critics' risk or that of measured episodes.

`update` moves them at every gradient step by the risk that the critics predict, as the
paper does. `follow_episodes` moves their logarithm between gradient steps, by the measured
risk of episodes of the deployed policy.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from orac.config.schema import AgentConfig


class Multiplier(NamedTuple):
    """The Lagrange multipliers, and the state of Adam or of the PID controller."""

    value: Float[Array, " constraint"]
    opt_state: optax.OptState
    integral: Float[Array, " constraint"]
    previous_error: Float[Array, " constraint"]
    """Last error: mean risk - limit, or (risk - target) / limit if it follows episodes."""
    floor: Any = ()
    """Only if it follows episodes: lower bound of the logarithm, which rises where the
    limit was exceeded. `integral` is then the integral term of the log multiplier."""
    fell: Any = ()
    """Only if it follows episodes: whether it fell since the limit was last exceeded."""


def init(
    count: int, config: AgentConfig, optimizer: optax.GradientTransformation
) -> Multiplier:
    """Return `count` multipliers at their initial value."""
    value = jnp.full(count, config.multiplier.initial, jnp.float32)
    if config.follows_episodes:
        floor = jnp.full(count, math.log(config.multiplier.floor), jnp.float32)
        return Multiplier(
            value,
            opt_state=optax.EmptyState(),
            integral=jnp.log(value),
            previous_error=jnp.zeros(count),
            floor=floor,
            fell=jnp.zeros(count, bool),
        )
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


BROKEN_FACTOR = 1.5
"""The floor rises to this factor times the multiplier at which the limit was exceeded."""
FLOOR_RELAXES = 20
"""The floor's logarithm falls by 1 per this many times `episodes_per_unit` episodes."""


def follow_episodes(
    multiplier: Multiplier,
    error: Float[np.ndarray, " constraint"],
    improving: Bool[np.ndarray, " constraint"],
    episodes: float,
    config: AgentConfig,
) -> Multiplier:
    """Move the log multipliers by a PI controller on the measured risk of episodes.

    `error` is (risk - target) / limit with target = (1 - margin) limit, `improving` tells
    where the risk is still falling, and `episodes` is the number of episodes that fit into
    the training steps since the last move. The multiplier does not change in the dead zone
    below the target, and does not rise while the risk is falling. With `remember_breaks`,
    when the limit is exceeded after the multiplier fell, its floor rises above the value at
    which that happened. This keeps a policy that jumps between two modes in the safe one.
    """
    settings = config.multiplier
    cap = math.inf if settings.cap is None else math.log(settings.cap)
    lowest = math.log(settings.floor)
    units = episodes / settings.episodes_per_unit
    integral, fell = np.asarray(multiplier.integral), np.asarray(multiplier.fell)

    clipped = np.clip(error, -0.5, 1)
    resting = (clipped < 0) & (clipped > -settings.dead_zone)
    resting |= (clipped > 0) & improving
    push = np.where(resting, 0.0, clipped)
    # The target is the margin below the limit, so this means risk > limit.
    broken = error > settings.margin
    floor = np.asarray(multiplier.floor) - units / FLOOR_RELAXES
    remembered = np.maximum(floor, integral + math.log(BROKEN_FACTOR))
    remembers = broken & fell & settings.remember_breaks
    floor = np.clip(np.where(remembers, remembered, floor), lowest, cap)
    moved = np.clip(integral + push * units, floor, cap)
    value = np.exp(np.clip(moved + settings.proportional * push, floor, cap))
    return multiplier._replace(
        value=jnp.asarray(value, jnp.float32),
        integral=jnp.asarray(moved, jnp.float32),
        previous_error=jnp.asarray(error, jnp.float32),
        floor=jnp.asarray(floor, jnp.float32),
        # It stays set until the limit is exceeded, which the window may show much later.
        fell=jnp.asarray(~broken & (fell | (push < 0))),
    )
