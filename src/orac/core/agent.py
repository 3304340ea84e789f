"""One learner, six agents: state, `init`, `act`, `update`.

| agent           | `risk_form` | `behaviour`  |
|-----------------|-------------|--------------|
| SAC             | scalar      | actor        | (no constraint)
| SAC-Lagrangian  | scalar      | actor        |
| WCSAC-IQN       | implicit    | actor        |
| WCSAC-Lin       | dual        | actor        |
| ORAC-IQN        | implicit    | optimistic   |
| ORAC-Lin        | dual        | optimistic   |

All solve the Lagrangian of the constrained problem (1): the multiplier rises while the
risk of cost is above its limit, and the actor pays it. Pure functions of what they are
given, `(key, state, ...) -> (state, metrics)`; nothing here knows of environments,
files or time. The parts of an update are in `learning.py`; how values are read off
critics, in `valuation.py`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig
from orac.core import cost_models as valuation
from orac.core import exploration, learning, networks, pivots
from orac.core import lagrange as multipliers
from orac.core import normalization as observations
from orac.core.agent_state import AgentState
from orac.core.cost_models import Context, Problem
from orac.core.optimizers import learned, make_optimizers
from orac.core.types import Metrics, Transition


def init(key: Key[Array, ""], problem: Problem, config: AgentConfig) -> AgentState:
    """Fresh networks; targets start as copies of the critics they follow."""
    actor_key, reward_key, cost_key = jax.random.split(key, 3)
    optimizers = make_optimizers(config)
    count = problem.num_constraints
    actor = networks.init_actor(
        actor_key,
        valuation.input_size(problem, config),
        problem.action_size,
        config.hidden_sizes,
        config.layer_norm,
    )
    reward = valuation.init_reward_critics(reward_key, problem, config)
    cost = valuation.init_cost_critics(cost_key, problem, config)
    return AgentState(
        actor=learned(actor, optimizers.actor),
        reward_critics=learned(reward, optimizers.reward_critics),
        cost_critics=learned(cost, optimizers.cost_critics),
        target_reward_critics=jax.tree.map(jnp.copy, reward),
        target_cost_critics=jax.tree.map(jnp.copy, cost),
        log_temperature=learned(
            jnp.log(jnp.float32(config.initial_temperature)), optimizers.temperature
        ),
        multiplier=multipliers.init(count, config),
        pivot=learned(jnp.zeros(count), optimizers.pivot),
        observation_stats=observations.init(problem.observation_size),
        gradient_steps=jnp.int32(0),
    )


def observe(
    state: AgentState, observation: Float[Array, "batch observation"]
) -> AgentState:
    """Take observations into the running statistics."""
    stats = observations.observe(state.observation_stats, observation)
    return state._replace(observation_stats=stats)


def act(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    context: Context,
    shift_radius: Float[Array, ""] | float,
    problem: Problem,
    config: AgentConfig,
) -> tuple[Float[Array, "batch action"], Metrics]:
    """Sample the behaviour policy. `shift_radius` is traced: 0 is the plain actor.

    At 0 the shift is not computed at all, in a branch of its own. Adding a shift of zero
    would be the actor too, but XLA fuses that program otherwise, and the last bits of an
    action would depend on whether its agent could have shifted it.
    """
    observation = observations.scale(state.observation_stats, observation, config)
    inputs = valuation.condition(observation, context, config)

    def plain() -> Array:
        mean, std = networks.apply_actor(state.actor.params, inputs)
        return networks.sample_action(key, mean, std)[0]

    def optimistic() -> tuple[Array, Metrics]:
        mean, std = networks.apply_actor(state.actor.params, inputs)
        shift = shift_mean(
            state, mean, std, inputs, context, shift_radius, problem, config
        )
        metrics = exploration_metrics(shift, problem)
        return networks.sample_action(key, shift.mean, std)[0], metrics

    def unshifted() -> tuple[Array, Metrics]:
        shapes = jax.eval_shape(optimistic)[1]
        return plain(), jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    if config.behaviour != "optimistic":
        return plain(), {}
    return jax.lax.cond(jnp.asarray(shift_radius) > 0, optimistic, unshifted)


def shift_mean(
    state: AgentState,
    mean: Float[Array, "batch action"],
    std: Float[Array, "batch action"],
    inputs: Array,
    context: Context,
    shift_radius: Float[Array, ""] | float,
    problem: Problem,
    config: AgentConfig,
) -> exploration.Shift:
    """The optimistic mean by this agent's critics, multiplier and limits."""
    reward_critics, cost_critics = state.reward_critics, state.cost_critics
    bounds = valuation.make_bounds(
        reward_critics.params, cost_critics.params, inputs, context, problem, config
    )
    return exploration.shift_policy(
        mean,
        std,
        bounds,
        state.multiplier.value,
        valuation.from_here(problem.limits[:, None], context, config),
        shift_radius,
        valuation.episode_unit(context, config),
    )


