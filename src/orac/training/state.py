"""Make what a run needs at its start: the problem, the learner, the training state and keys."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import Config
from orac.config.validation import check_seed, unknown_name
from orac.core import agent as agent_core
from orac.core import replay
from orac.core.agent import AgentState, Learner, PolicyState
from orac.core.cost_models import Context, Problem, make_problem
from orac.core.replay import ReplayState
from orac.core.risk_forms import make_learner
from orac.envs.base import EnvSpec, to_box
from orac.evaluation.rollout import DevicePolicy
from orac.runs.machine import MemoryNeed
from orac.training import delivery, measurement
from orac.training.train_step import Totals, TrainState

RUN, EVALUATE, RESTART, FRESH, NEW_ACTOR = 1, 2, 3, 4, 5
"""Numbers that are folded into the key of a seed, one for each purpose of random numbers.

The purposes are training, the evaluations of a run, new episodes after a checkpoint without
the environment's state, evaluations with a seed that the user gives, and the actor that
replaces a stuck actor.
"""
MEASURE, RETEST, COMPARE = 0, 1, 2
"""Sample numbers of the evaluations that training makes.

They are the evaluations of a run, the second test of a new best policy, and the comparison of
the mean action with the sampled one.
"""
CERTIFY = 1_000
"""Sample number of the validation episodes of a certification. Look i has the number
`CERTIFY + i`, and there are at most 1,000 looks."""
REQUESTED = 10_000
"""Sample number of the evaluations that a user asks for. It differs from all other sample
numbers, so these evaluations never repeat episodes by which a policy was chosen."""


def problem_for(spec: EnvSpec, config: Config) -> Problem:
    """Return the constrained problem that this environment and this config define."""
    length = config.env.episode_length or spec.episode_length
    if length is None:
        raise ValueError(
            f"the episode length of {spec.name!r} must be known, because the limit on an "
            "episode's cost is converted to the critics' units, but the environment has no "
            "time limit. Set env.episode_length (episode_length= in Python)."
        )
    if config.constraints and len(config.constraints) != spec.num_costs:
        raise ValueError(
            f"the config must have one constraint for each cost of {spec.name!r} "
            f"({', '.join(spec.cost_names) or 'it has none'}), got "
            f"{', '.join(c.name for c in config.constraints)}. Give one constraint for each "
            "cost."
        )
    for name in (constraint.name for constraint in config.constraints):
        if name not in spec.cost_names:
            raise unknown_name(
                f"a constraint on a cost of {spec.name!r}", name, spec.cost_names
            )
    constraints = order_constraints(spec, config).constraints
    tail = config.agent.penalty_tail
    if tail is not None:
        # Only the learner uses this tail. The risk of episodes is measured with the
        # constraint's own measure.
        constraints = tuple(
            replace(c, risk="cvar", tail=tail, risk_parameter=None) for c in constraints
        )
    return make_problem(
        spec.observation_size,
        spec.action_size,
        constraints,
        length,
        config.agent.cost_discount,
        config.agent.discount,
        divide_by_limit=config.agent.follows_episodes,
        observation_structure=spec.observation_structure,
    )


def learner_for(spec: EnvSpec, config: Config) -> Learner:
    """Return the learner for this environment and this config."""
    return make_learner(problem_for(spec, config), config.agent)


def init_train_state(
    key: Key[Array, ""],
    env_state: Any,
    observation: Float[Array, "env observation"],
    spec: EnvSpec,
    learner: Learner,
    config: Config,
) -> TrainState:
    """Return the training state before the first step, with a new agent and no replay."""
    num_envs = config.training.num_envs
    start = compiled_start(spec, without_seed(config))
    agent, pivot_key, totals, rounds = start(key)
    # Draw the pivots outside of `compiled_start`, because that program would round the
    # pivots of the dual form differently.
    pivot = agent_core.draw_pivots(pivot_key, agent.pivot.params, learner, num_envs)
    return TrainState(
        agent=agent,
        replay=(),  # type: ignore[arg-type]
        env=env_state,
        observation=observation,
        context=jax.jit(Context.start, static_argnums=0)(num_envs, pivot),
        totals=totals,
        rounds=rounds,
        measured=measurement.init(config) if config.agent.follows_episodes else (),
        candidates=delivery.init(agent, config)
        if config.agent.follows_episodes
        else (),
    )


@lru_cache(maxsize=64)
def compiled_start(spec: EnvSpec, config: Config) -> Any:
    """Return a compiled function that takes a key and makes a new agent.

    It also returns a key for drawing pivots, totals of zero and the number of rounds, 0. It
    is one program; otherwise JAX would compile each small draw and each array of zeros
    separately. Runs that differ only in their seed share it.
    """
    learner = learner_for(spec, config)

    @jax.jit
    def start(key: Array) -> tuple[AgentState, Array, Totals, Array]:
        agent_key, pivot_key = jax.random.split(key)
        agent = agent_core.init(agent_key, learner)
        totals = Totals.zeros(config.training.num_envs, spec.num_costs)
        return agent, pivot_key, totals, jnp.int32(0)

    return start


def start_episodes(
    key: Key[Array, ""],
    state: TrainState,
    observation: Float[Array, "env observation"],
    spec: EnvSpec,
    learner: Learner,
) -> TrainState:
    """Return the training state after all environments were reset to new episodes.

    `observation` is the first observation of each new episode.
    """
    num_envs = observation.shape[0]
    pivot = agent_core.draw_pivots(key, state.agent.pivot.params, learner, num_envs)
    return state._replace(
        observation=observation,
        context=Context.start(num_envs, pivot),
        totals=Totals.zeros(num_envs, spec.num_costs),
    )


def empty_replay(problem: Problem, config: Config) -> ReplayState:
    """Return the empty replay that a run starts with."""
    num_envs = config.training.num_envs
    capacity = max(config.training.buffer_size, num_envs)
    if config.agent.n_step > 1:
        # The buffer contains whole rounds, so that the next step of an environment is
        # always `num_envs` rows later.
        capacity = -(-capacity // num_envs) * num_envs

    @jax.jit
    def empty() -> ReplayState:
        example = replay.example_transition(
            problem.observation_size, problem.action_size, problem.num_constraints
        )
        if config.agent.n_step > 1:
            example = example._replace(steps=jnp.int32(0))
        return replay.init(capacity, example)

    return empty()


def num_bytes(make: Callable[[], Any]) -> int:
    """Return the size in bytes of the arrays that a function returns, without making them."""
    leaves = jax.tree.leaves(jax.eval_shape(make))
    # A random key has no item size. There are few keys, so each is counted as 4 bytes.
    sizes = (getattr(leaf.dtype, "itemsize", 4) for leaf in leaves)
    return sum(math.prod(x.shape) * n for x, n in zip(leaves, sizes, strict=True))


@lru_cache(maxsize=64)
def network_bytes(spec: EnvSpec, config: Config) -> int:
    """Return the size of an agent's state in bytes."""
    learner = learner_for(spec, config)
    return num_bytes(lambda: agent_core.init(jax.random.key(0), learner))


