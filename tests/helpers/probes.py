"""Tiny environments with known solutions, and a function that trains an agent in them.

Every probe has two observation features, one action in [-1, 1] and episodes of at most two
steps. `practise` runs the training loop in rounds of acting and learning.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from orac.config import presets
from orac.config.schema import (
    AgentConfig,
    Config,
    Constraint,
    EnvConfig,
    ExplorationConfig,
    MultiplierConfig,
    PivotConfig,
    TrainingConfig,
)
from orac.core import agent as agent_core
from orac.core import critics, replay
from orac.core.cost_models import Context, pivot_location
from orac.core.risk_forms.fixed_quantiles import grid_quantiles
from orac.core.risk_forms.implicit import for_each_constraint, level_quantiles
from orac.envs.base import EnvSpec, Step, step_batch, to_box
from orac.training import device_loop
from orac.training.state import empty_replay, learner_for
from orac.training.train_step import (
    StepBatch,
    choose_action,
    make_transition,
    next_context,
    update_if_due,
)

HERE = jnp.array([1.0, 0.0])
"""The first observation of every probe that shows only one."""


def spec_of(name, num_costs=1):
    return EnvSpec(
        name=name,
        observation_size=2,
        action_low=(-1.0,),
        action_high=(1.0,),
        episode_length=2,
        cost_names=("cost", "other")[:num_costs],
    )


def last_step(reward, *cost):
    """Return the only step of an environment with one step."""
    return (), Step(
        observation=jnp.zeros(2),
        reward=jnp.asarray(reward, jnp.float32),
        cost=jnp.stack([jnp.asarray(c, jnp.float32) for c in cost]),
        terminated=jnp.array(True),
        truncated=jnp.array(False),
        metrics={},
    )


@dataclass(frozen=True)
class FixedReward:
    """One step with reward 3 and cost 1, so every action has the value 3 and the cost 1."""

    spec = spec_of("FixedReward")

    def reset(self, key):
        return (), HERE

    def step(self, key, state, action):
        return last_step(3.0, 1.0)


@dataclass(frozen=True)
class SeenReward:
    """One step; the first feature is -1 or 1 and is the reward; the cost is 2 or 4."""

    spec = spec_of("SeenReward")

    def reset(self, key):
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        return sign, sign * HERE

    def step(self, key, state, action):
        _, step = last_step(state, 3.0 + state)
        return state, step


@dataclass(frozen=True)
class TwoSteps:
    """Two steps. The first has no reward and no cost, the second has reward 2 and cost 5.

    At the second step the values are 2 and 5, so they are discount * 2 and cost discount * 5
    at the first.
    """

    spec = spec_of("TwoSteps")
    second = (0.0, 1.0)

    def reset(self, key):
        return jnp.array(False), HERE

    def step(self, key, state, action):
        return jnp.array(True), Step(
            observation=jnp.where(state, jnp.zeros(2), jnp.array(self.second)),
            reward=jnp.where(state, 2.0, 0.0),
            cost=jnp.where(state, 5.0, 0.0)[None],
            terminated=state,
            truncated=jnp.array(False),
            metrics={},
        )


@dataclass(frozen=True)
class ActionMatters:
    """One step; reward -(action - x / 2)^2 for a first feature x of -1 or 1; cost 1.

    The best action is x / 2, and its value is 0. The cost is far below the limit, so the
    multiplier of any agent ends at 0.
    """

    spec = spec_of("ActionMatters")

    def reset(self, key):
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        return sign, sign * HERE

    def step(self, key, state, action):
        _, step = last_step(-((action[0] - state / 2) ** 2), 1.0)
        return state, step


@dataclass(frozen=True)
class TwoAtoms:
    """One step with reward 0, and a cost of 20 with probability 0.15 and of 2 otherwise.

    Quantiles below level 0.85 are 2 and those above are 20; the mean is 4.7.
    """

    spec = spec_of("TwoAtoms")
    probability = 0.15

    def reset(self, key):
        return (), HERE

    def step(self, key, state, action):
        bad = jax.random.bernoulli(key, self.probability)
        return last_step(0.0, jnp.where(bad, 20.0, 2.0))


@dataclass(frozen=True)
class TwoDoors:
    """One step. Actions above 0 take a risky door with reward 10, all others a safe door.

    The risky door costs 40 with probability 0.1 and otherwise 0, so 4 on average. The safe
    door always costs 4.2. A limit of 9 on the mean allows both doors, so the risky one is
    best. Its CVaR is 4 / tail for tails from 0.1 to 1, and 40 below 0.1. For tails below 4/9
    it is above 9, so only the safe door is allowed. A policy that samples its action may
    still take the risky door sometimes: at a tail of 0.1, with a probability of
    (9 - 4.2) / (40 - 4.2) = 0.134.
    """

    spec = spec_of("TwoDoors")

    def reset(self, key):
        return (), HERE

    def step(self, key, state, action):
        risky = action[0] > 0
        caught = jax.random.bernoulli(key, 0.1)
        cost = jnp.where(risky, jnp.where(caught, 40.0, 0.0), 4.2)
        return last_step(jnp.where(risky, 10.0, 0.0), cost)


@dataclass(frozen=True)
class TwoCosts:
    """One step; reward -(action - 0.8)^2, costs 10 (1 + action) and 1; both limits are 9.

    The first constraint is active: the best action is -0.1, where the slope of the reward,
    1.8, equals the multiplier times the slope of the cost, 10. So the multiplier is 0.18.
    The multiplier of the second constraint is 0.
    """

    spec = spec_of("TwoCosts", num_costs=2)

    def reset(self, key):
        return (), HERE

    def step(self, key, state, action):
        return last_step(-((action[0] - 0.8) ** 2), 10 * (1 + action[0]), 1.0)


def probe_config(algo, num_costs=1, tail=0.1):
    """Return settings for short runs. The limit of 10 is 9 in the critics' units.

    The cost of 10 is spread over two steps, and the discount is 0.8: 5 + 0.8 * 5 = 9.
    """
    names = ("cost", "other")[:num_costs]
    agent = AgentConfig(
        discount=0.9,
        cost_discount=0.8,
        hidden_sizes=(32, 32),
        embedding_size=16,
        num_quantiles=16,
        num_policy_quantiles=8,
        num_cost_critics=2,
        kappa=1.0,
        actor_learning_rate=3e-3,
        reward_critic_learning_rate=3e-3,
        cost_critic_learning_rate=1e-2,
        # The entropy bonus is negligible, unless a test changes it.
        initial_temperature=1e-4,
        temperature_learning_rate=0.0,
        polyak=0.1,
        multiplier=MultiplierConfig(learning_rate=2e-3),
        pivot=PivotConfig(every=16, learning_rate=1e-2),
        exploration=ExplorationConfig(shift_radius=1.0, decay=False),
    )
    config = Config(
        env=EnvConfig("probe"),
        constraints=tuple(Constraint(name, 10.0, tail) for name in names),
        agent=agent,
        training=TrainingConfig(
            num_envs=16, learning_starts=1024, batch_size=64, buffer_size=4096
        ),
    )
    return presets.with_algorithm(config, algo)


@partial(jax.jit, static_argnames=("env", "config"))
def collect(key, state, env, config):
    """Run one round of the training loop without its gradient steps."""
    act_key, env_key, pivot_key = jax.random.split(key, 3)
    learner = learner_for(env.spec, config)
    action, _ = choose_action(act_key, state, learner, config)
    env_state, observation, step = step_batch(
        env, env_key, state.env, to_box(env.spec, action)
    )
    steps = StepBatch(observation, *step)
    row = make_transition(state, action, steps, learner)
    context = next_context(
        pivot_key, state.agent, state.context, step.cost, step.done, learner
    )
    return state._replace(
        env=env_state,
        observation=observation,
        replay=replay.add(state.replay, row),
        context=context,
        rounds=state.rounds + 1,
    )


@partial(jax.jit, static_argnames=("env", "config"))
def _update(key, agent, buffer, rounds, env, config):
    learner = learner_for(env.spec, config)
    return update_if_due(key, agent, buffer, rounds, learner, config)


def practise(env, config, rounds, temperature=None, multiplier=None, seed=0):
    """Act and learn for this many rounds of 16 steps and 16 gradient steps.

    Returns the state, and the values of each metric in the rounds with gradient steps.
    """
    key = jax.random.key(seed)
    learner = learner_for(env.spec, config)
    state = device_loop.init(key, env, learner, config)
    state = state._replace(replay=empty_replay(learner.problem, config))
    state = state._replace(agent=starting_from(state.agent, temperature, multiplier))
    history = []
    for i in range(rounds):
        act_key, learn_key = jax.random.split(jax.random.fold_in(key, i + 3))
        state = collect(act_key, state, env, config)
        agent, metrics, updated = _update(
            learn_key, state.agent, state.replay, state.rounds, env, config
        )
        state = state._replace(agent=agent)
        if updated:
            choice = _mean_action(agent, HERE[None], env, config)[0, 0]
            history.append({"choice": choice, **metrics})
    return state, {
        name: np.array([float(row[name]) for row in history]) for name in history[0]
    }


@partial(jax.jit, static_argnames=("env", "config"))
def _mean_action(agent, observation, env, config):
    return agent_core.mean_action(
        agent_core.deployed_policy(agent), observation, learner_for(env.spec, config)
    )


def starting_from(agent, temperature, multiplier):
    """Return the agent with another temperature or multiplier. Both may be traced."""
    if temperature is not None:
        log_temperature = agent.log_temperature._replace(
            params=jnp.log(jnp.float32(temperature))
        )
        agent = agent._replace(log_temperature=log_temperature)
    if multiplier is not None:
        value = jnp.full_like(agent.multiplier.value, multiplier)
        agent = agent._replace(multiplier=agent.multiplier._replace(value=value))
    return agent


def inputs_at(state, observation, env, config):
    """Return the networks' inputs at one observation; in the dual form, at the mean pivot."""
    context = Context.start(1, pivot_location(state.agent.pivot.params))
    costs = learner_for(env.spec, config).costs
    return costs.network_inputs(jnp.asarray(observation)[None], context)


