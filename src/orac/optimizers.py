"""What moves parameters: Adam with its memory beside what it moves.

Knows a config's learning rates and nothing of what the parameters mean.
"""

from typing import Any, NamedTuple

import optax

from orac.config import AgentConfig


class Learned(NamedTuple):
    """Parameters and the state of the optimiser that moves them."""

    params: Any
    opt_state: optax.OptState


def learned(params: Any, optimizer: optax.GradientTransformation) -> Learned:
    """Parameters with a fresh optimiser."""
    return Learned(params, optimizer.init(params))


class Optimizers(NamedTuple):
    """One for each thing that an agent learns."""

    actor: optax.GradientTransformation
    reward_critics: optax.GradientTransformation
    cost_critics: optax.GradientTransformation
    temperature: optax.GradientTransformation
    multiplier: optax.GradientTransformation
    pivot: optax.GradientTransformation


def make_optimizers(config: AgentConfig) -> Optimizers:
    """Adam everywhere; networks may have their gradient's norm clipped first."""

    def network_adam(learning_rate: float) -> optax.GradientTransformation:
        if config.max_gradient_norm is None:
            return optax.adam(learning_rate)
        clip = optax.clip_by_global_norm(config.max_gradient_norm)
        return optax.chain(clip, optax.adam(learning_rate))

    return Optimizers(
        actor=network_adam(config.actor_learning_rate),
        reward_critics=network_adam(config.reward_critic_learning_rate),
        cost_critics=network_adam(config.cost_critic_learning_rate),
        temperature=optax.adam(config.temperature_learning_rate),
        multiplier=optax.adam(config.multiplier.learning_rate),
        pivot=optax.chain(
            optax.clip_by_global_norm(config.pivot.max_gradient),
            optax.adam(config.pivot.learning_rate),
        ),
    )


def descend(
    optimizer: optax.GradientTransformation, learned: Learned, gradient: Any
) -> Learned:
    """One step of an optimiser."""
    updates, opt_state = optimizer.update(gradient, learned.opt_state, learned.params)
    return Learned(optax.apply_updates(learned.params, updates), opt_state)
