"""What a run is between two steps, and the bookkeeping that both loops share.

A checkpoint holds a `TrainState` and nothing else is needed to go on.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from orac import agents, exploration, learning, pivots, replay
from orac.agent_state import AgentState
from orac.checks import unknown_name
from orac.config import Config
from orac.envs.protocol import EnvSpec
from orac.replay import ReplayState
from orac.types import Metrics, Transition
from orac.valuation import Context, Problem, make_problem


class Totals(NamedTuple):
    """Sums over the running episode of each environment."""

    reward: Float[Array, " env"]
    cost: Float[Array, "env constraint"]
    length: Int[Array, " env"]

    @staticmethod
    def zeros(num_envs: int, num_costs: int) -> "Totals":
        return Totals(
            jnp.zeros(num_envs),
            jnp.zeros((num_envs, num_costs)),
            jnp.zeros(num_envs, jnp.int32),
        )


class TrainState(NamedTuple):
    """Agent, replay, environments and counters."""

    agent: AgentState
    replay: ReplayState
    env: Any
    """State of the environments; empty for environments that live on the host."""
    observation: Float[Array, "env observation"]
    context: Context
    totals: Totals
    rounds: Int[Array, ""]
    """How often every environment was stepped; env_steps = rounds * num_envs."""


class RoundReport(NamedTuple):
    """What leaves one round: metrics of its updates, and the episodes that ended."""

    metrics: Metrics
    """Meaningful only where `updated`."""
    updated: Bool[Array, ""]
    finite_action: Bool[Array, ""]
    finite_observation: Bool[Array, ""]
    """Of the step that was taken. With the action's, they tell who went wrong first."""
    cost: Float[Array, " constraint"]
    """Summed over the environments in this round."""
    ended: Bool[Array, " env"]
    totals: Totals
    env_metrics: dict[str, Array]


def problem_of(spec: EnvSpec, config: Config) -> Problem:
    """What is to be learned in this environment under this config."""
    length = config.env.episode_length or spec.episode_length
    if length is None:
        raise ValueError(
            f"the episode length of {spec.name!r} must be known to turn an episode's cost "
            "limit into the critics' units; the environment has no time limit. "
            "Set env.episode_length (episode_length= in Python)."
        )
    if config.constraints and len(config.constraints) != spec.num_costs:
        raise ValueError(
            f"{spec.name!r} reports {spec.num_costs} cost(s) "
            f"({', '.join(spec.cost_names)}), but the config has "
            f"{len(config.constraints)} constraint(s). Give one constraint per cost."
        )
    constraints = {constraint.name: constraint for constraint in config.constraints}
    for name in constraints:
        if name not in spec.cost_names:
            raise unknown_name(
                f"a constraint on a cost of {spec.name!r}", name, spec.cost_names
            )
    return make_problem(
        spec.observation_size,
        spec.action_size,
        # In the order in which the environment reports its costs.
        tuple(constraints[name] for name in spec.cost_names if name in constraints),
        length,
        config.agent.cost_discount,
    )


def init_train_state(
    key: Key[Array, ""],
    env_state: Any,
    observation: Float[Array, "env observation"],
    spec: EnvSpec,
    problem: Problem,
    config: Config,
) -> TrainState:
    """A fresh agent and an empty replay at the first observations."""
    agent_key, pivot_key = jax.random.split(key)
    num_envs = config.training.num_envs
    # Compiled as one: its many small draws would each be compiled alone.
    init_agent = jax.jit(agents.init, static_argnums=(1, 2))
    agent = init_agent(agent_key, problem, config.agent)
    pivot = pivots.sample(
        pivot_key, agent.pivot.params, config.agent.pivot.std, num_envs
    )
    example = replay.example_transition(
        problem.observation_size, problem.action_size, problem.num_constraints
    )
    capacity = max(config.training.buffer_size, num_envs)
    return TrainState(
        agent=agent,
        replay=replay.init(capacity, example),
        env=env_state,
        observation=observation,
        context=Context.start(num_envs, pivot),
        totals=Totals.zeros(num_envs, spec.num_costs),
        rounds=jnp.int32(0),
    )