def exploration_metrics(shift: exploration.Shift, problem: Problem) -> Metrics:
    """How far the mean moved, and how much each cost weighed in where to."""
    metrics = {"explore/shift_norm": shift.length.mean()}
    weights = shift.exploration_multiplier.mean(axis=1)
    for m, name in enumerate(problem.names):
        metrics[f"explore/multiplier/{name}"] = weights[m]
    return metrics


def evaluation_policy(
    state: AgentState,
    observation: Float[Array, "batch observation"],
    config: AgentConfig,
) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
    """Mean and deviation of the actor, never shifted; in the dual form at the mean pivot."""
    observation = observations.scale(state.observation_stats, observation, config)
    pivot = pivots.mean_pivot(state.pivot.params)
    context = Context.start(observation.shape[0], pivot)
    inputs = valuation.condition(observation, context, config)
    return networks.apply_actor(state.actor.params, inputs)


def mean_action(
    state: AgentState,
    observation: Float[Array, "batch observation"],
    config: AgentConfig,
) -> Float[Array, "batch action"]:
    """The actor's mean action, as evaluations use it."""
    return jnp.tanh(evaluation_policy(state, observation, config)[0])


def sampled_action(
    key: Key[Array, ""],
    state: AgentState,
    observation: Float[Array, "batch observation"],
    config: AgentConfig,
) -> Float[Array, "batch action"]:
    """A draw from the actor, for evaluations of the stochastic policy."""
    mean, std = evaluation_policy(state, observation, config)
    return networks.sample_action(key, mean, std)[0]


def update(
    key: Key[Array, ""],
    state: AgentState,
    batch: Transition,
    problem: Problem,
    config: AgentConfig,
) -> tuple[AgentState, Metrics]:
    """One gradient step of everything, towards the best policy within its limits. Eq. (1).

    Critics, actor, temperature, multipliers, targets, in that order.
    """
    pivot_key, critic_key, actor_key = jax.random.split(key, 3)
    pivot = pivots.sample(
        pivot_key, state.pivot.params, config.pivot.std, batch.reward.shape[0]
    )
    batch, inputs, next_inputs, context = learning.prepare(state, batch, pivot, config)

    reward_critics, cost_critics, critic_metrics = learning.update_critics(
        critic_key, state, batch, inputs, next_inputs, problem, config
    )
    online = (reward_critics.params, cost_critics.params)
    actor, log_prob, risk, actor_metrics = learning.update_actor(
        actor_key, state, online, inputs, context, problem, config
    )
    log_temperature = learning.update_temperature(state, log_prob, problem, config)
    starts = multipliers.starts_held(context.accumulated_discount, config)
    multiplier = multipliers.update(
        state.multiplier, risk, problem.limits, config, starts
    )
    gradient_steps = state.gradient_steps + 1
    target_reward, target_cost = learning.update_targets(
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
        **constraint_metrics(new_state, risk, problem, config),
    }
    return new_state, metrics


def constraint_metrics(
    state: AgentState,
    risk: Float[Array, "constraint batch"],
    problem: Problem,
    config: AgentConfig,
) -> Metrics:
    """Multiplier, mean risk and limit side by side, so that a person sees who pulls."""
    metrics: Metrics = {}
    held = risk.mean(axis=1)
    if config.multiplier.states == "starts":
        # A batch may have none; what was last seen of them stands until one has.
        held = problem.limits + state.multiplier.previous_error
    for m, name in enumerate(problem.names):
        metrics[f"constraint/multiplier/{name}"] = state.multiplier.value[m]
        metrics[f"constraint/risk/{name}"] = held[m]
        metrics[f"constraint/limit/{name}"] = problem.limits[m]
        if config.risk_form == "dual":
            metrics[f"constraint/pivot/{name}"] = (
                pivots.mean_pivot(state.pivot.params)[m] * problem.limits[m]
            )
    return metrics
