"""One learner, six agents: state, `init`, `act` and `update`.

| agent           | `risk_form` | `behaviour`  |
|-----------------|-------------|--------------|
| SAC             | scalar      | actor        | (no constraint)
| SAC-Lagrangian  | scalar      | actor        |
| WCSAC-IQN       | implicit    | actor        |
| WCSAC-Lin       | dual        | actor        |
| ORAC-IQN        | implicit    | optimistic   |
| ORAC-Lin        | dual        | optimistic   |

`risk_form: quantile` is the form of the paper's main text, for WCSAC and ORAC.

All agents solve the Lagrangian of the constrained problem (1): the multiplier rises while
the risk of cost is above its limit, and the actor pays the multiplier times the risk. The
functions are pure, `(key, state, ...) -> (state, metrics)`, and do not touch environments,
files or clocks. `learner.costs`, a `CostModel`, computes risk from the cost critics.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from orac.config.schema import AgentConfig
from orac.core import critics, exploration, lagrange, networks, normalization
from orac.core.cost_models import Context, CostModel, Problem, mean_pivot, sample_pivot
from orac.core.lagrange import Multiplier
from orac.core.normalization import ObservationStats
from orac.core.optimizers import Optimizers, ParamState, apply_gradients, init_params
from orac.core.types import Metrics, Transition


class AgentState(NamedTuple):
    """Everything that changes while an agent learns. It is saved in checkpoints."""

    actor: ParamState
    reward_critics: ParamState
    cost_critics: ParamState
    target_reward_critics: Any
    target_cost_critics: Any
    log_temperature: ParamState
    multiplier: Multiplier
    pivot: ParamState
    observation_stats: ObservationStats
    gradient_steps: Int[Array, ""]


class Learner(NamedTuple):
    """Everything about an agent that stays fixed while it learns."""

    problem: Problem
    config: AgentConfig
    costs: CostModel
    optimizers: Optimizers


class PreparedBatch(NamedTuple):
    """A batch with scaled rewards, its contexts, and the networks' inputs."""

    transition: Transition
    context: Context
    inputs: Float[Array, "batch input"]
    next_inputs: Float[Array, "batch input"]


def init(key: Key[Array, ""], learner: Learner) -> AgentState:
    """Return an agent with new networks; target critics start as copies."""
    problem, config, optimizers = learner.problem, learner.config, learner.optimizers
    actor_key, reward_key, cost_key = jax.random.split(key, 3)
    inputs = learner.costs.input_size
    actor = networks.init_actor(
        actor_key, inputs, problem.action_size, config.hidden_sizes, config.layer_norm
    )
    sizes = (inputs + problem.action_size, *config.hidden_sizes, 1)
    reward_keys = jax.random.split(reward_key, 2)
    reward = tuple(networks.init_mlp(k, sizes, config.layer_norm) for k in reward_keys)
    cost = learner.costs.init(cost_key)
    temperature = jnp.log(jnp.float32(config.initial_temperature))
    count = problem.num_constraints
    return AgentState(
        actor=init_params(actor, optimizers.actor),
        reward_critics=init_params(reward, optimizers.reward_critics),
        cost_critics=init_params(cost, optimizers.cost_critics),
        target_reward_critics=jax.tree.map(jnp.copy, reward),
        target_cost_critics=jax.tree.map(jnp.copy, cost),
        log_temperature=init_params(temperature, optimizers.temperature),
        multiplier=lagrange.init(count, config, optimizers.multiplier),
        pivot=init_params(jnp.zeros(count), optimizers.pivot),
        observation_stats=normalization.init(problem.observation_size),
        gradient_steps=jnp.int32(0),
    )


