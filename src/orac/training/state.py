"""The start of a run: its problem, its learner, its first training state and its keys."""

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
from orac.evaluation.rollout import Policy
from orac.runs.machine import Need
from orac.training import delivery, measurement
from orac.training.train_step import Totals, TrainState

RUN, EVALUATE, RESTART, FRESH, NEW_ACTOR = 1, 2, 3, 4, 5
"""Numbers that are folded into a seed's key: for training, for the run's evaluations, for
episodes that restart because the environment's state was not saved, for evaluations with a
seed of the user, and for the actor that replaces a stuck one."""


def problem_for(spec: EnvSpec, config: Config) -> Problem:
    """Return the constrained problem of this environment under this config."""
    length = config.env.episode_length or spec.episode_length
    if length is None:
        raise ValueError(
            f"the episode length of {spec.name!r} must be known to convert an episode's "
            "cost limit to the critics' units, but the environment has no time limit. "
            "Set env.episode_length (episode_length= in Python)."
        )
    if config.constraints and len(config.constraints) != spec.num_costs:
        raise ValueError(
            f"{spec.name!r} reports {spec.num_costs} cost(s) "
            f"({', '.join(spec.cost_names)}), but the config has "
            f"{len(config.constraints)} constraint(s). Give one constraint per cost."
        )
    for name in (constraint.name for constraint in config.constraints):
        if name not in spec.cost_names:
            raise unknown_name(
                f"a constraint on a cost of {spec.name!r}", name, spec.cost_names
            )
    return make_problem(
        spec.observation_size,
        spec.action_size,
        in_order_of(spec, config).constraints,
        length,
        config.agent.cost_discount,
        config.agent.discount,
        divide_by_limit=config.agent.follows_episodes,
        observation_structure=spec.observation_structure,
    )


def learner_for(spec: EnvSpec, config: Config) -> Learner:
    """Return the learner of this environment under this config."""
    return make_learner(problem_for(spec, config), config.agent)


def init_train_state(
    key: Key[Array, ""],
    env_state: Any,
    observation: Float[Array, "env observation"],
    spec: EnvSpec,
    learner: Learner,
    config: Config,
) -> TrainState:
    """Return the state before the first step: a new agent, and no replay yet."""
    num_envs = config.training.num_envs

    # One program: otherwise each small draw and each array of zeros is compiled by itself.
    @jax.jit
    def start(key: Array) -> tuple[AgentState, Array, Totals, Array]:
        agent_key, pivot_key = jax.random.split(key)
        agent = agent_core.init(agent_key, learner)
        totals = Totals.zeros(num_envs, spec.num_costs)
        return agent, pivot_key, totals, jnp.int32(0)

    agent, pivot_key, totals, rounds = start(key)
    # Drawn outside of that program, which would round the dual form's pivots differently.
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


def start_episodes(
    key: Key[Array, ""],
    state: TrainState,
    observation: Float[Array, "env observation"],
    spec: EnvSpec,
    learner: Learner,
) -> TrainState:
    """Return the state at the start of new episodes, for environments that were reset."""
    num_envs = observation.shape[0]
    pivot = agent_core.draw_pivots(key, state.agent.pivot.params, learner, num_envs)
    return state._replace(
        observation=observation,
        context=Context.start(num_envs, pivot),
        totals=Totals.zeros(num_envs, spec.num_costs),
    )


def empty_replay(problem: Problem, config: Config) -> ReplayState:
    """Return the replay that a run starts with."""
    num_envs = config.training.num_envs
    capacity = max(config.training.buffer_size, num_envs)
    if config.agent.n_step > 1:
        # Whole rounds, so that the next step of an environment is `num_envs` rows later.
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


def memory_needs(spec: EnvSpec, config: Config, with_replay: bool) -> list[Need]:
    """Return the memory of networks, environments and, for training, the replay."""
    training, learner = config.training, learner_for(spec, config)

    def num_bytes(make: Callable[[], Any]) -> int:
        leaves = jax.tree.leaves(jax.eval_shape(make))
        # A typed key has no item size. There are few keys, so each counts as one word.
        sizes = (getattr(leaf.dtype, "itemsize", 4) for leaf in leaves)
        return sum(math.prod(x.shape) * n for x, n in zip(leaves, sizes, strict=True))

    networks = num_bytes(lambda: agent_core.init(jax.random.key(0), learner))
    agent, row = (
        config.agent,
        4 * (4 * spec.observation_size + 2 * spec.action_size + 100),
    )
    # A layer of every critic at every quantile, and its gradient, are in memory at once.
    quantiles = agent.num_quantiles if agent.risk_form == "implicit" else 1
    layers = 8 * max(agent.hidden_sizes) * agent.num_cost_critics * quantiles
    acting = row + (layers if agent.behaviour == "optimistic" else 0)
    needs = [
        # An update holds the old and the new networks, and their gradients.
        Need("agent.hidden_sizes", agent.hidden_sizes, 3 * networks),
        Need("training.num_envs", training.num_envs, training.num_envs * acting),
    ]
    if with_replay:
        replay_bytes = num_bytes(lambda: empty_replay(learner.problem, config))
        needs.append(Need("training.buffer_size", training.buffer_size, replay_bytes))
        batch = training.batch_size * (row + layers)
        needs.append(Need("training.batch_size", training.batch_size, batch))
    return needs


@lru_cache(maxsize=64)
def evaluation_policy(spec: EnvSpec, config: Config, deterministic: bool) -> Policy:
    """Return the unshifted actor as a function of agent, key and observations.

    Actions are in the environment's box. The same arguments give the same function, so
    that runs which differ only in their seed share their compiled programs.
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
    """Return the unshifted actor as a function of policy, observations and noise.

    Actions are in the environment's box. `noise` has standard normal numbers of the actions'
    shape; without it, actions are the mean.
    """
    learner = learner_for(spec, config)

    def act(policy: PolicyState, observation: Array, *noise: Array) -> Array:
        mean, std = agent_core.policy(policy, observation, learner)
        pre_tanh = mean + std * noise[0] if noise else mean
        return to_box(spec, jnp.tanh(pre_tanh))

    return act


@lru_cache(maxsize=64)
def compiled_policy(spec: EnvSpec, config: Config, deterministic: bool) -> Any:
    """Return the evaluation policy, compiled for calls from the host."""
    return jax.jit(evaluation_policy(spec, config, deterministic))


def without_seed(config: Config) -> Config:
    """Return the config without its seed, so that all seeds share compiled programs."""
    return replace(config, seed=0)


def evaluation_key(
    run_key: Key[Array, ""], rounds: int, seed: int | None, sample: int = 0
) -> Key[Array, ""]:
    """Return the key of an evaluation: from the run's key, or from `seed` if it is given."""
    if seed is None:
        key = jax.random.fold_in(run_key, rounds)
    else:
        check_seed("the seed of an evaluation", seed)
        key = jax.random.fold_in(jax.random.key(seed), FRESH)
    return jax.random.fold_in(key, sample) if sample else key


def in_order_of(spec: EnvSpec, config: Config) -> Config:
    """Return the config with its constraints in the order of the environment's costs."""
    order = {name: i for i, name in enumerate(spec.cost_names)}
    ordered = sorted(config.constraints, key=lambda c: order.get(c.name, len(order)))
    return replace(config, constraints=tuple(ordered))
