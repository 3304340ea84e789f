"""Tests of resumed runs whose episodes restart, because an environment's state was not saved."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from helpers.gym_probes import Counter
from orac.config import presets
from orac.config.schema import TrainingConfig
from orac.core.cost_models import Context
from orac.envs.gym_adapter.make import make_host
from orac.training.host_loop import HostRunner
from orac.training.train_step import Totals

NUM_ENVS = 3


@pytest.fixture(scope="module")
def runner():
    config = presets.with_algorithm(presets.general("counter"), "orac-lin")
    config = replace(
        config,
        agent=replace(config.agent, hidden_sizes=(8,), num_cost_critics=1),
        training=TrainingConfig(num_envs=NUM_ENVS, buffer_size=12),
    )
    env = make_host(Counter, NUM_ENVS, episode_length=3)
    return HostRunner(env, config)


def in_the_middle(state, rounds):
    """The same state two steps into its episodes."""
    return state._replace(
        context=Context(
            state.context.pivot, jnp.full((NUM_ENVS, 1), 3.0), jnp.full(NUM_ENVS, 0.98)
        ),
        totals=Totals(*(x + 2 for x in state.totals)),
        rounds=jnp.int32(rounds),
    )


def pivots_after_restart(runner, state):
    assert runner.restore(state, None) is False
    return np.asarray(runner.state.context.pivot)


def test_episodes_that_start_anew_have_paid_nothing_and_draw_their_own_pivots(runner):
    before = in_the_middle(runner.state, rounds=5)
    pivot = pivots_after_restart(runner, before)
    after = runner.state
    np.testing.assert_array_equal(after.observation, [[0, 0]] * NUM_ENVS)
    np.testing.assert_array_equal(after.context.accumulated_cost, 0)
    np.testing.assert_array_equal(after.context.accumulated_discount, 1)
    for total in after.totals:
        np.testing.assert_array_equal(total, 0)
    assert after.agent is before.agent and after.rounds == 5
    # A pivot lasts an episode: none of the old ones, and one for each environment.
    assert len({*pivot.ravel(), *np.ravel(before.context.pivot)}) == 2 * NUM_ENVS
    # The sampler's own: about half the limit.
    assert (abs(pivot - 0.5) < 0.25).all()


def test_the_seed_and_the_round_decide_the_new_pivots(runner):
    # After an evaluation, and again when its checkpoint is resumed from.
    state = in_the_middle(runner.state, rounds=5)
    first = pivots_after_restart(runner, state)
    np.testing.assert_array_equal(pivots_after_restart(runner, state), first)
    later = pivots_after_restart(runner, in_the_middle(state, rounds=6))
    assert (later != first).all()


def test_a_world_that_can_be_put_back_keeps_its_pivots(runner, monkeypatch):
    monkeypatch.setattr(runner.env, "set_state", lambda state: None)
    state = in_the_middle(runner.state, rounds=5)
    assert runner.restore(state, {}) is True
    assert runner.state is state
