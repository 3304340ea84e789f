"""The dual ("linear") form, in which CVaR is an infimum over a pivot.

At a given pivot, `risk = mean_k relu(q_k - pivot) / tail + pivot` for the quantiles q_k of
the cost to go. The actor and the critics take the pivot as an input. Pivots are drawn from a
distribution, which a separate update, the outer step, moves towards better pivots. In the
episodic mode the pivot is compared with the cost of the whole episode, including the cost
already paid. Otherwise (in the stationary mode) it is compared with the cost to go.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig
from orac.core import lagrange, networks, risk
from orac.core.agent import AgentState, Learner, prepare_batch, reward_values
from orac.core.cost_models import (
    Context,
    CostModel,
    Problem,
    pivot_from_uniform,
    pivot_location,
)
from orac.core.optimizers import apply_gradients
from orac.core.risk_forms.fixed_quantiles import grid_critics, quantile_loss
from orac.core.types import Metrics, Transition


def append_pivot(
    observation: Float[Array, "batch observation"], context: Context
) -> Float[Array, "batch input"]:
    """Return the inputs of actor and critics: the observation and the pivot. Eq. (35)."""
    return jnp.concatenate([observation, context.pivot], axis=-1)


def reached_discount(context: Context) -> Float[Array, " batch"]:
    """Return the discount factor at this step of the episode, bounded away from 0."""
    # Numerics: this discount is a divisor, and it underflows to 0 in episodes of thousands
    # of steps.
    return jnp.maximum(context.accumulated_discount, 1e-6)


def to_remaining_cost(
    value: Float[Array, "constraint #batch"], context: Context, config: AgentConfig
) -> Float[Array, "constraint #batch"]:
    """Convert an episode's pivot or limit to the units of the cost to go from this step.

    If e is the cost paid so far, b the discount reached and z the cost to go, then
    e + b z >= value means z >= (value - e) / b. In the stationary mode the value does not
    change.
    """
    if config.pivot.mode != "episodic":
        return value
    return (value - context.accumulated_cost.T) / reached_discount(context)


def episode_risk(
    risk_to_go: Float[Array, "constraint batch"], context: Context, config: AgentConfig
) -> Float[Array, "constraint batch"]:
    """Return the risk of the whole episode: the inverse of `to_remaining_cost`."""
    if config.pivot.mode != "episodic":
        return risk_to_go
    return context.accumulated_cost.T + reached_discount(context) * risk_to_go


def local_pivot(
    context: Context, problem: Problem, config: AgentConfig
) -> Float[Array, "constraint batch"]:
    """Return the pivot for the cost to go from this step, in critic units."""
    pivot = problem.limits[:, None] * context.pivot.T
    return to_remaining_cost(pivot, context, config)


def risk_to_go(
    quantiles: Float[Array, "constraint batch quantile"],
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, "constraint batch"]:
    """Return the risk of the cost to go, from quantiles averaged over the ensemble."""
    pivot = local_pivot(context, problem, config)
    dual = [
        risk.dual_risk(quantiles[m], pivot[m], risk.dual_tail(constraint.measure))
        for m, constraint in enumerate(problem.constraints)
    ]
    return jnp.stack(dual) if dual else jnp.zeros_like(pivot)


def no_gradient_fraction(
    quantiles: Float[Array, "constraint batch quantile"],
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, " constraint"]:
    """Return the fraction of rows whose quantiles are all below the pivot.

    In these rows the gradient of the risk is zero.
    """
    pivot = local_pivot(context, problem, config)
    return (quantiles < pivot[..., None]).all(axis=-1).mean(axis=-1, dtype=jnp.float32)


def dual_model(problem: Problem, config: AgentConfig) -> CostModel:
    """Return the dual form, for CVaR and the mean."""

    def remaining_limits(context: Context) -> tuple[Array, Array | float]:
        limits = to_remaining_cost(problem.limits[:, None], context, config)
        episodic = config.pivot.mode == "episodic"
        return limits, (reached_discount(context) if episodic else 1.0)

    def metrics(quantiles: Array, context: Context) -> Metrics:
        fractions = no_gradient_fraction(quantiles, context, problem, config)
        names = enumerate(problem.names)
        return {f"constraint/dead_zone/{name}": fractions[m] for m, name in names}

    def pivot_metrics(params: Array) -> Metrics:
        pivots = pivot_location(params) * problem.limits
        names = enumerate(problem.names)
        return {f"constraint/pivot/{name}": pivots[m] for m, name in names}

    input_size = problem.observation_size + problem.num_constraints
    return CostModel(
        network_inputs=append_pivot,
        loss=quantile_loss,
        risk=lambda quantiles, widths, context: risk_to_go(
            quantiles, context, problem, config
        ),
        remaining_limits=remaining_limits,
        episode_risk=partial(episode_risk, config=config),
        evaluation_inputs=pivot_location,
        metrics=metrics,
        pivot_metrics=pivot_metrics,
        outer_step=update_pivot if problem.constraints else None,
        **grid_critics(input_size, config.num_quantiles, problem, config),
    )


def update_pivot(
    key: Key[Array, ""], state: AgentState, batch: Transition, learner: Learner
) -> AgentState:
    """Take an outer step, which moves the distribution to better pivots. Eq. (36).

    The critics do not change. The gradient reaches the pivot directly and through the
    critics' input, but not through the actor.
    """
    problem, config, costs = learner.problem, learner.config, learner.costs
    pivot_key, action_key, risk_key = jax.random.split(key, 3)
    batch_size = batch.reward.shape[0]
    uniform = jax.random.uniform(pivot_key, (batch_size, problem.num_constraints))

    def loss(params: Array) -> Array:
        pivot = pivot_from_uniform(uniform, params, config.pivot.std)
        prepared = prepare_batch(state, batch, pivot, learner)
        inputs, context = prepared.inputs, prepared.context
        mean, std = networks.apply_actor(state.actor.params, inputs)
        action, _ = networks.sample_action(action_key, mean, std)
        action = jax.lax.stop_gradient(action)
        value = reward_values(state.reward_critics.params, inputs, action).min(axis=0)
        cost = costs.policy_quantiles(
            risk_key, state.cost_critics.params, inputs, action
        )
        average = cost.values.mean(axis=1)
        risk = costs.risk(average, cost.fractions.widths, context)
        mask = lagrange.initial_state_mask(context.accumulated_discount, config)
        mean_risk = lagrange.mean_risk(costs.episode_risk(risk, context), mask)
        # Deviates from Eq. (36): this is the relu of the mean violation, as in SRCPO's
        # code, and not the mean of the relu.
        violation = jnp.maximum(mean_risk - problem.limits, 0).sum()
        return -value.mean() + config.pivot.penalty * violation

    gradient = jax.grad(loss)(state.pivot.params)
    pivot = apply_gradients(learner.optimizers.pivot, state.pivot, gradient)
    return state._replace(pivot=pivot)
