"""What a run is between two steps.

A checkpoint holds a `TrainState` and nothing else is needed to go on.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import Config
from orac.config.validation import unknown_name
from orac.core import agent as agents
from orac.core import pivots, replay
from orac.core.agent_state import AgentState
from orac.core.cost_models import Context, Problem, make_problem
from orac.core.replay import ReplayState
from orac.core.types import Metrics
from orac.envs.base import EnvSpec


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


def problem_for(spec: EnvSpec, config: Config) -> Problem:
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
