"""One training step, in the two functions that the device loop and the host loop share.

`choose_action` returns the actions. The loop (`device_loop.py` or `host_loop.py`) then steps
the environments. `store_and_update` stores the steps in the replay, runs the gradient steps
that are due, and adds up the rewards and costs of the running episodes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import Config
from orac.core import agent as agent_core
from orac.core import exploration, normalization, replay
from orac.core.agent import AgentState, Learner
from orac.core.cost_models import Context
from orac.core.replay import ReplayState
from orac.core.types import Metrics, Transition


class Totals(NamedTuple):
    """Sums over the steps of the running episode of each environment."""

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
    """The state of a run: the agent, the replay, the environments and the running episodes.

    A checkpoint contains this state, the loop's `Counters`, the lengths of the logs and the
    state of environments on the host.
    """

    agent: AgentState
    replay: ReplayState
    """The replay, or `()` until training starts."""
    env: Any
    """State of the JAX environments, or `()` for environments on the host."""
    observation: Float[Array, "env observation"]
    context: Context
    totals: Totals
    rounds: Int[Array, ""]
    """Number of times that every environment was stepped: env_steps / num_envs."""
    measured: Any = ()
    """A `Measured` if the multiplier follows episodes, otherwise `()`. It is replaced by `()`
    while compiled functions run. The same is true of `candidates`."""
    candidates: Any = ()
    """A `Candidates` if the multiplier follows episodes, otherwise `()`."""


class StepBatch(NamedTuple):
    """One step of every environment.

    From `next_observation` to `metrics`, the fields and their order are those of
    `envs.base.Step`.
    """

    observation: Float[Array, "env observation"]
    """The observation to act on next. Where an episode ended, it is the first observation of
    the next episode."""
    next_observation: Float[Array, "env observation"]
    """The observation that the action led to, even at the end of an episode."""
    reward: Float[Array, " env"]
    cost: Float[Array, "env constraint"]
    terminated: Bool[Array, " env"]
    truncated: Bool[Array, " env"]
    metrics: dict[str, Array]
    """Metrics that the environment reports, by name."""
    valid: Bool[Array, " env"] | None = None
    """False where an environment was only reset. None if all environments took a step."""


class StepReport(NamedTuple):
    """What happened in one round: metrics of its updates, and the episodes that ended."""

    metrics: Metrics
    """Metrics of acting and updating. Those of updating are 0 if no update was due."""
    updated: Bool[Array, ""]
    """Whether an update was due."""
    finite_action: Bool[Array, ""]
    """Whether all actions were finite."""
    finite_observation: Bool[Array, ""]
    """Whether all observations after the actions were finite."""
    cost: Float[Array, " constraint"]
    """Cost of the round, summed over the environments."""
    ended: Bool[Array, " env"]
    totals: Totals
    """Sums over each environment's episode up to this round, also if it ends in this round."""
    env_metrics: dict[str, Array]
    deployed: Any = ()
    """Which environments acted with the deployed policy. It is `()` in the device loop, and
    if the multiplier follows the critics."""


def choose_action(
    key: Key[Array, ""], state: TrainState, learner: Learner, config: Config
) -> tuple[Float[Array, "env action"], Metrics]:
    """Return an action for every environment, and metrics.

    Actions are uniformly random before step `training.learning_starts`. After that, the
    behaviour policy chooses them.
    """
    env_steps = state.rounds * config.training.num_envs
    shape = (config.training.num_envs, learner.problem.action_size)

    def behaviour() -> tuple[Array, Metrics]:
        return agent_core.act(
            key,
            state.agent,
            state.observation,
            state.context,
            shift_radius_at(env_steps, config),
            learner,
        )

    def uniform() -> tuple[Array, Metrics]:
        action = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        return action, agent_core.no_shift_metrics(learner)

    return jax.lax.cond(env_steps < config.training.learning_starts, uniform, behaviour)


def shift_radius_at(env_steps: Int[Array, ""], config: Config) -> Float[Array, ""]:
    """Return the radius of the exploration shift after this many environment steps."""
    settings = config.agent.exploration
    radius = settings.shift_radius
    if settings.radius_is_kl:
        radius = exploration.radius_from_kl(radius)
    if not settings.decay:
        return jnp.float32(radius)
    horizon = config.training.horizon
    left = jnp.clip(1 - env_steps / horizon, 0, 1)
    # Numerics: because of rounding, env_steps / horizon may be below 1 at the horizon.
    return jnp.float32(radius) * jnp.where(env_steps < horizon, left, 0)


