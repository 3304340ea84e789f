"""The parts of a gradient step: critics, actor, temperature, targets, pivots.

Each reads what it needs of the state and gives its own part anew; `agents.update` says in
which order. Values and risks are read off the critics by `valuation`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from orac.config.schema import AgentConfig
from orac.core import cost_models as valuation
from orac.core import critics, exploration, networks, pivots
from orac.core import lagrange as multipliers
from orac.core import normalization as observations
from orac.core.agent_state import AgentState
from orac.core.cost_models import Context, Problem
from orac.core.optimizers import Learned, descend, make_optimizers
from orac.core.types import Metrics, Transition


def prepare(
    state: AgentState,
    batch: Transition,
    pivot: Float[Array, "batch constraint"],
    config: AgentConfig,
) -> tuple[Transition, Array, Array, Context]:
    """Scale a batch and give it fresh pivots, the same at s and s'.

    Relabelling is sound because a pivot affects neither dynamics nor reward nor cost.
    """
    stats = state.observation_stats
    context = Context(pivot, batch.accumulated_cost, batch.accumulated_discount)
    inputs, next_inputs = (
        valuation.condition(observations.scale(stats, o, config), context, config)
        for o in (batch.observation, batch.next_observation)
    )
    batch = batch._replace(reward=batch.reward * config.reward_scale)
    return batch, inputs, next_inputs, context


class CriticTargets(NamedTuple):
    """What the critics are to say at this batch, and the fractions it is said at."""

    reward: Float[Array, " batch"]
    cost: Float[Array, "constraint ensemble batch quantile"]
    fractions: critics.Fractions


def critic_targets(
    keys: tuple[Key[Array, ""], Key[Array, ""]],
    state: AgentState,
    batch: Transition,
    next_inputs: Array,
    problem: Problem,
    config: AgentConfig,
) -> CriticTargets:
    """One step ahead, by the target critics at the actor's own next action."""
    action_key, fraction_key = keys
    ends = batch.terminated
    if not config.bootstrap_on_truncation:
        ends = ends | batch.truncated
    mean, std = networks.apply_actor(state.actor.params, next_inputs)
    next_action, next_log_prob = networks.sample_action(action_key, mean, std)
    next_values = valuation.reward_values(
        state.target_reward_critics, next_inputs, next_action
    )
    temperature = jnp.exp(state.log_temperature.params)
    fractions = valuation.critic_fractions(fraction_key, batch.reward.shape[0], config)
    next_quantiles = valuation.cost_quantiles(
        state.target_cost_critics,
        next_inputs,
        next_action,
        valuation.for_each_constraint(fractions.levels, problem),
        problem,
        config,
    )
    return CriticTargets(
        critics.reward_target(
            batch.reward, ends, next_values, next_log_prob, temperature, config.discount
        ),
        critics.cost_targets(batch.cost.T, ends, next_quantiles, config.cost_discount),
        fractions,
    )


def update_critics(
    key: Key[Array, ""],
    state: AgentState,
    batch: Transition,
    inputs: Array,
    next_inputs: Array,
    problem: Problem,
    config: AgentConfig,
) -> tuple[Learned, Learned, Metrics]:
    """One step of the reward critics (mean squared error) and the cost critics."""
    action_key, target_key, fraction_key = jax.random.split(key, 3)
    targets = critic_targets(
        (action_key, target_key), state, batch, next_inputs, problem, config
    )
    fractions = valuation.critic_fractions(fraction_key, batch.reward.shape[0], config)
    levels = valuation.for_each_constraint(fractions.levels, problem)

    def loss(params: tuple[Any, Any]) -> tuple[Array, Metrics]:
        reward_params, cost_params = params
        values = valuation.reward_values(reward_params, inputs, batch.action)
        quantiles = valuation.cost_quantiles(
            cost_params, inputs, batch.action, levels, problem, config
        )
        reward_loss = critics.squared_loss(values, targets.reward)
        if config.risk_form == "scalar":
            cost_loss = critics.squared_loss(quantiles[..., 0], targets.cost[..., 0])
        else:
            widths = targets.fractions.widths
            cost_loss = critics.cost_loss(
                quantiles, fractions, targets.cost, widths, config.kappa
            )
        spread = exploration.ensemble_spread(values).mean()
        metrics = {
            "critic/reward_loss": reward_loss,
            "critic/cost_loss": cost_loss,
            "critic/reward_value": values.mean() / config.reward_scale,
            "critic/reward_spread": spread / config.reward_scale,
        }
        return reward_loss + cost_loss, metrics

    optimizers = make_optimizers(config)
    params = (state.reward_critics.params, state.cost_critics.params)
    gradients, metrics = jax.grad(loss, has_aux=True)(params)
    return (
        descend(optimizers.reward_critics, state.reward_critics, gradients[0]),
        descend(optimizers.cost_critics, state.cost_critics, gradients[1]),
        metrics,
    )


