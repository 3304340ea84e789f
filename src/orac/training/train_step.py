"""What a round brought, wherever its environments live: remember it, and learn.

Both loops end a round here, so that an episode's end, its costs and its pivots mean the same
in each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import Config
from orac.core import agent as agents
from orac.core import learning, pivots, replay
from orac.core.agent_state import AgentState
from orac.core.cost_models import Context, Problem
from orac.core.replay import ReplayState
from orac.core.types import Metrics, Transition
from orac.envs.base import Step
from orac.training.state import RoundReport, Totals, TrainState


class Happened(NamedTuple):
    """One step of every environment."""

    observation: Float[Array, "env observation"]
    """What to act on next: the new episode's first one where an episode ended."""
    next_observation: Float[Array, "env observation"]
    """What the action led to, also at an episode's end."""
    reward: Float[Array, " env"]
    cost: Float[Array, "env constraint"]
    terminated: Bool[Array, " env"]
    truncated: Bool[Array, " env"]
    metrics: dict[str, Array]
    """The environment's own numbers by name."""
    valid: Bool[Array, " env"] | None = None
    """False where an environment was only reset: there is no step to store. None: all are."""

    @staticmethod
    def of(step: Step, observation: Float[Array, "env observation"]) -> "Happened":
        """A step of JAX environments, and what they show next."""
        return Happened(
            observation=observation,
            next_observation=step.observation,
            reward=step.reward,
            cost=step.cost,
            terminated=step.terminated,
            truncated=step.truncated,
            metrics=step.metrics,
        )


def absorb(
    keys: tuple[Key[Array, ""], Key[Array, ""]],
    state: TrainState,
    env_state: Any,
    action: Float[Array, "env action"],
    happened: Happened,
    act_metrics: Metrics,
    problem: Problem,
    config: Config,
) -> tuple[TrainState, RoundReport]:
    """The second half of a round: into the replay, gradient steps, and the books."""
    pivot_key, learn_key = keys
    row = transition_of(state, action, happened, problem)
    buffer = replay.add(state.replay, row, happened.valid)
    agent = state.agent
    if config.agent.normalize_observations:
        agent = agents.observe(agent, state.observation)
    rounds = state.rounds + 1
    agent, metrics, updated = learn(learn_key, agent, buffer, rounds, problem, config)
    ended, paid, summed, totals = add_to_totals(state.totals, happened)
    new_state = TrainState(
        agent=agent,
        replay=buffer,
        env=env_state,
        observation=happened.observation,
        context=next_context(
            pivot_key, agent, state.context, row.cost, ended, config, happened.valid
        ),
        totals=totals,
        rounds=rounds,
    )
    return new_state, RoundReport(
        metrics={**metrics, **act_metrics},
        updated=updated,
        finite_action=jnp.isfinite(action).all(),
        finite_observation=jnp.isfinite(happened.next_observation).all(),
        cost=paid.sum(axis=0),
        ended=ended,
        totals=summed,
        env_metrics=happened.metrics,
    )


def transition_of(
    state: TrainState, action: Array, happened: Happened, problem: Problem
) -> Transition:
    """A round's rows for the replay, with what was paid before the step."""
    return Transition(
        observation=state.observation,
        action=action,
        reward=happened.reward,
        # Without constraints (plain SAC) costs are logged, not learned from.
        cost=happened.cost[:, : problem.num_constraints],
        next_observation=happened.next_observation,
        terminated=happened.terminated,
        truncated=happened.truncated,
        accumulated_cost=state.context.accumulated_cost,
        accumulated_discount=state.context.accumulated_discount,
    )


def add_to_totals(
    totals: Totals, happened: Happened
) -> tuple[Bool[Array, " env"], Float[Array, "env constraint"], Totals, Totals]:
    """Who ended, what was paid, the sums with it, and the same with ended ones at zero."""
    ended = happened.terminated | happened.truncated
    reward, cost, length = happened.reward, happened.cost, totals.length + 1
    if happened.valid is not None:
        ended = ended & happened.valid
        reward = jnp.where(happened.valid, reward, 0)
        cost = jnp.where(happened.valid[:, None], cost, 0)
        # A call that only reset an environment is no step of an episode.
        length = totals.length + happened.valid
    summed = Totals(totals.reward + reward, totals.cost + cost, length)
    keep = ~ended
    going_on = Totals(
        summed.reward * keep, summed.cost * keep[:, None], summed.length * keep
    )
    return ended, cost, summed, going_on


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