def memory_needs(spec: EnvSpec, config: Config, with_replay: bool) -> list[MemoryNeed]:
    """Estimate, for each setting with a large effect, how much memory a run needs for it.

    The replay and the batches of training are included only if `with_replay` is true.
    """
    training, problem = config.training, problem_for(spec, config)
    networks = network_bytes(spec, without_seed(config))
    agent, row = (
        config.agent,
        4 * (4 * spec.observation_size + 2 * spec.action_size + 100),
    )
    # Memory holds one layer of every critic at every quantile, and its gradient, at once.
    rows = make_learner(problem, agent).costs.hidden_rows
    layers = 8 * max(agent.hidden_sizes) * agent.num_cost_critics * rows
    acting = row + (layers if agent.behaviour == "optimistic" else 0)
    needs = [
        # In an update, memory holds the old and the new networks, and their gradients.
        MemoryNeed("agent.hidden_sizes", agent.hidden_sizes, 3 * networks),
        MemoryNeed("training.num_envs", training.num_envs, training.num_envs * acting),
    ]
    if with_replay:
        replay_bytes = num_bytes(lambda: empty_replay(problem, config))
        needs.append(
            MemoryNeed("training.buffer_size", training.buffer_size, replay_bytes)
        )
        batch = training.batch_size * (row + layers)
        needs.append(MemoryNeed("training.batch_size", training.batch_size, batch))
    return needs


@lru_cache(maxsize=64)
def evaluation_policy(
    spec: EnvSpec, config: Config, deterministic: bool
) -> DevicePolicy:
    """Return a function of (policy, key, observations) that acts without exploration shift.

    Its actions are in the environment's action space. Calls with equal arguments return the
    same function, so that runs that differ only in their seed share their compiled programs.
    """
    learner = learner_for(spec, config)

    def policy(state: PolicyState, key: Array, observation: Array) -> Array:
        if deterministic:
            action = agent_core.mean_action(state, observation, learner)
        else:
            action = agent_core.sampled_action(key, state, observation, learner)
        return to_box(spec, action)

    return policy


@lru_cache(maxsize=64)
def noise_policy(spec: EnvSpec, config: Config) -> Callable[..., Array]:
    """Return a function of (policy, observations, noise) that acts without exploration shift.

    Its actions are in the environment's action space. `noise` consists of standard normal
    numbers in the shape of the actions. If it is left out, the actions are the mean.
    """
    learner = learner_for(spec, config)

    def act(policy: PolicyState, observation: Array, *noise: Array) -> Array:
        mean, std = agent_core.policy(policy, observation, learner)
        pre_tanh = mean + std * noise[0] if noise else mean
        return to_box(spec, jnp.tanh(pre_tanh))

    return act


@lru_cache(maxsize=64)
def compiled_policy(spec: EnvSpec, config: Config, deterministic: bool) -> Any:
    """Return `evaluation_policy`, compiled for calls from the host."""
    return jax.jit(evaluation_policy(spec, config, deterministic))


def without_seed(config: Config) -> Config:
    """Return the config with seed 0, so that runs of all seeds share compiled programs."""
    return replace(config, seed=0)


def evaluation_key(
    run_key: Key[Array, ""], rounds: int, seed: int | None, sample: int = MEASURE
) -> Key[Array, ""]:
    """Return the key of an evaluation.

    It is made from `seed`, or, if `seed` is None, from the run's key and the number of
    rounds. Different values of `sample` give different keys. The key of `MEASURE` has nothing
    folded into it.
    """
    if seed is None:
        key = jax.random.fold_in(run_key, rounds)
    else:
        check_seed("the seed of an evaluation", seed)
        key = jax.random.fold_in(jax.random.key(seed), FRESH)
    return key if sample == MEASURE else jax.random.fold_in(key, sample)


def order_constraints(spec: EnvSpec, config: Config) -> Config:
    """Return the config with its constraints in the order of the environment's costs."""
    order = {name: i for i, name in enumerate(spec.cost_names)}
    ordered = sorted(config.constraints, key=lambda c: order.get(c.name, len(order)))
    return replace(config, constraints=tuple(ordered))