def store_and_update(
    keys: tuple[Key[Array, ""], Key[Array, ""]],
    state: TrainState,
    env_state: Any,
    action: Float[Array, "env action"],
    steps: StepBatch,
    act_metrics: Metrics,
    learner: Learner,
    config: Config,
    deployed: Any = (),
) -> tuple[TrainState, StepReport]:
    """Store one step of every environment and run the updates that are due.

    `state` is the training state before the step, and `env_state` is the state of the JAX
    environments after the step. The keys are for drawing new pivots and for updating.
    """
    pivot_key, update_key = keys
    transition = make_transition(state, action, steps, learner)
    buffer = replay.add(state.replay, transition, steps.valid)
    agent = state.agent
    if config.agent.normalize_observations:
        stats = normalization.update(agent.observation_stats, state.observation)
        agent = agent._replace(observation_stats=stats)
    rounds = state.rounds + 1
    ended, cost, summed, totals = add_to_totals(state.totals, steps)
    agent = update_statistics(agent, transition, ended, summed, rounds, config)
    agent, metrics, updated = update_if_due(
        update_key, agent, buffer, rounds, learner, config
    )
    scaled_cost = transition.cost
    if learner.problem.cost_units is not None:
        # The accumulated cost is compared with limits, which are in critic units (see
        # `cost_models`).
        scaled_cost = scaled_cost / learner.problem.units
    new_state = state._replace(
        agent=agent,
        replay=buffer,
        env=env_state,
        observation=steps.observation,
        context=next_context(
            pivot_key, agent, state.context, scaled_cost, ended, learner, steps.valid
        ),
        totals=totals,
        rounds=rounds,
    )
    return new_state, StepReport(
        metrics={**metrics, **act_metrics},
        updated=updated,
        finite_action=jnp.isfinite(action).all(),
        finite_observation=jnp.isfinite(steps.next_observation).all(),
        cost=cost.sum(axis=0),
        ended=ended,
        totals=summed,
        env_metrics=steps.metrics,
        deployed=deployed,
    )


def make_transition(
    state: TrainState, action: Array, steps: StepBatch, learner: Learner
) -> Transition:
    """Return the rows to store in the replay.

    Each row contains the cost that its episode had accumulated before this step.
    """
    valid: Any = ()
    if learner.config.n_step > 1:
        valid = jnp.ones(steps.reward.shape, jnp.int32)
        if steps.valid is not None:
            valid = valid * steps.valid
    return Transition(
        observation=state.observation,
        action=action,
        reward=steps.reward,
        # Without constraints (SAC), costs are logged but not stored for learning.
        cost=steps.cost[:, : learner.problem.num_constraints],
        next_observation=steps.next_observation,
        terminated=steps.terminated,
        truncated=steps.truncated,
        accumulated_cost=state.context.accumulated_cost,
        accumulated_discount=state.context.accumulated_discount,
        steps=valid,
    )


def update_statistics(
    agent: AgentState,
    transition: Transition,
    ended: Bool[Array, " env"],
    summed: Totals,
    rounds: Int[Array, ""],
    config: Config,
) -> AgentState:
    """Update the statistics of rewards, costs and episode returns.

    `agent.centre` needs the mean reward and the mean cost, and `agent.normalize_rewards` needs
    the statistics of episode returns. Without these settings nothing changes.
    """
    if config.agent.centre:
        # The means are computed during the warm-up and do not change afterwards.
        warm_up = -(
            -max(config.training.learning_starts, 1) // config.training.num_envs
        )
        share = jnp.where(rounds <= warm_up, 1 / rounds, 0.0)
        means = agent_core.Centre(
            transition.reward.mean(), transition.cost.mean(axis=0)
        )
        centre = jax.tree.map(lambda c, m: c + share * (m - c), agent.centre, means)
        agent = agent._replace(centre=centre)
    if config.agent.normalize_rewards:

        def add_return(stats: Any, row: tuple[Array, Array]) -> tuple[Any, None]:
            new = normalization.update(stats, row[1][None, None])
            return jax.tree.map(lambda n, s: jnp.where(row[0], n, s), new, stats), None

        stats, _ = jax.lax.scan(add_return, agent.return_stats, (ended, summed.reward))
        agent = agent._replace(return_stats=stats)
    return agent


def add_to_totals(
    totals: Totals, steps: StepBatch
) -> tuple[Bool[Array, " env"], Float[Array, "env constraint"], Totals, Totals]:
    """Add a step to the totals of the running episodes.

    Returns which episodes ended, the costs of the step, the totals including the step, and
    the totals for the next step, which are zero where an episode ended.
    """
    ended = steps.terminated | steps.truncated
    reward, cost, length = steps.reward, steps.cost, totals.length + 1
    if steps.valid is not None:
        ended = ended & steps.valid
        reward = jnp.where(steps.valid, reward, 0)
        cost = jnp.where(steps.valid[:, None], cost, 0)
        # A call that only reset an environment is not a step of an episode.
        length = totals.length + steps.valid
    summed = Totals(totals.reward + reward, totals.cost + cost, length)
    running = ~ended
    reset = Totals(
        summed.reward * running, summed.cost * running[:, None], summed.length * running
    )
    return ended, cost, summed, reset


