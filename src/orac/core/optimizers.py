"""What moves parameters: Adam with its memory beside what it moves.

Knows a config's learning rates and nothing of what the parameters mean.
"""

from typing import Any, NamedTuple

import optax

from orac.config.schema import AgentConfig


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


def for_each_member(
    transform: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """A stateless transformation of each member of an ensemble, apart from the others."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        members = (transform.update(member, state)[0] for member in updates)
        return tuple(members), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def make_optimizers(config: AgentConfig) -> Optimizers:
    """Adam everywhere; each network may have its gradient's norm clipped first."""
    actor = optax.adam(config.actor_learning_rate)
    reward_critics = optax.adam(config.reward_critic_learning_rate)
    cost_critics = optax.adam(config.cost_critic_learning_rate)
    if config.max_gradient_norm is not None:
        clip = optax.clip_by_global_norm(config.max_gradient_norm)
        actor = optax.chain(clip, actor)
        reward_critics = optax.chain(for_each_member(clip), reward_critics)
        cost_critics = optax.chain(for_each_member(clip), cost_critics)
    return Optimizers(
        actor=actor,
        reward_critics=reward_critics,
        cost_critics=cost_critics,
        temperature=optax.adam(config.temperature_learning_rate),
        multiplier=optax.adam(config.multiplier.learning_rate),
        pivot=optax.chain(
            optax.clip(config.pivot.max_gradient),
            optax.adam(config.pivot.learning_rate),
        ),
    )


def descend(
    optimizer: optax.GradientTransformation, learned: Learned, gradient: Any
) -> Learned:
    """One step of an optimiser."""
    updates, opt_state = optimizer.update(gradient, learned.opt_state, learned.params)
    return Learned(optax.apply_updates(learned.params, updates), opt_state)
