"""The learner of all agents: their state, and the functions `init`, `act` and `update`.

| agent               | `risk_form` | `behaviour`  |
|---------------------|-------------|--------------|
| SAC, SAC-Lagrangian | scalar      | actor        |
| WCSAC-IQN           | implicit    | actor        |
| WCSAC-Lin           | dual        | actor        |
| ORAC-IQN            | implicit    | optimistic   |
| ORAC-Lin            | dual        | optimistic   |

SAC has no constraint. WCSAC and ORAC can also have the risk form `quantile`, which the
paper's main text describes.

All agents optimise the Lagrangian of the constrained problem (1): the multiplier rises while
the risk of cost is above its limit, and the actor's loss contains the multiplier times the
risk. `update` has the form `(key, state, ...) -> (state, metrics)`. All functions are pure,
and those that draw random numbers take the key as their first argument. They do not use
environments or files, and do not read the time. (The field `Steering.clock` is not a time,
but the progress of schedules.) `learner.costs` is a `CostModel`, which computes the risk
from the cost critics.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import AgentConfig
from orac.core import critics, exploration, lagrange, networks, normalization
from orac.core.cost_models import (
    Context,
    CostModel,
    Problem,
    pivot_location,
    sample_pivot,
)
from orac.core.encoders import init_encoded, init_ensemble
from orac.core.lagrange import Multiplier
from orac.core.normalization import ObservationStats
from orac.core.optimizers import Optimizers, ParamState, apply_gradients, init_params
from orac.core.types import Metrics, Transition


class AgentState(NamedTuple):
    """The state of the learner. It is saved in checkpoints."""

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
    actor_average: Any = ()
    """Averaged parameters of the actor, which the deployed policy uses. Empty if it uses the
    actor itself."""
    steering: Any = ()
    """A `Steering` if the multiplier follows episodes, otherwise empty."""
    centre: Any = ()
    """A `Centre` if rewards and costs are centred, otherwise empty."""
    return_stats: Any = ()
    """Statistics of episode returns, by which rewards are scaled; empty if
    `normalize_rewards` is off."""


class Steering(NamedTuple):
    """The values, besides the multipliers, that change with the measured risk of episodes."""

    clock: Float[Array, ""]
    """Progress of the schedules of entropy, learning rates and shift radius: a number from 0
    to 1, not a time."""
    radius_factor: Float[Array, ""]
    """Factor on the shift radius; a restart of the actor doubles it."""
    samples: Bool[Array, ""]
    """Whether the deployed policy samples its actions instead of using their mean."""


class Centre(NamedTuple):
    """Mean reward and mean cost of a step during the warm-up."""

    reward: Float[Array, ""]
    cost: Float[Array, " constraint"]


class PolicyState(NamedTuple):
    """The parameters that are needed to evaluate or export a policy."""

    actor: networks.Network
    observation_stats: ObservationStats
    pivot: Float[Array, " constraint"]


class Learner(NamedTuple):
    """The problem, the config and the functions of an agent, which stay fixed in training."""

    problem: Problem
    config: AgentConfig
    costs: CostModel
    optimizers: Optimizers


class PreparedBatch(NamedTuple):
    """A batch with scaled rewards and costs, its context, and the networks' inputs."""

    transition: Transition
    context: Context
    inputs: Float[Array, "batch input"]
    next_inputs: Float[Array, "batch input"]


