"""Small agents, batches and problems that tests of the learner share."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from orac.config import presets
from orac.config.schema import AgentConfig, Config, Constraint, PivotConfig
from orac.core import agent as agent_core
from orac.core.cost_models import Context, make_problem, sample_pivot
from orac.core.risk_forms import make_learner
from orac.core.risk_forms.dual import update_pivot
from orac.core.risk_forms.implicit import ImplicitQuantile
from orac.core.types import Transition

BATCH = 24
SIZES = {"observation": 3, "action": 2}


def small_config(algo, num_constraints=1, **changes):
    """Return a preset with small networks. The two constraints have different tails."""
    constraints = (Constraint("cost", 4.0, 0.25), Constraint("other", 8.0, 0.5))
    agent = AgentConfig(
        hidden_sizes=(16, 16),
        embedding_size=8,
        num_quantiles=8,
        num_policy_quantiles=6,
        num_cost_critics=2,
        layer_norm=True,
    )
    config = Config(constraints=constraints[:num_constraints], agent=agent)
    config = presets.with_algorithm(config, algo)
    return replace(config, agent=replace(config.agent, **changes))


def episodic(config):
    pivot = PivotConfig(mode="episodic")
    return replace(config, agent=replace(config.agent, pivot=pivot))


def problem_for(config):
    return make_problem(
        SIZES["observation"],
        SIZES["action"],
        config.constraints,
        episode_length=10,
        cost_discount=config.agent.cost_discount,
    )


@cache
def learner_of(config):
    """Return the learner of a small config; it is the same object for equal configs."""
    return make_learner(problem_for(config), config.agent)


@cache
def compiled_init(config):
    return jax.jit(lambda key: agent_core.init(key, learner_of(config)))


def make_agent(config, seed=0):
    return compiled_init(config)(jax.random.key(seed))


def make_batch(config, seed=0):
    """Return random transitions, of which some are terminated and some truncated."""
    keys = iter(jax.random.split(jax.random.key(100 + seed), 8))
    count = len(config.constraints)

    def normal(*shape):
        return jax.random.normal(next(keys), (BATCH, *shape))

    cost, paid = jnp.abs(normal(count)), jnp.abs(normal(count))
    ending = jnp.arange(BATCH)
    return Transition(
        observation=normal(SIZES["observation"]),
        action=jnp.tanh(normal(SIZES["action"])),
        reward=normal(),
        cost=cost,
        next_observation=normal(SIZES["observation"]),
        terminated=ending % 4 == 0,
        truncated=ending % 6 == 1,
        accumulated_cost=paid,
        accumulated_discount=jax.random.uniform(next(keys), (BATCH,), minval=0.5),
    )


def make_context(config, agent, seed=0):
    pivot = sample_pivot(
        jax.random.key(seed), agent.pivot.params, config.agent.pivot.std, BATCH
    )
    return Context.start(BATCH, pivot)


class Traced:
    """A jitted function that counts how often it is traced."""

    def __init__(self, function):
        self.traces = 0

        def counted(*args):
            self.traces += 1
            return function(*args)

        self._jitted = jax.jit(counted)

    def __call__(self, *args):
        return self._jitted(*args)


@cache
def compiled_update(config, function=agent_core.update):
    """Return `update` for this config, compiled once for all tests that use it."""

    def update(key, state, batch):
        return function(key, state, batch, learner_of(config))

    return Traced(update)


def compiled_update_pivot(config):
    """Return the outer step of the dual form for this config."""
    return compiled_update(config, update_pivot)


@cache
def compiled_act(config):
    """Return `act` for this config, a function of key, state, observation, context and radius."""

    def act(*args):
        return agent_core.act(*args, learner_of(config))

    return Traced(act)


def assert_close(left, right, tolerance=1e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
        left,
        right,
    )


def assert_same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def differ(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return any((a != b).any() for a, b in pairs)


def with_multiplier(agent, value):
    value = jnp.broadcast_to(jnp.float32(value), agent.multiplier.value.shape)
    return agent._replace(multiplier=agent.multiplier._replace(value=value))


def with_temperature(agent, value):
    params = jnp.log(jnp.float32(value))
    return agent._replace(log_temperature=agent.log_temperature._replace(params=params))


def with_costs_about(agent, value):
    """Return the agent with `value` added to the outputs of its cost critics."""

    def lifted(member):
        if isinstance(member, ImplicitQuantile):
            return member._replace(output=raised(member.output))
        return (*member[:-1], raised(member[-1]))

    def raised(layer):
        return layer._replace(bias=layer.bias + value)

    members = tuple(map(lifted, agent.cost_critics.params))
    return agent._replace(cost_critics=agent.cost_critics._replace(params=members))
