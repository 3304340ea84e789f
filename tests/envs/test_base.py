"""Tests of batches of JAX environments: true last observations, restarts of ended episodes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toy_envs import BatchedCounter, Counter
from orac.envs.base import (
    BatchedEnvironment,
    Environment,
    check_shapes,
    reset_batch,
    step_batch,
    to_box,
)
from orac.envs.maze.env import GuardedMaze

ENVIRONMENTS = [Counter(), BatchedCounter()]

start = jax.jit(reset_batch, static_argnums=(0, 2))
advance = jax.jit(step_batch, static_argnums=0)


def run(env, num_steps, num_envs=6):
    """Return every state, observation and step of a batch, one entry per call."""
    state, observation = start(env, jax.random.key(0), num_envs)
    history = [(state, observation, None)]
    for number in range(num_steps):
        key = jax.random.fold_in(jax.random.key(1), number)
        action = jnp.full((num_envs, 1), 0.5)
        history.append(advance(env, key, history[-1][0], action))
    return history


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_last_and_first_observation_are_returned_separately(env):
    history = run(env, 3)
    first = history[0][1]
    _, observation, step = history[3]
    assert step.done.all()
    np.testing.assert_array_equal(step.observation, first + 3)
    np.testing.assert_array_equal(observation % 100, 0)
    assert (observation != first).any()


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_only_ended_episodes_restart(env):
    (begin, _), _, _ = run(env, 0)[0]
    count = jnp.array([2, 0, 1, 2, 0, 1], jnp.int32)
    state, observation, step = advance(
        env, jax.random.key(5), (begin, count), jnp.zeros((6, 1))
    )
    assert step.done.tolist() == [True, False, False, True, False, False]
    running = ~step.done
    np.testing.assert_array_equal(state[0][running], begin[running])
    np.testing.assert_array_equal(state[1], jnp.where(step.done, 0, count + 1))
    np.testing.assert_array_equal(observation[running], step.observation[running])


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_termination_and_truncation_are_separate(env):
    (begin, _), _, _ = run(env, 0)[0]
    _, _, step = run(env, 3)[3]
    np.testing.assert_array_equal(step.terminated, begin % 200 == 100)
    np.testing.assert_array_equal(step.truncated, begin % 200 == 0)


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_new_episodes_differ_from_each_other_and_from_earlier_ones(env):
    history = run(env, 6, num_envs=64)
    starts = [np.asarray(history[number][0][0]) for number in (0, 3, 6)]
    assert all(len(set(one.tolist())) > 50 for one in starts)
    assert (starts[0] != starts[1]).mean() > 0.9
    assert (starts[1] != starts[2]).mean() > 0.9


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_same_key_gives_the_same_run(env):
    once, again = run(env, 4), run(env, 4)
    for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_batch_can_be_scanned_and_vmapped_over_seeds():
    def final_positions(key):
        state, _ = reset_batch(GuardedMaze(), key, 8)

        def one_step(state, number):
            step_key = jax.random.fold_in(key, number)
            action = jnp.ones((8, 2))
            return step_batch(GuardedMaze(), step_key, state, action)[0], None

        return jax.lax.scan(one_step, state, jnp.arange(50))[0].xy

    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.jit(jax.vmap(final_positions))(keys)
    assert (together[0] != together[1]).all()
    np.testing.assert_allclose(
        jax.jit(final_positions)(keys[2]), together[2], rtol=1e-6
    )


def test_protocols_distinguish_batched_environments():
    assert isinstance(Counter(), Environment)
    assert not isinstance(Counter(), BatchedEnvironment)
    assert isinstance(BatchedCounter(), BatchedEnvironment)
    assert isinstance(GuardedMaze(), BatchedEnvironment)


def test_to_box_scales_actions_of_agents():
    spec = Counter().spec
    actions = to_box(spec, jnp.array([[-1.0], [0.0], [0.5], [1.0]]))
    assert actions[:, 0].tolist() == [-2, 0, 1, 2]
    assert (spec.action_size, spec.num_costs) == (1, 1)


@dataclass(frozen=True)
class Misshapen(Counter):
    """A `Counter` one of whose outputs has another value than it should."""

    field: str = ""
    value: object = None

    def step(self, key, state, action):
        state, step = super().step(key, state, action)
        return state, step._replace(**{self.field: jnp.array(self.value)})


@dataclass(frozen=True)
class MisshapenBatch(Misshapen):
    """A `Misshapen` whose fault is only in `step_many`."""

    def step(self, key, state, action):
        return Counter.step(self, key, state, action)

    def reset_many(self, key, num_envs):
        return jax.vmap(self.reset)(jax.random.split(key, num_envs))

    def step_many(self, key, state, action):
        state, step = jax.vmap(self.step, (None, 0, 0))(key, state, action)
        return state, step._replace(**{self.field: jnp.array(self.value)})


SHAPES = [
    (
        Misshapen(1, "cost", 1.0),
        "return the cost",
        "(1,) (one entry per cost: first), got the",
    ),
    (
        Misshapen(2, "cost", (1.0,)),
        "return the cost",
        "(2,) (one entry per cost: first, second",
    ),
    (Misshapen(1, "reward", (0.0,)), "return the reward", "() (a single number), got "),
    (
        Misshapen(1, "observation", 0.0),
        "return the observation",
        "(1,) (`observation_size` entries), got the shape (). Correct the observation or the spec.",
    ),
    (Misshapen(1, "truncated", (False,)), "the truncated", "() (a single flag), got"),
    (
        MisshapenBatch(1, "cost", (1.0, 1.0)),
        "step_many of",
        "(1,) (one entry per cost: first)",
    ),
]


@pytest.mark.parametrize(("env", "what", "shapes"), SHAPES)
def test_outputs_of_another_shape_than_the_spec_declares_are_refused(env, what, shapes):
    with pytest.raises(ValueError) as caught:
        check_shapes(env)
    assert what in str(caught.value) and shapes in str(caught.value)


@pytest.mark.parametrize("num_costs", [0, 1, 2])
def test_outputs_that_fit_the_spec_are_accepted(num_costs):
    check_shapes(Counter(num_costs))
    check_shapes(GuardedMaze())