def init(key: Key[Array, ""], learner: Learner) -> AgentState:
    """Return an agent with new networks. The target critics are copies of the critics."""
    problem, config, optimizers = learner.problem, learner.config, learner.optimizers
    actor_key, reward_key, cost_key = jax.random.split(key, 3)
    inputs, hidden = learner.costs.input_size, config.hidden_sizes

    def init_actor(key: Array, size: int) -> networks.Mlp:
        # The outputs are the mean and the standard deviation of each action dimension.
        sizes = (size, *hidden, 2 * problem.action_size)
        return networks.init_mlp(key, sizes, config.layer_norm)

    def init_critic(key: Array, size: int) -> networks.Mlp:
        return networks.init_mlp(
            key, (size, *hidden, 1), config.critics_have_layer_norm
        )

    actor = init_encoded(actor_key, inputs, init_actor, problem, config)
    critic_inputs = inputs + problem.action_size
    reward = init_ensemble(
        jax.random.split(reward_key, 2), critic_inputs, init_critic, problem, config
    )
    cost = learner.costs.init(cost_key)
    temperature = jnp.log(jnp.float32(config.initial_temperature))
    count = problem.num_constraints
    steering: Any = ()
    if config.follows_episodes:
        samples = jnp.asarray(config.deployed_action == "sample")
        steering = Steering(jnp.float32(0), jnp.float32(1), samples)
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
        actor_average=jax.tree.map(jnp.copy, actor) if config.actor_average else (),
        steering=steering,
        centre=Centre(jnp.float32(0), jnp.zeros(count)) if config.centre else (),
        return_stats=normalization.init(1) if config.normalize_rewards else (),
    )


def draw_pivots(
    key: Key[Array, ""],
    params: Float[Array, " constraint"],
    learner: Learner,
    batch: int,
) -> Float[Array, "batch constraint"]:
    """Draw one pivot per row and constraint.

    If the networks do not use pivots, all are 0.5.
    """
    if learner.costs.outer_step is None:
        return jnp.full((batch, params.shape[0]), 0.5, jnp.float32)
    return sample_pivot(key, params, learner.config.pivot.std, batch)


def restart_actor(
    key: Key[Array, ""], state: AgentState, learner: Learner
) -> AgentState:
    """Replace the actor, its average and the temperature by new ones.

    The schedules start again, and the shift radius is doubled. Critics, multipliers and
    statistics do not change.
    """
    new = init(key, learner)
    steering = state.steering._replace(
        clock=jnp.float32(0), radius_factor=2 * state.steering.radius_factor
    )
    return state._replace(
        actor=new.actor,
        actor_average=new.actor_average,
        log_temperature=new.log_temperature,
        steering=steering,
    )


def act(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    context: Context,
    shift_radius: Float[Array, ""] | float,
    learner: Learner,
) -> tuple[Float[Array, "batch action"], Metrics]:
    """Sample actions of the behaviour policy, which is the actor if `shift_radius` is 0.

    `shift_radius` may be a traced value. If it is 0, a separate branch runs, which computes
    no shift. Adding a shift of zero would give the same action up to rounding, but XLA would
    fuse that program differently, so that ORAC at radius 0 and WCSAC would differ in the
    last bits.
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

    if learner.config.behaviour != "optimistic":
        return plain(), {}
    if learner.config.follows_episodes:
        shift_radius = shift_radius * state.steering.radius_factor
        if learner.config.exploration.decay_when_feasible:
            shift_radius = shift_radius * (1 - state.steering.clock)
    return jax.lax.cond(
        jnp.asarray(shift_radius) > 0,
        optimistic,
        lambda: (plain(), no_shift_metrics(learner)),
    )


def no_shift_metrics(learner: Learner) -> Metrics:
    """Return the metrics of `act` if the mean is not shifted.

    All are 0. For an agent that never shifts the mean, there are none.
    """
    if learner.config.behaviour != "optimistic":
        return {}
    multipliers = (f"explore/multiplier/{name}" for name in learner.problem.names)
    return dict.fromkeys(("explore/shift_norm", *multipliers), jnp.zeros(()))


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
    if learner.config.centre:
        limits = limits - centred_value(state, learner)[:, None]
    return exploration.shift_policy(
        mean, std, bounds, state.multiplier.value, limits, shift_radius, unit
    )


def deployed_action(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    learner: Learner,
) -> Float[Array, "batch action"]:
    """Return the deployed policy's action.

    It is a sample if `state.steering.samples` is true, and otherwise the mean.
    """
    mean, std = policy(deployed_policy(state), observation, learner)
    sampled = networks.sample_action(key, mean, std)[0]
    return jnp.where(state.steering.samples, sampled, jnp.tanh(mean))


def reward_values(
    members: Any,
    inputs: Float[Array, "batch input"],
    action: Float[Array, "batch action"],
) -> Float[Array, "ensemble batch"]:
    """Return the value that each reward critic predicts for these inputs and actions."""
    rows = jnp.concatenate([inputs, action], axis=-1)
    return networks.apply_ensemble(members, rows)[..., 0]


def deployed_policy(state: AgentState) -> PolicyState:
    """Return the deployed policy: the current policy without exploration.

    It uses the averaged actor if there is one, and otherwise the actor itself.
    """
    actor = state.actor_average or state.actor.params
    return PolicyState(actor, state.observation_stats, state.pivot.params)


def policy(
    state: PolicyState, observation: Float[Array, "batch observation"], learner: Learner
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Return a policy's mean and standard deviation before the tanh, without a shift."""
    scaled = normalization.scale(state.observation_stats, observation, learner.config)
    context = Context.start(scaled.shape[0], pivot_location(state.pivot))
    inputs = learner.costs.network_inputs(scaled, context)
    return networks.apply_actor(state.actor, inputs)