def act(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    context: Context,
    shift_radius: Float[Array, ""] | float,
    learner: Learner,
) -> tuple[Float[Array, "batch action"], Metrics]:
    """Sample the behaviour policy. `shift_radius` is traced; 0 gives the plain actor.

    At 0 the shift is not computed at all, in a separate branch. Adding a shift of zero
    would give the actor too, but XLA would fuse that program differently, so that ORAC at
    radius 0 and WCSAC would differ in the last bits.
    """
    scaled = normalization.scale(state.observation_stats, observation, learner.config)
    inputs = learner.costs.network_inputs(scaled, context)

    def plain() -> Array:
        mean, std = networks.apply_actor(state.actor.params, inputs)
        return networks.sample_action(key, mean, std)[0]

    def optimistic() -> tuple[Array, Metrics]:
        mean, std = networks.apply_actor(state.actor.params, inputs)
        shift = shift_mean(state, mean, std, inputs, context, shift_radius, learner)
        metrics = {"explore/shift_norm": shift.length.mean()}
        weights = shift.exploration_multiplier.mean(axis=1)
        for m, name in enumerate(learner.problem.names):
            metrics[f"explore/multiplier/{name}"] = weights[m]
        return networks.sample_action(key, shift.mean, std)[0], metrics

    def unshifted() -> tuple[Array, Metrics]:
        shapes = jax.eval_shape(optimistic)[1]
        return plain(), jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    if learner.config.behaviour != "optimistic":
        return plain(), {}
    return jax.lax.cond(jnp.asarray(shift_radius) > 0, optimistic, unshifted)


def shift_mean(
    state: AgentState,
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
    inputs: Float[Array, "batch input"],
    context: Context,
    shift_radius: Float[Array, ""] | float,
    learner: Learner,
) -> exploration.Shift:
    """Shift the policy's mean, using this agent's critics, multipliers and limits."""
    costs, optimism = learner.costs, learner.config.exploration

    def bounds(action: Float[Array, "batch action"]) -> tuple[Array, Array]:
        values = reward_values(state.reward_critics.params, inputs, action)
        cost = costs.policy_quantiles(None, state.cost_critics.params, inputs, action)
        optimistic = exploration.optimistic_quantiles(
            cost.values.swapaxes(0, 1), optimism.cost_optimism
        )
        return (
            exploration.reward_upper_bound(values, optimism.reward_optimism),
            costs.risk(optimistic, cost.fractions.widths, context),
        )

    limits, unit = costs.remaining_limits(context)
    return exploration.shift_policy(
        mean, std, bounds, state.multiplier.value, limits, shift_radius, unit
    )


def reward_values(
    members: Any,
    inputs: Float[Array, "batch input"],
    action: Float[Array, "batch action"],
) -> Float[Array, "ensemble batch"]:
    """Return each reward critic's value of the inputs and actions."""
    rows = jnp.concatenate([inputs, action], axis=-1)
    return networks.apply_ensemble(members, rows)[..., 0]


