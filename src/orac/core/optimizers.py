"""The optimisers of an agent, and the record of parameters with their optimiser's state."""

from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

from orac.config.schema import AgentConfig


class ParamState(NamedTuple):
    """Parameters and the state of the optimiser that updates them."""

    params: Any
    opt_state: optax.OptState


class Optimizers(NamedTuple):
    """The optimiser of each part of an agent."""

    actor: optax.GradientTransformation
    reward_critics: optax.GradientTransformation
    cost_critics: optax.GradientTransformation
    temperature: optax.GradientTransformation
    multiplier: optax.GradientTransformation
    pivot: optax.GradientTransformation


def make_optimizers(config: AgentConfig) -> Optimizers:
    """Return an Adam optimiser for each part of an agent.

    If the config has a maximum gradient norm, the optimisers of the networks first clip the
    norm of the gradient. The optimiser of the pivot always clips each entry of its gradient.
    """
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


def for_each_member(
    transform: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Apply a stateless transformation to each member of an ensemble separately."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        members = (transform.update(member, state)[0] for member in updates)
        return tuple(members), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def init_params(params: Any, optimizer: optax.GradientTransformation) -> ParamState:
    """Return the parameters with a new optimiser state."""
    return ParamState(params, optimizer.init(params))


def apply_gradients(
    optimizer: optax.GradientTransformation,
    state: ParamState,
    gradient: Any,
    factor: Float[Array, ""] | None = None,
) -> ParamState:
    """Take one step of the optimiser. `factor` scales the learning rate."""
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    if factor is not None:
        updates = jax.tree.map(lambda update: factor * update, updates)
    return ParamState(optax.apply_updates(state.params, updates), opt_state)
