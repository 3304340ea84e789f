"""The Lagrange multipliers and their two update rules.

`update` moves the multipliers at every gradient step of the actor, according to the risk
that the critics predict, as in the paper. `follow_episodes` moves their logarithms between
gradient steps, according to the measured risk of episodes of the deployed policy.
`training/measurement.py` turns the costs of these episodes into the argument `error` of
`follow_episodes`.
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
    """The Lagrange multipliers, and the state of their update rule."""

    value: Float[Array, " constraint"]
    opt_state: optax.OptState
    integral: Float[Array, " constraint"]
    """Integral term of the PID controller. If the multiplier follows episodes, it is the
    integral term of the logarithm of the multiplier. Adam does not use it."""
    previous_error: Float[Array, " constraint"]
    """Error at the last update: mean risk - limit, or the argument `error` of
    `follow_episodes` if the multiplier follows episodes."""
    floor: Any = ()
    """Lower bound on the log multiplier. With `remember_breaks`, `follow_episodes` raises
    it if the limit is exceeded after the multiplier has fallen. The bound is used only if
    the multiplier follows episodes."""
    fell: Any = ()
    """Whether the multiplier has fallen since the limit was last exceeded. It is used only if
    the multiplier follows episodes."""


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

    In a mean over all states, late states with little remaining cost can hide a violation at
    the start of episodes.
    """
    if config.multiplier.states == "replay":
        return None
    return accumulated_discount == 1.0


def mean_risk(
    risk: Float[Array, "constraint batch"], mask: Bool[Array, " batch"] | None
) -> Float[Array, " constraint"]:
    """Return the mean risk over the rows that the mask selects, or over all rows.

    It is 0 if the mask selects no row.
    """
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
    """Raise a multiplier if the mean risk is above the limit, otherwise lower it. Eq. (2).

    With Adam, this is a descent step on multiplier * (limit - mean risk). The new value is
    clipped at 0. The multiplier is not the softplus or exp of a learned number, because
    these are never 0, and the paper's multiplier starts at 0. If the mask selects no row,
    neither the multiplier nor the state of the update rule changes.
    """
    violation = mean_risk(risk, mask) - limits
    moved = controller_step(multiplier, violation, limits, config, optimizer)
    if mask is None:
        return moved
    return jax.tree.map(
        lambda new, old: jnp.where(mask.any(), new, old), moved, multiplier
    )


def controller_step(
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
        # This avoids a division by a limit of 0.
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
"""Factor by which the new floor exceeds the multiplier at which the limit was exceeded."""
FLOOR_RELAXES = 20
"""The floor's logarithm falls by 1 in `FLOOR_RELAXES * episodes_per_unit` episodes."""


def follow_episodes(
    multiplier: Multiplier,
    error: Float[np.ndarray, " constraint"],
    improving: Bool[np.ndarray, " constraint"],
    episodes: float,
    config: AgentConfig,
) -> Multiplier:
    """Move the log multipliers by a PI controller on the measured risk of episodes.

    `error` is (risk - target) / limit with target = (1 - margin) * limit. If the limit is
    0, the divisor is `cost_scale` instead. `improving` is true for the constraints whose
    risk is still falling. `episodes` is the number of episodes that fit into the training
    steps since the last call. The multiplier does not change if the risk is in the dead
    zone below the target, and does not rise while the risk is falling. With
    `remember_breaks`, if the limit is exceeded after the multiplier has fallen, the floor
    rises to `BROKEN_FACTOR` times the multiplier. This is for policies that jump between
    safe and unsafe behaviour.
    """
    settings = config.multiplier
    cap = math.inf if settings.cap is None else math.log(settings.cap)
    lowest = math.log(settings.floor)
    units = episodes / settings.episodes_per_unit
    integral, fell = np.asarray(multiplier.integral), np.asarray(multiplier.fell)

    clipped = np.clip(error, -min(0.5, settings.max_error), settings.max_error)
    resting = (error < 0) & (error > -settings.dead_zone)
    resting |= (error > 0) & improving
    push = np.where(resting, 0.0, clipped)
    # The target is below the limit by the margin, so this means risk > limit.
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
        # `fell` stays true until the measured risk exceeds the limit, which may be much
        # later, because the risk is measured over a window of episodes.
        fell=jnp.asarray(~broken & (fell | (push < 0))),
    )
