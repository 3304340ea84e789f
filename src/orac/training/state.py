"""How a run starts: its problem, its learner, the first training state and its keys."""

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
from orac.core.agent import AgentState, Learner
from orac.core.cost_models import Context, Problem, make_problem, sample_pivot
from orac.core.replay import ReplayState
from orac.core.risk_forms import make_learner
from orac.envs.base import EnvSpec, to_box
from orac.evaluation.rollout import Policy
from orac.training.train_step import Totals, TrainState

RUN, EVALUATE, RESTART, FRESH = 1, 2, 3, 4
"""Numbers that are folded into a seed's key: for training, for the run's evaluations, for
episodes that restart because the environment's state was not saved, and for evaluations
with a seed that the user chose."""


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
    """Return a new agent at the first observations, without a replay."""
    agent_key, pivot_key = jax.random.split(key)
    num_envs = config.training.num_envs
    # Compiled as a whole: otherwise each of its many small draws is compiled separately.
    agent = jax.jit(lambda key: agent_core.init(key, learner))(agent_key)
    pivot = sample_pivot(
        pivot_key, agent.pivot.params, config.agent.pivot.std, num_envs
    )
    return TrainState(
        agent=agent,
        replay=(),  # type: ignore[arg-type]
        env=env_state,
        observation=observation,
        context=Context.start(num_envs, pivot),
        totals=Totals.zeros(num_envs, spec.num_costs),
        rounds=jnp.int32(0),
    )


def empty_replay(problem: Problem, config: Config) -> ReplayState:
    """Return the replay that a run starts with."""
    example = replay.example_transition(
        problem.observation_size, problem.action_size, problem.num_constraints
    )
    capacity = max(config.training.buffer_size, config.training.num_envs)
    return replay.init(capacity, example)


@lru_cache(maxsize=64)
def evaluation_policy(spec: EnvSpec, config: Config, deterministic: bool) -> Policy:
    """Return the unshifted actor as a function of agent, key and observations.

    Actions are in the environment's box. The same arguments give the same function, so
    that runs which differ only in their seed share their compiled programs.
    """
    learner = learner_for(spec, config)

    def policy(agent: AgentState, key: Array, observation: Array) -> Array:
        if deterministic:
            action = agent_core.mean_action(agent, observation, learner)
        else:
            action = agent_core.sampled_action(key, agent, observation, learner)
        return to_box(spec, action)

    return policy


@lru_cache(maxsize=64)
def compiled_policy(spec: EnvSpec, config: Config, deterministic: bool) -> Any:
    """Return the evaluation policy, compiled for calls from the host."""
    return jax.jit(evaluation_policy(spec, config, deterministic))


def without_seed(config: Config) -> Config:
    """Return the config that programs are compiled for: the same for every seed."""
    return replace(config, seed=0)


def evaluation_key(
    run_key: Key[Array, ""], rounds: int, seed: int | None
) -> Key[Array, ""]:
    """Return the key of an evaluation: the run's own, or that of a seed."""
    if seed is None:
        return jax.random.fold_in(run_key, rounds)
    check_seed("the seed of an evaluation", seed)
    return jax.random.fold_in(jax.random.key(seed), FRESH)