def next_context(
    key: Key[Array, ""],
    agent: AgentState,
    context: Context,
    cost: Float[Array, "env constraint"],
    done: Bool[Array, " env"],
    learner: Learner,
    valid: Bool[Array, " env"] | None = None,
) -> Context:
    """Return the context after a step.

    The cost of the step is added to the accumulated cost. Where an episode ended, the
    accumulated cost starts again at 0 with a new pivot. Environments that are not `valid`
    took no step, so their context does not change.
    """
    num_envs = done.shape[0]
    pivot = agent_core.draw_pivots(key, agent.pivot.params, learner, num_envs)
    fresh = Context.start(num_envs, pivot)
    total = context.accumulated_cost + context.accumulated_discount[:, None] * cost
    discount = context.accumulated_discount * learner.config.cost_discount
    stepped = Context(
        jnp.where(done[:, None], fresh.pivot, context.pivot),
        jnp.where(done[:, None], fresh.accumulated_cost, total),
        jnp.where(done, fresh.accumulated_discount, discount),
    )
    if valid is None:
        return stepped
    return Context(
        jnp.where(valid[:, None], stepped.pivot, context.pivot),
        jnp.where(valid[:, None], stepped.accumulated_cost, context.accumulated_cost),
        jnp.where(valid, stepped.accumulated_discount, context.accumulated_discount),
    )


def update_if_due(
    key: Key[Array, ""],
    agent: AgentState,
    buffer: ReplayState,
    rounds: Int[Array, ""],
    learner: Learner,
    config: Config,
) -> tuple[AgentState, Metrics, Bool[Array, ""]]:
    """Run the gradient steps and the outer step that are due after this many rounds, if any.

    Returns the agent, metrics, and whether gradient steps were due. The metrics are means
    over those gradient steps that update all networks.
    """
    training = config.training
    updates_key, outer_key = jax.random.split(key)
    ratio = training.gradient_steps * training.num_envs
    num_updates, every = max(round(ratio), 1), max(round(1 / ratio), 1)
    due = (rounds * training.num_envs >= training.first_update) & (rounds % every == 0)

    def update_once(
        agent: AgentState, key: Array, only_critics: bool = False
    ) -> tuple[AgentState, Metrics]:
        sample_key, update_key = jax.random.split(key)
        batch = sample_batch(sample_key, buffer, config)
        return agent_core.update(update_key, agent, batch, learner, only_critics)

    def update_group(agent: AgentState, keys: Array) -> tuple[AgentState, Metrics]:
        """Take gradient steps on the critics only, and then one on all networks."""
        for key in keys[:-1]:
            agent, _ = update_once(agent, key, only_critics=True)
        return update_once(agent, keys[-1])

    def update_all(agent: AgentState) -> tuple[AgentState, Metrics]:
        if num_updates == 1:
            return update_once(agent, updates_key)
        keys = jax.random.split(updates_key, num_updates)
        if config.agent.actor_every > 1:
            groups = keys.reshape(-1, config.agent.actor_every)
            agent, metrics = jax.lax.scan(update_group, agent, groups)
        else:
            agent, metrics = jax.lax.scan(update_once, agent, keys)
        return agent, jax.tree.map(lambda x: x.mean(), metrics)

    # jit caches the trace, so `eval_shape` and `cond` share it.
    update_all = jax.jit(update_all, inline=True)
    shapes = jax.eval_shape(update_all, agent)[1]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    agent, metrics = jax.lax.cond(due, update_all, lambda a: (a, zeros), agent)
    return outer_step(outer_key, agent, buffer, rounds, learner, config), metrics, due


def sample_batch(
    key: Key[Array, ""], buffer: ReplayState, config: Config
) -> Transition:
    """Sample a batch of transitions, or of sums over n steps if `agent.n_step` is above 1."""
    training, size = config.training, config.training.batch_size
    if config.agent.n_step == 1:
        return replay.sample(key, buffer, size)
    return replay.sample_n_step(key, buffer, size, training.num_envs, config.agent)


def outer_step(
    key: Key[Array, ""],
    agent: AgentState,
    buffer: ReplayState,
    rounds: Int[Array, ""],
    learner: Learner,
    config: Config,
) -> AgentState:
    """Run the dual form's outer step if it is due.

    It updates the distribution of pivots every `agent.pivot.every` environment steps. Other
    risk forms have no outer step.
    """
    update_outer = learner.costs.outer_step
    if update_outer is None:
        return agent
    num_envs, every = config.training.num_envs, config.agent.pivot.every
    steps = rounds * num_envs
    due = (steps >= config.training.first_update) & (
        steps // every > (steps - num_envs) // every
    )

    def run(agent: AgentState) -> AgentState:
        sample_key, update_key = jax.random.split(key)
        batch = sample_batch(sample_key, buffer, config)
        return update_outer(update_key, agent, batch, learner)

    return jax.lax.cond(due, run, lambda a: a, agent)