def values_at(state, observation, action, env, config):
    """Return the value of an action according to each reward critic."""
    inputs = inputs_at(state, observation, env, config)
    params = state.agent.reward_critics.params
    return np.asarray(agent_core.reward_values(params, inputs, jnp.array([[action]])))


def quantiles_at(state, observation, action, env, config):
    """Return quantiles of the remaining cost at even levels (constraint, ensemble, quantile)."""
    problem = learner_for(env.spec, config).problem
    inputs = inputs_at(state, observation, env, config)
    scalar = config.agent.risk_form == "scalar"
    even = critics.uniform_fractions(1 if scalar else config.agent.num_quantiles)
    members, action = state.agent.cost_critics.params, jnp.array([[action]])
    if config.agent.risk_form == "implicit":
        levels = for_each_constraint(even.levels, problem)
        quantiles = level_quantiles(
            members, inputs, action, levels, problem, config.agent
        )
    else:
        count = len(even.levels)
        quantiles = grid_quantiles(
            members, inputs, action, count, problem, config.agent
        )
    return np.asarray(quantiles[:, :, 0])


def choice_at(state, observation, env, config):
    """Return the actor's mean action."""
    observation = jnp.asarray(observation)[None]
    return float(_mean_action(state.agent, observation, env, config)[0, 0])


def with_agent(config, **changes):
    return replace(config, agent=replace(config.agent, **changes))