def update_actor(
    key: Key[Array, ""],
    state: AgentState,
    critic_params: tuple[Any, Any],
    inputs: Array,
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> tuple[Learned, Array, Float[Array, "constraint batch"], Metrics]:
    """One step on the Lagrangian: entropy, reward, and the risk of cost. Eq. (7).

    With the pivot among the inputs it is (35); with the mean as the risk measure it is
    (2), whose other half is `multipliers.update`.
    Returns the log-probabilities and the risks too, which the temperature and the
    multipliers are taught with: at the policy's actions, since those in the replay
    would leak exploration into them.
    """
    action_key, fraction_key = jax.random.split(key)
    reward_params, cost_params = critic_params
    temperature = jnp.exp(state.log_temperature.params)
    levels, weights = valuation.policy_levels(
        fraction_key, inputs.shape[0], problem, config
    )

    def loss(actor: networks.Mlp) -> tuple[Array, tuple[Array, Array, Metrics]]:
        mean, std = networks.apply_actor(actor, inputs)
        action, log_prob = networks.sample_action(action_key, mean, std)
        value = valuation.reward_values(reward_params, inputs, action).min(axis=0)
        quantiles = valuation.cost_quantiles(
            cost_params, inputs, action, levels, problem, config
        )
        # The ensemble is averaged before risk is taken: it matters in the dual form.
        average = quantiles.mean(axis=1)
        risk = valuation.risk_to_go(average, weights, context, problem, config)
        penalty = (state.multiplier.value[:, None] * risk).sum(axis=0)
        total = (temperature * log_prob - value + penalty).mean()
        metrics = {"actor/loss": total, "actor/std": std.mean()}
        dead_zone = valuation.dead_zone(average, context, problem, config)
        for m, name in enumerate(problem.names):
            spread = exploration.ensemble_spread(quantiles[m]).mean()
            metrics[f"critic/cost_spread/{name}"] = spread
            if config.risk_form == "dual":
                metrics[f"constraint/dead_zone/{name}"] = dead_zone[m]
        return total, (log_prob, risk, metrics)

    gradient, (log_prob, risk, metrics) = jax.grad(loss, has_aux=True)(
        state.actor.params
    )
    actor = descend(make_optimizers(config).actor, state.actor, gradient)
    metrics["actor/entropy"] = -log_prob.mean()
    return actor, log_prob, valuation.episode_risk(risk, context, config), metrics


def update_temperature(
    state: AgentState, log_prob: Array, problem: Problem, config: AgentConfig
) -> Learned:
    """Move the entropy towards its target."""
    target = config.target_entropy
    excess = log_prob.mean() + (-problem.action_size if target is None else target)

    def loss(log_temperature: Array) -> Array:
        return -jnp.exp(log_temperature) * excess

    gradient = jax.grad(loss)(state.log_temperature.params)
    return descend(make_optimizers(config).temperature, state.log_temperature, gradient)


def update_targets(
    gradient_steps: Int[Array, ""], targets: Any, online: Any, config: AgentConfig
) -> Any:
    """Polyak averaging, every `target_every` gradient steps."""
    due = gradient_steps % config.target_every == 0
    share = jnp.where(due, config.polyak, 0.0)
    return jax.tree.map(lambda t, o: t + share * (o - t), targets, online)


def update_pivot(
    key: Key[Array, ""],
    state: AgentState,
    batch: Transition,
    problem: Problem,
    config: AgentConfig,
) -> AgentState:
    """The dual form's outer step: move the sampler towards better pivots. Eq. (36).

    Critics are frozen; the gradient reaches the pivot directly and through the critics'
    input, not through the actor.
    """
    pivot_key, action_key, level_key = jax.random.split(key, 3)
    batch_size = batch.reward.shape[0]
    uniform = jax.random.uniform(pivot_key, (batch_size, problem.num_constraints))
    levels, weights = valuation.policy_levels(level_key, batch_size, problem, config)

    def loss(params: Array) -> Array:
        pivot = pivots.from_uniform(uniform, params, config.pivot.std)
        _, inputs, _, context = prepare(state, batch, pivot, config)
        mean, std = networks.apply_actor(state.actor.params, inputs)
        action, _ = networks.sample_action(action_key, mean, std)
        action = jax.lax.stop_gradient(action)
        value = valuation.reward_values(
            state.reward_critics.params, inputs, action
        ).min(axis=0)
        quantiles = valuation.cost_quantiles(
            state.cost_critics.params, inputs, action, levels, problem, config
        ).mean(axis=1)
        risk = valuation.risk_to_go(quantiles, weights, context, problem, config)
        starts = multipliers.starts_held(context.accumulated_discount, config)
        risk = valuation.episode_risk(risk, context, config)
        risk = multipliers.mean_risk(risk, starts)
        # Deviates from Eq. (36): the relu of the mean violation, not the mean of the
        # relu, as SRCPO's code has it.
        violation = jnp.maximum(risk - problem.limits, 0).sum()
        return -value.mean() + config.pivot.penalty * violation

    gradient = jax.grad(loss)(state.pivot.params)
    pivot = descend(make_optimizers(config).pivot, state.pivot, gradient)
    return state._replace(pivot=pivot)