def policy(
    state: AgentState, observation: Float[Array, "batch observation"], learner: Learner
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Return mean and standard deviation of the unshifted actor, for evaluations."""
    scaled = normalization.scale(state.observation_stats, observation, learner.config)
    context = Context.start(scaled.shape[0], mean_pivot(state.pivot.params))
    inputs = learner.costs.network_inputs(scaled, context)
    return networks.apply_actor(state.actor.params, inputs)


def mean_action(
    state: AgentState, observation: Float[Array, "batch observation"], learner: Learner
) -> Float[Array, "batch action"]:
    """Return the actor's mean action."""
    return jnp.tanh(policy(state, observation, learner)[0])


def sampled_action(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    learner: Learner,
) -> Float[Array, "batch action"]:
    """Return an action sampled from the actor."""
    mean, std = policy(state, observation, learner)
    return networks.sample_action(key, mean, std)[0]


def update(
    key: Key[Array, ""], state: AgentState, batch: Transition, learner: Learner
) -> tuple[AgentState, Metrics]:
    """Take one gradient step towards the best policy within its limits. Eq. (1).

    Updates critics, actor, temperature, multipliers and target critics, in this order.
    The pivots (`CostModel.outer_step`) and the observation statistics are updated by the
    training loop.
    """
    config = learner.config
    pivot_key, critic_key, actor_key = jax.random.split(key, 3)
    pivot = sample_pivot(
        pivot_key, state.pivot.params, config.pivot.std, batch.reward.shape[0]
    )
    prepared = prepare_batch(state, batch, pivot, learner)
    reward_critics, cost_critics, critic_metrics = update_critics(
        critic_key, state, prepared, learner
    )
    online = (reward_critics.params, cost_critics.params)
    actor, log_prob, risk, actor_metrics = update_actor(
        actor_key, state, online, prepared, learner
    )
    log_temperature = update_temperature(state, log_prob, learner)
    mask = lagrange.initial_state_mask(prepared.context.accumulated_discount, config)
    multiplier = lagrange.update(
        state.multiplier,
        risk,
        learner.problem.limits,
        config,
        learner.optimizers.multiplier,
        mask,
    )
    gradient_steps = state.gradient_steps + 1
    target_reward, target_cost = update_targets(
        gradient_steps,
        (state.target_reward_critics, state.target_cost_critics),
        online,
        config,
    )
    new_state = state._replace(
        actor=actor,
        reward_critics=reward_critics,
        cost_critics=cost_critics,
        target_reward_critics=target_reward,
        target_cost_critics=target_cost,
        log_temperature=log_temperature,
        multiplier=multiplier,
        gradient_steps=gradient_steps,
    )
    metrics = {
        **critic_metrics,
        **actor_metrics,
        "actor/temperature": jnp.exp(log_temperature.params),
        **constraint_metrics(new_state, risk, learner),
    }
    return new_state, metrics


def prepare_batch(
    state: AgentState,
    batch: Transition,
    pivot: Float[Array, "batch constraint"],
    learner: Learner,
) -> PreparedBatch:
    """Scale rewards and observations, and use the same new pivot at s and s'.

    Relabelling with a new pivot is sound because the pivot affects neither the dynamics
    nor the reward nor the cost.
    """
    context = Context(pivot, batch.accumulated_cost, batch.accumulated_discount)
    inputs, next_inputs = (
        learner.costs.network_inputs(
            normalization.scale(state.observation_stats, observation, learner.config),
            context,
        )
        for observation in (batch.observation, batch.next_observation)
    )
    batch = batch._replace(reward=batch.reward * learner.config.reward_scale)
    return PreparedBatch(batch, context, inputs, next_inputs)


def update_critics(
    key: Key[Array, ""], state: AgentState, batch: PreparedBatch, learner: Learner
) -> tuple[ParamState, ParamState, Metrics]:
    """Take one gradient step of the reward critics and of the cost critics."""
    config, costs = learner.config, learner.costs
    action_key, target_key, loss_key = jax.random.split(key, 3)
    transition, inputs, next_inputs = batch.transition, batch.inputs, batch.next_inputs
    ends = transition.terminated
    if not config.bootstrap_on_truncation:
        ends = ends | transition.truncated
    mean, std = networks.apply_actor(state.actor.params, next_inputs)
    next_action, next_log_prob = networks.sample_action(action_key, mean, std)
    reward_target = critics.reward_target(
        transition.reward,
        ends,
        reward_values(state.target_reward_critics, next_inputs, next_action),
        next_log_prob,
        jnp.exp(state.log_temperature.params),
        config.discount,
    )
    following = costs.critic_quantiles(
        target_key, state.target_cost_critics, next_inputs, next_action
    )
    cost_targets = following._replace(
        values=critics.cost_targets(
            transition.cost.T, ends, following.values, config.cost_discount
        )
    )

    def loss(params: tuple[Any, Any]) -> tuple[Array, Metrics]:
        reward_params, cost_params = params
        values = reward_values(reward_params, inputs, transition.action)
        predicted = costs.critic_quantiles(
            loss_key, cost_params, inputs, transition.action
        )
        reward_loss = critics.squared_loss(values, reward_target)
        cost_loss = costs.loss(predicted, cost_targets, config.kappa)
        spread = exploration.ensemble_spread(values).mean()
        metrics = {
            "critic/reward_loss": reward_loss,
            "critic/cost_loss": cost_loss,
            "critic/reward_value": values.mean() / config.reward_scale,
            "critic/reward_spread": spread / config.reward_scale,
        }
        return reward_loss + cost_loss, metrics

    params = (state.reward_critics.params, state.cost_critics.params)
    gradients, metrics = jax.grad(loss, has_aux=True)(params)
    optimizers = learner.optimizers
    return (
        apply_gradients(optimizers.reward_critics, state.reward_critics, gradients[0]),
        apply_gradients(optimizers.cost_critics, state.cost_critics, gradients[1]),
        metrics,
    )


def update_actor(
    key: Key[Array, ""],
    state: AgentState,
    critic_params: tuple[Any, Any],
    batch: PreparedBatch,
    learner: Learner,
) -> tuple[ParamState, Array, Float[Array, "constraint batch"], Metrics]:
    """Take one step on the Lagrangian: entropy, reward, and the risk of cost. Eq. (7).

    It is (35) in the dual form, and (2) with the mean as the risk measure. Returns the
    actor, and the log-probabilities and risks at fresh actions of the policy. Temperature
    and multipliers are updated from these, because actions in the replay include
    exploration.
    """
    costs, inputs, context = learner.costs, batch.inputs, batch.context
    action_key, risk_key = jax.random.split(key)
    reward_params, cost_params = critic_params
    temperature = jnp.exp(state.log_temperature.params)

    def loss(actor: networks.Mlp) -> tuple[Array, tuple[Array, Array, Metrics]]:
        mean, std = networks.apply_actor(actor, inputs)
        action, log_prob = networks.sample_action(action_key, mean, std)
        value = reward_values(reward_params, inputs, action).min(axis=0)
        cost = costs.policy_quantiles(risk_key, cost_params, inputs, action)
        # Average the ensemble first: the dual risk is not linear, so the order matters.
        average = cost.values.mean(axis=1)
        risk = costs.risk(average, cost.fractions.widths, context)
        penalty = (state.multiplier.value[:, None] * risk).sum(axis=0)
        total = (temperature * log_prob - value + penalty).mean()
        metrics = {"actor/loss": total, "actor/std": std.mean()}
        for m, name in enumerate(learner.problem.names):
            spread = exploration.ensemble_spread(cost.values[m]).mean()
            metrics[f"critic/cost_spread/{name}"] = spread
        return total, (log_prob, risk, metrics | costs.metrics(average, context))

    gradient, (log_prob, risk, metrics) = jax.grad(loss, has_aux=True)(
        state.actor.params
    )
    actor = apply_gradients(learner.optimizers.actor, state.actor, gradient)
    metrics["actor/entropy"] = -log_prob.mean()
    return actor, log_prob, costs.episode_risk(risk, context), metrics


def update_temperature(
    state: AgentState, log_prob: Float[Array, " batch"], learner: Learner
) -> ParamState:
    """Move the entropy towards its target."""
    target = learner.config.target_entropy
    target = -learner.problem.action_size if target is None else target
    excess = log_prob.mean() + target

    def loss(log_temperature: Array) -> Array:
        return -jnp.exp(log_temperature) * excess

    gradient = jax.grad(loss)(state.log_temperature.params)
    return apply_gradients(
        learner.optimizers.temperature, state.log_temperature, gradient
    )


def update_targets(
    gradient_steps: Int[Array, ""], targets: Any, online: Any, config: AgentConfig
) -> Any:
    """Move the target critics by Polyak averaging, every `target_every` steps."""
    due = gradient_steps % config.target_every == 0
    share = jnp.where(due, config.polyak, 0.0)
    return jax.tree.map(lambda t, o: t + share * (o - t), targets, online)


def constraint_metrics(
    state: AgentState, risk: Float[Array, "constraint batch"], learner: Learner
) -> Metrics:
    """Return multiplier, mean risk and limit of every constraint, for the log."""
    limits = learner.problem.limits
    mean_risk = risk.mean(axis=1)
    if learner.config.multiplier.states == "starts":
        # A batch may hold no initial state; then the last value seen is logged again.
        mean_risk = limits + state.multiplier.previous_error
    metrics: Metrics = {}
    for m, name in enumerate(learner.problem.names):
        metrics[f"constraint/multiplier/{name}"] = state.multiplier.value[m]
        metrics[f"constraint/risk/{name}"] = mean_risk[m]
        metrics[f"constraint/limit/{name}"] = limits[m]
    return {**metrics, **learner.costs.pivot_metrics(state.pivot.params)}