def next_context(
    key: Key[Array, ""],
    agent: AgentState,
    context: Context,
    cost: Float[Array, "env constraint"],
    done: Bool[Array, " env"],
    config: Config,
    valid: Bool[Array, " env"] | None = None,
) -> Context:
    """Add a step's cost to what the episode paid; new episodes draw a new pivot.

    Where `valid` is False nothing was stepped, and nothing changes.
    """
    num_envs = done.shape[0]
    pivot = pivots.sample(key, agent.pivot.params, config.agent.pivot.std, num_envs)
    fresh = Context.start(num_envs, pivot)
    paid = context.accumulated_cost + context.accumulated_discount[:, None] * cost
    discount = context.accumulated_discount * config.agent.cost_discount
    stepped = Context(
        jnp.where(done[:, None], fresh.pivot, context.pivot),
        jnp.where(done[:, None], fresh.accumulated_cost, paid),
        jnp.where(done, fresh.accumulated_discount, discount),
    )
    if valid is None:
        return stepped
    return Context(
        jnp.where(valid[:, None], stepped.pivot, context.pivot),
        jnp.where(valid[:, None], stepped.accumulated_cost, context.accumulated_cost),
        jnp.where(valid, stepped.accumulated_discount, context.accumulated_discount),
    )


def add_to_totals(
    totals: Totals, reward: Array, cost: Array, done: Bool[Array, " env"]
) -> tuple[Totals, Totals]:
    """Sums including this step, and the same with ended episodes set back to zero."""
    summed = Totals(totals.reward + reward, totals.cost + cost, totals.length + 1)
    keep = ~done
    return summed, Totals(
        summed.reward * keep, summed.cost * keep[:, None], summed.length * keep
    )


def shift_radius_at(env_steps: Int[Array, ""], config: Config) -> Float[Array, ""]:
    """The exploration radius at a point of the run."""
    settings = config.agent.exploration
    radius = settings.shift_radius
    if settings.radius_is_kl:
        radius = exploration.radius_from_kl(radius)
    if not settings.decay:
        return jnp.float32(radius)
    left = 1 - env_steps / config.training.total_steps
    return jnp.float32(radius) * jnp.clip(left, 0, 1)


def learn(
    key: Key[Array, ""],
    agent: AgentState,
    buffer: ReplayState,
    rounds: Int[Array, ""],
    problem: Problem,
    config: Config,
) -> tuple[AgentState, Metrics, Bool[Array, ""]]:
    """The gradient steps that are due after this round, if any."""
    training = config.training
    updates_key, outer_key = jax.random.split(key)
    ratio = training.gradient_steps * training.num_envs
    num_updates, every = max(round(ratio), 1), max(round(1 / ratio), 1)
    due = (rounds * training.num_envs >= training.learning_starts) & (
        rounds % every == 0
    )

    def one(agent: AgentState, update_key: Array) -> tuple[AgentState, Metrics]:
        sample_key, key = jax.random.split(update_key)
        batch = replay.sample(sample_key, buffer, training.batch_size)
        return agents.update(key, agent, batch, problem, config.agent)

    def all_due(agent: AgentState) -> tuple[AgentState, Metrics]:
        if num_updates == 1:
            return one(agent, updates_key)
        keys = jax.random.split(updates_key, num_updates)
        agent, metrics = jax.lax.scan(one, agent, keys)
        return agent, jax.tree.map(lambda x: x.mean(), metrics)

    shapes = jax.eval_shape(all_due, agent)[1]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    agent, metrics = jax.lax.cond(due, all_due, lambda a: (a, nothing), agent)
    agent = outer_step(outer_key, agent, buffer, rounds, problem, config)
    return agent, metrics, due


def outer_step(
    key: Key[Array, ""],
    agent: AgentState,
    buffer: ReplayState,
    rounds: Int[Array, ""],
    problem: Problem,
    config: Config,
) -> AgentState:
    """The dual form's update of its pivots, every so many environment steps."""
    if config.agent.risk_form != "dual" or not problem.constraints:
        return agent
    num_envs, every = config.training.num_envs, config.agent.pivot.every
    steps = rounds * num_envs
    due = (steps >= config.training.learning_starts) & (
        steps // every > (steps - num_envs) // every
    )

    def outer(agent: AgentState) -> AgentState:
        sample_key, update_key = jax.random.split(key)
        batch = replay.sample(sample_key, buffer, config.training.batch_size)
        return learning.update_pivot(update_key, agent, batch, problem, config.agent)

    return jax.lax.cond(due, outer, lambda a: a, agent)


def transition_of(
    state: TrainState,
    action: Array,
    reward: Array,
    cost: Array,
    next_observation: Array,
    terminated: Array,
    truncated: Array,
) -> Transition:
    """A round's rows for the replay, with what was paid before the step."""
    return Transition(
        observation=state.observation,
        action=action,
        reward=reward,
        cost=cost,
        next_observation=next_observation,
        terminated=terminated,
        truncated=truncated,
        accumulated_cost=state.context.accumulated_cost,
        accumulated_discount=state.context.accumulated_discount,
    )