def mean_action(
    state: PolicyState, observation: Float[Array, "batch observation"], learner: Learner
) -> Float[Array, "batch action"]:
    """Return the policy's mean action."""
    return jnp.tanh(policy(state, observation, learner)[0])


def sampled_action(
    key: Key[Array, ""],
    state: PolicyState,
    observation: Float[Array, "batch observation"],
    learner: Learner,
) -> Float[Array, "batch action"]:
    """Return an action sampled from the policy."""
    mean, std = policy(state, observation, learner)
    return networks.sample_action(key, mean, std)[0]


def update(
    key: Key[Array, ""],
    state: AgentState,
    batch: Transition,
    learner: Learner,
    only_critics: bool = False,
) -> tuple[AgentState, Metrics]:
    """Take one gradient step towards the best policy within the limits. Eq. (1).

    This updates the critics, the target critics, the actor, the temperature, multipliers that
    follow the critics, and the averaged actor. If `only_critics` is true, it updates only the
    critics and the target critics. The training loop updates the pivot distribution
    (`CostModel.outer_step`), the running statistics, and multipliers that follow episodes.
    """
    config = learner.config
    pivot_key, critic_key, actor_key = jax.random.split(key, 3)
    pivot = draw_pivots(pivot_key, state.pivot.params, learner, batch.reward.shape[0])
    prepared = prepare_batch(state, batch, pivot, learner)
    reward_critics, cost_critics, critic_metrics = update_critics(
        critic_key, state, prepared, learner
    )
    online = (reward_critics.params, cost_critics.params)
    gradient_steps = state.gradient_steps + 1
    target_reward, target_cost = update_targets(
        gradient_steps,
        (state.target_reward_critics, state.target_cost_critics),
        online,
        config,
    )
    new_state = state._replace(
        reward_critics=reward_critics,
        cost_critics=cost_critics,
        target_reward_critics=target_reward,
        target_cost_critics=target_cost,
        gradient_steps=gradient_steps,
    )
    if only_critics:
        return new_state, critic_metrics
    actor, log_prob, risk, actor_metrics = update_actor(
        actor_key, state, online, prepared, learner
    )
    log_temperature = update_temperature(state, log_prob, learner)
    mask = lagrange.initial_state_mask(prepared.context.accumulated_discount, config)
    multiplier = state.multiplier
    if config.centre:
        risk = risk + centred_value(state, learner)[:, None]
    if not config.follows_episodes:
        multiplier = lagrange.update(
            multiplier,
            risk,
            learner.problem.limits,
            config,
            learner.optimizers.multiplier,
            mask,
        )
    new_state = new_state._replace(
        actor=actor,
        actor_average=average_actor(state.actor_average, actor.params, config),
        log_temperature=log_temperature,
        multiplier=multiplier,
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
    """Scale a batch and compute the networks' inputs, with the same pivot at s and s'.

    A stored transition is valid for any pivot, because the pivot affects neither the
    dynamics nor the reward nor the cost.
    """
    context = Context(pivot, batch.accumulated_cost, batch.accumulated_discount)
    inputs, next_inputs = (
        learner.costs.network_inputs(
            normalization.scale(state.observation_stats, observation, learner.config),
            context,
        )
        for observation in (batch.observation, batch.next_observation)
    )
    reward, cost, config = batch.reward, batch.cost, learner.config
    if config.centre:
        reward = reward - state.centre.reward * discounted_steps(batch, config.discount)
        cost = (
            cost
            - state.centre.cost * discounted_steps(batch, config.cost_discount)[:, None]
        )
    if learner.problem.cost_units is not None:
        cost = cost / learner.problem.units
    batch = batch._replace(reward=reward * reward_scale(state, learner), cost=cost)
    return PreparedBatch(batch, context, inputs, next_inputs)


def centred_value(state: AgentState, learner: Learner) -> Float[Array, " constraint"]:
    """Return the cost value that centring removes from the critics, in critic units.

    This value is the discounted sum of the mean cost over all future steps. If a constant is
    added to a random cost, every risk measure of this package rises by the same constant. So
    this value is added to a risk, or subtracted from a limit, before the two are compared.
    """
    mean_cost = state.centre.cost / learner.problem.units
    return mean_cost / (1 - learner.config.cost_discount)


def discounted_steps(batch: Transition, discount: float) -> Float[Array, " batch"]:
    """Return the sum of discount**i over the n steps of each row of a batch."""
    if isinstance(batch.steps, tuple):
        return jnp.ones_like(batch.reward)
    if discount == 1:
        return batch.steps.astype(jnp.float32)
    return (1 - discount**batch.steps) / (1 - discount)


def bootstrap_discount(batch: Transition, discount: float) -> Array | float:
    """Return discount**n, the factor on the value after the n steps of each row."""
    return discount if isinstance(batch.steps, tuple) else discount**batch.steps


def reward_scale(state: AgentState, learner: Learner) -> Array | float:
    """Return the factor on rewards.

    It is the config's `reward_scale`. If rewards are normalised, this number is divided by
    the standard deviation of the returns, converted to a discounted sum.
    """
    config = learner.config
    if not config.normalize_rewards:
        return config.reward_scale
    spread = jnp.sqrt(normalization.safe_variance(state.return_stats)[0])
    # Numerics: if all returns are equal, they contain no information about the scale.
    unit = jnp.where(spread > 1e-6, spread, 1.0) * learner.problem.horizon_share
    return config.reward_scale / unit


def average_actor(average: Any, actor: networks.Network, config: AgentConfig) -> Any:
    """Move the averaged actor towards the actor; return () if there is no average."""
    share = 1 - config.actor_average**config.actor_every
    return (
        jax.tree.map(lambda a, new: a + share * (new - a), average, actor)
        if average
        else ()
    )


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
        bootstrap_discount(transition, config.discount),
    )
    following = costs.critic_quantiles(
        target_key, state.target_cost_critics, next_inputs, next_action
    )
    cost_targets = following._replace(
        values=critics.cost_targets(
            transition.cost.T,
            ends,
            following.values,
            bootstrap_discount(transition, config.cost_discount),
        )
    )
    scale = reward_scale(state, learner)

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
            "critic/reward_value": values.mean() / scale,
            "critic/reward_spread": spread / scale,
        }
        return reward_loss + cost_loss, metrics

    params = (state.reward_critics.params, state.cost_critics.params)
    gradients, metrics = jax.grad(loss, has_aux=True)(params)
    optimizers, factor = learner.optimizers, learning_rate_factor(state, config)
    return (
        apply_gradients(
            optimizers.reward_critics, state.reward_critics, gradients[0], factor
        ),
        apply_gradients(
            optimizers.cost_critics, state.cost_critics, gradients[1], factor
        ),
        metrics,
    )


