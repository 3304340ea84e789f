"""Tests of the dual form's pivots: their values in a batch, and the outer step on known critics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agent_examples import (
    BATCH,
    assert_close,
    assert_same_bits,
    compiled_update_pivot,
    differ,
    episodic,
    learner_of,
    make_agent,
    make_batch,
    problem_for,
    small_config,
    with_costs_about,
)
from orac.core import agent as agent_core
from orac.core import networks
from orac.core.cost_models import sample_pivot
from orac.core.optimizers import ParamState
from orac.core.risk_forms.dual import update_pivot

KEY = jax.random.key(3)
LIN = small_config("wcsac-lin", 2)


def constant_critics(members, value):
    """The same networks with every weight 0: they answer `value` to anything."""
    zeros = jax.tree.map(jnp.zeros_like, members)
    return tuple(
        (*mlp[:-1], mlp[-1]._replace(bias=mlp[-1].bias + value)) for mlp in zeros
    )


def pivot_moved(reward_slope, cost, config):
    """How far the sampler's parameter goes when reward is slope * pivot, cost constant."""
    problem, agent = problem_for(config), make_agent(config)
    # Inputs are observation, pivot, action; one unit of each layer carries the pivot on.
    pivot_row = problem.observation_size

    def sloped(mlp):
        first, second, last = jax.tree.map(jnp.zeros_like, mlp)
        return (
            first._replace(weight=first.weight.at[pivot_row, 0].set(1.0)),
            second._replace(weight=second.weight.at[0, 0].set(1.0)),
            last._replace(weight=last.weight.at[0, 0].set(reward_slope)),
        )

    reward = tuple(map(sloped, agent.reward_critics.params))
    agent = agent._replace(
        reward_critics=ParamState(reward, None),
        cost_critics=ParamState(
            constant_critics(agent.cost_critics.params, cost), None
        ),
    )
    agent = update_pivot(KEY, agent, make_batch(config), learner_of(config))
    return float(agent.pivot.params[0])


def test_the_outer_step_moves_the_pivot_where_it_should():
    config = small_config("wcsac-lin", layer_norm=False)
    limit = float(problem_for(config).limits[0])
    # A cost far below the pivot's half of the limit: only the reward has a say.
    assert pivot_moved(+2.0, 0.0, config) == pytest.approx(3e-4, rel=1e-3)
    assert pivot_moved(-2.0, 0.0, config) == pytest.approx(-3e-4, rel=1e-3)
    assert pivot_moved(0.0, 0.0, config) == 0
    # A cost of 0.9 limits at tail 0.25: relu(0.9 - 0.5) / 0.25 + 0.5 = 2.1 limits, a
    # violation, which falls by 3 per unit of pivot: up, against a reward that says down.
    assert pivot_moved(-2.0, 0.9 * limit, config) == pytest.approx(3e-4, rel=1e-3)
    # A cost of 0.6 limits: 0.9 limits, allowed, so the reward decides again.
    assert pivot_moved(-2.0, 0.6 * limit, config) == pytest.approx(-3e-4, rel=1e-3)


def test_the_outer_step_touches_the_pivot_alone():
    config = small_config("wcsac-lin", layer_norm=False)
    agent = make_agent(config)
    after = update_pivot(KEY, agent, make_batch(config), learner_of(config))
    assert differ(after.pivot, agent.pivot)
    assert_same_bits(after._replace(pivot=agent.pivot), agent)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(episodic(LIN), id="episodic"),
        pytest.param(LIN, id="stationary", marks=pytest.mark.slow),
    ],
)
def test_the_outer_step_is_traced_once_and_compiled_equals_eager(config):
    outer = compiled_update_pivot(config)
    state = with_costs_about(make_agent(config), 5.0)
    for seed in range(3):
        key, batch = jax.random.key(seed), make_batch(config, seed)
        after = outer(key, state, batch)
        eager = update_pivot(key, state, batch, learner_of(config))
        assert_close(after, eager)
        assert (after.pivot.params != state.pivot.params).all()
        state = after
    assert outer.traces == 1


def test_a_batch_gets_fresh_pivots_the_same_before_and_after_the_step():
    config = small_config("wcsac-lin", 2)
    agent, batch = make_agent(config), make_batch(config)
    pivot = sample_pivot(KEY, agent.pivot.params, config.agent.pivot.std, BATCH)
    prepared, context, inputs, next_inputs = agent_core.prepare_batch(
        agent, batch, pivot, learner_of(config)
    )
    np.testing.assert_array_equal(inputs[:, -2:], pivot)
    np.testing.assert_array_equal(next_inputs[:, -2:], pivot)
    np.testing.assert_array_equal(inputs[:, :-2], batch.observation)
    np.testing.assert_array_equal(next_inputs[:, :-2], batch.next_observation)
    assert_same_bits(prepared, batch)
    np.testing.assert_array_equal(context.accumulated_cost, batch.accumulated_cost)
    assert len(np.unique(pivot)) == pivot.size


def test_evaluation_uses_the_mean_pivot():
    config = small_config("wcsac-lin")
    agent = make_agent(config)
    agent = agent._replace(pivot=agent.pivot._replace(params=jnp.array([0.4])))
    observation = make_batch(config).observation
    share = jnp.full((BATCH, 1), jax.nn.sigmoid(0.4))
    inputs = jnp.concatenate([observation, share], axis=1)
    mean, _ = networks.apply_actor(agent.actor.params, inputs)
    found = agent_core.mean_action(
        agent_core.deployed_policy(agent), observation, learner_of(config)
    )
    np.testing.assert_allclose(found, jnp.tanh(mean), rtol=1e-6)