def learning_rate_factor(
    state: AgentState, config: AgentConfig
) -> Float[Array, ""] | None:
    """Return the schedule's factor on the networks' learning rates.

    The result is None if the learning rates are constant.
    """
    if not config.follows_episodes or config.final_learning_rate == 1:
        return None
    return 1 - (1 - config.final_learning_rate) * state.steering.clock


def update_actor(
    key: Key[Array, ""],
    state: AgentState,
    critic_params: tuple[Any, Any],
    batch: PreparedBatch,
    learner: Learner,
) -> tuple[ParamState, Array, Float[Array, "constraint batch"], Metrics]:
    """Take one step on the Lagrangian: entropy, reward, and the risk of cost. Eq. (7).

    This is (35) in the dual form, and (2) if the risk measure is the mean. Returns the
    actor, the log-probabilities and risks of actions sampled from the policy, and metrics.
    From these actions, `update` computes the new temperature and the new values of
    multipliers that follow the critics. Actions from the replay cannot be used for this,
    because they include exploration.
    """
    costs, inputs, context = learner.costs, batch.inputs, batch.context
    action_key, risk_key = jax.random.split(key)
    reward_params, cost_params = critic_params
    temperature = jnp.exp(state.log_temperature.params)

    def loss(actor: networks.Network) -> tuple[Array, tuple[Array, Array, Metrics]]:
        mean, std = networks.apply_actor(actor, inputs)
        action, log_prob = networks.sample_action(action_key, mean, std)
        value = reward_values(reward_params, inputs, action).min(axis=0)
        cost = costs.policy_quantiles(risk_key, cost_params, inputs, action)
        # The ensemble is averaged first. The dual risk is not linear, so the order matters.
        average = cost.values.mean(axis=1)
        risk = costs.risk(average, cost.fractions.widths, context)
        penalty = (state.multiplier.value[:, None] * risk).sum(axis=0)
        if learner.config.divide_by_multipliers:
            # Only this part is divided: dividing the whole loss would have no effect under
            # Adam.
            objective = (value - penalty) / (1 + state.multiplier.value.sum())
            total = (temperature * log_prob - objective).mean()
        else:
            total = (temperature * log_prob - value + penalty).mean()
        metrics = {"actor/loss": total, "actor/std": std.mean()}
        for m, name in enumerate(learner.problem.names):
            spread = exploration.ensemble_spread(cost.values[m]).mean()
            metrics[f"critic/cost_spread/{name}"] = spread
        return total, (log_prob, risk, metrics | costs.metrics(average, context))

    gradient, (log_prob, risk, metrics) = jax.grad(loss, has_aux=True)(
        state.actor.params
    )
    factor = learning_rate_factor(state, learner.config)
    actor = apply_gradients(learner.optimizers.actor, state.actor, gradient, factor)
    metrics["actor/entropy"] = -log_prob.mean()
    return actor, log_prob, costs.episode_risk(risk, context), metrics


def update_temperature(
    state: AgentState, log_prob: Float[Array, " batch"], learner: Learner
) -> ParamState:
    """Update the temperature, which moves the policy's entropy towards its target."""
    target = learner.config.target_entropy
    target = -learner.problem.action_size if target is None else target
    final = learner.config.final_target_entropy
    if final is not None and learner.config.follows_episodes:
        # The target entropy reaches its final value at 80 % of the schedule, earlier than
        # the learning rates.
        target = target + (final - target) * jnp.minimum(state.steering.clock / 0.8, 1)
    # The entropy is -log_prob.
    missing_entropy = log_prob.mean() + target

    def loss(log_temperature: Array) -> Array:
        return -jnp.exp(log_temperature) * missing_entropy

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
    """Return the multiplier, the mean risk, the limit and any pivot of every constraint."""
    limits = learner.problem.limits
    mean_risk = risk.mean(axis=1)
    if learner.problem.cost_units is not None:
        limits, mean_risk = (x * learner.problem.units for x in (limits, mean_risk))
    config = learner.config
    if config.multiplier.states == "starts" and not config.follows_episodes:
        # A batch may contain no initial state. Then the last value is logged again.
        mean_risk = limits + state.multiplier.previous_error
    metrics: Metrics = {}
    for m, name in enumerate(learner.problem.names):
        metrics[f"constraint/multiplier/{name}"] = state.multiplier.value[m]
        metrics[f"constraint/risk/{name}"] = mean_risk[m]
        metrics[f"constraint/limit/{name}"] = limits[m]
    return {**metrics, **learner.costs.pivot_metrics(state.pivot.params)}
