"""Tests of the replay buffer against a deque that gets the same rows."""

from collections import deque
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.config.schema import AgentConfig
from orac.core import replay
from orac.core.types import Transition

CAPACITY = 7
add = jax.jit(replay.add, donate_argnums=0)


def rows(ids):
    """Transitions that carry their number in every field."""
    numbers = jnp.asarray(ids, jnp.float32)
    column = numbers[:, None]
    return Transition(
        observation=column * jnp.ones(3),
        action=column * jnp.ones(2),
        reward=numbers,
        cost=column,
        next_observation=column * jnp.ones(3) + 0.5,
        terminated=numbers % 2 == 0,
        truncated=numbers % 3 == 0,
        accumulated_cost=column,
        accumulated_discount=numbers,
    )


def empty(capacity=CAPACITY):
    return replay.init(capacity, replay.example_transition(3, 2, 1))


def contents(state):
    """Rows from the oldest to the newest, by number."""
    size, inserted = int(state.size), int(state.inserted)
    order = [(inserted - size + i) % state.capacity for i in range(size)]
    stored = jax.tree.map(lambda leaf: np.asarray(leaf)[order], state.storage)
    ids = stored.reward.tolist()
    for ours, theirs in zip(stored, rows(ids) if ids else stored, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return ids


def test_an_empty_ring_holds_nothing():
    state = empty()
    assert (state.capacity, int(state.size), int(state.inserted)) == (CAPACITY, 0, 0)
    assert contents(state) == []


@pytest.mark.parametrize("seed", range(4))
def test_the_ring_holds_what_a_deque_of_its_capacity_holds(seed):
    numbers = np.random.default_rng(seed)
    state, shadow, count = empty(), deque(maxlen=CAPACITY), 0
    for _ in range(12):
        batch = int(numbers.integers(1, 5))
        ids = list(range(count, count + batch))
        state = add(state, rows(ids))
        shadow.extend(ids)
        count += batch
        assert contents(state) == list(shadow)
    assert int(state.inserted) == count > 2 * CAPACITY


def test_wrap_around_overwrites_the_oldest_in_place():
    state = add(add(empty(), rows([0, 1, 2, 3, 4])), rows([5, 6, 7, 8]))
    np.testing.assert_array_equal(state.storage.reward, [7, 8, 2, 3, 4, 5, 6])
    assert int(state.size) == CAPACITY and int(state.inserted) == 9


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_not_valid_are_left_out(seed):
    numbers = np.random.default_rng(seed)
    state, shadow, count = empty(), deque(maxlen=CAPACITY), 0
    for _ in range(12):
        ids = np.arange(count, count + 4)
        valid = numbers.random(4) < 0.6
        state = add(state, rows(ids), jnp.asarray(valid))
        shadow.extend(ids[valid].tolist())
        count += 4
        assert contents(state) == list(shadow)


def test_an_add_of_nothing_valid_changes_nothing():
    state = add(empty(), rows([0, 1]))
    before = contents(state)
    state = add(state, rows([2, 3]), jnp.zeros(2, bool))
    assert contents(state) == before and int(state.inserted) == 2


def test_a_donated_add_writes_in_place():
    state = empty(1000)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.storage)]
    for start in range(0, 2000, 4):
        state = add(state, rows(range(start, start + 4)))
    after = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.storage)]
    assert after == pointers


def test_a_donated_ring_is_gone():
    state = empty()
    add(state, rows([0]))
    assert state.storage.reward.is_deleted()


def test_samples_are_uniform_over_what_was_inserted():
    sample = jax.jit(replay.sample, static_argnums=2)
    state = add(empty(), rows([0, 1, 2]))
    few = np.asarray(sample(jax.random.key(0), state, 3000).reward)
    np.testing.assert_array_equal(np.unique(few), [0, 1, 2])
    full = add(add(state, rows([3, 4, 5, 6])), rows([7, 8]))
    drawn = np.asarray(sample(jax.random.key(1), full, 7000).reward)
    counts = np.bincount(drawn.astype(int), minlength=9)
    assert (counts[:2] == 0).all()
    # 1000 each expected, deviation about 29.
    assert (np.abs(counts[2:] - 1000) < 150).all()


def test_a_sample_keeps_rows_together_and_follows_its_key():
    state = add(empty(), rows([0, 1, 2, 3]))
    sample = partial(replay.sample, state=state, batch_size=16)
    batch = sample(jax.random.key(0))
    for ours, theirs in zip(batch, rows(batch.reward), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(sample(jax.random.key(0)).reward, batch.reward)
    assert not np.array_equal(sample(jax.random.key(1)).reward, batch.reward)


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        empty(0)
    with pytest.raises(ValueError, match="cannot add 8 rows at once to a replay of 7"):
        replay.add(empty(), rows(range(8)))


def test_one_more_row_than_fits_is_refused_and_as_many_as_fit_are_not():
    state = add(empty(), rows(range(CAPACITY)))
    assert contents(state) == list(range(CAPACITY))


def n_step_config(n_step=3, discount=0.5, cost_discount=0.25):
    return AgentConfig(n_step=n_step, discount=discount, cost_discount=cost_discount)


def stream(num_rounds, num_envs=2, ends=(), truncations=(), resets=()):
    """Rounds of all environments; reward 1 + t + 100 env, cost twice that.

    `ends`, `truncations` and `resets` name (round, environment) pairs.
    """
    batches = []
    for t in range(num_rounds):
        numbers = np.array([1.0 + t + 100 * e for e in range(num_envs)], np.float32)
        column = numbers[:, None]
        ended, cut, reset = (
            np.array([(t, e) in pairs for e in range(num_envs)])
            for pairs in (ends, truncations, resets)
        )
        batches.append(
            Transition(
                observation=column * np.ones(3, np.float32),
                action=column * np.ones(2, np.float32),
                reward=numbers,
                cost=2 * column,
                next_observation=column * np.ones(3, np.float32) + np.float32(0.5),
                terminated=ended,
                truncated=cut,
                accumulated_cost=column,
                accumulated_discount=numbers,
                steps=(~reset).astype(np.int32),
            )
        )
    return batches


def ring_of(batches, capacity=8):
    example = replay.example_transition(3, 2, 1)._replace(steps=jnp.int32(0))
    state = replay.init(capacity, example)
    for batch in batches:
        # The rows that only reset are flagged as not valid, and stored all the same.
        state = add(state, batch, batch.steps > 0)
    return state


@partial(jax.jit, static_argnums=(1, 2))
def drawn(state, num_envs, config):
    return replay.sample_n_step(jax.random.key(0), state, 400, num_envs, config)


def by_number(batch):
    """The rows of a batch by the number of their first step; equal ones are the same."""
    batch = jax.tree.map(np.asarray, batch)
    found = {}
    for i, number in enumerate(batch.observation[:, 0].tolist()):
        row = jax.tree.map(lambda leaf, i=i: leaf[i].tolist(), batch)
        assert found.setdefault(number, row) == row
    return found


def targets(state, num_envs=2, config=None):
    return by_number(drawn(state, num_envs, config or n_step_config()))


def test_n_step_targets_of_one_episode_by_hand():
    state = ring_of(stream(4, num_envs=1))
    found = targets(state, num_envs=1)
    # Rewards are 1, 2, 3, 4 at discount 0.5, costs 2, 4, 6, 8 at 0.25.
    assert {n: row.reward for n, row in found.items()} == {
        1.0: 1 + 2 / 2 + 3 / 4,
        2.0: 2 + 3 / 2 + 4 / 4,
        3.0: 3 + 4 / 2,  # The write head is one step after it,
        4.0: 4.0,  # and directly after this one.
    }
    assert {n: row.cost for n, row in found.items()} == {
        1.0: [2 + 4 / 4 + 6 / 16],
        2.0: [4 + 6 / 4 + 8 / 16],
        3.0: [6 + 8 / 4],
        4.0: [8.0],
    }
    assert {n: row.steps for n, row in found.items()} == {1: 3, 2: 3, 3: 2, 4: 1}
    # The next observation is that of the last step, everything else of the first.
    assert {n: row.next_observation[0] for n, row in found.items()} == {
        1: 3.5,
        2: 4.5,
        3: 4.5,
        4: 4.5,
    }
    assert all(row.accumulated_cost == [n] for n, row in found.items())
    assert all(row.action == [n, n] for n, row in found.items())


@pytest.mark.parametrize("kind", ["ends", "truncations"])
def test_a_chain_stops_at_the_end_of_an_episode(kind):
    batches = stream(6, num_envs=1, **{kind: [(2, 0)]})
    found = targets(ring_of(batches), num_envs=1)
    assert {n: row.steps for n, row in found.items()} == dict(
        zip(range(1, 7), (3, 2, 1, 3, 2, 1), strict=True)
    )
    assert found[2].reward == 2 + 3 / 2 and found[3].reward == 3
    # A target bootstraps after a truncation, but not after a termination.
    for n in (1, 2, 3):
        assert found[n].terminated == (kind == "ends")
        assert found[n].truncated == (kind == "truncations")
        assert found[n].next_observation[0] == 3.5
    assert not any(found[n].terminated or found[n].truncated for n in (4, 5, 6))


def test_environments_do_not_mix():
    state = ring_of(stream(3, ends=[(1, 1)]))
    found = targets(state)
    assert {n: (row.reward, row.steps) for n, row in found.items()} == {
        1: (1 + 2 / 2 + 3 / 4, 3),
        2: (2 + 3 / 2, 2),
        3: (3, 1),
        101: (101 + 102 / 2, 2),  # It ends at the second round.
        102: (102, 1),
        103: (103, 1),
    }
    assert [found[n].terminated for n in (1, 101, 102)] == [False, True, True]


@pytest.mark.parametrize("inserted", range(4, 10))
def test_a_chain_crosses_the_seam_of_the_ring_but_not_the_write_head(inserted):
    state = ring_of(stream(inserted))
    found = targets(state)
    newest = inserted
    for env in (0, 100):
        for n in range(newest - 3, newest + 1):
            chain = range(n, min(n + 3, newest + 1))
            row = found.pop(n + env)
            expected = sum((m + env) / 2**k for k, m in enumerate(chain))
            assert (row.reward, row.steps) == (expected, len(chain))
            assert row.next_observation[0] == chain[-1] + env + 0.5
    assert not found


def test_rows_that_only_reset_are_neither_drawn_nor_summed():
    # An episode of environment 1 ends in round 1, and round 2 only resets it.
    batches = stream(4, ends=[(1, 1)], resets=[(2, 1)])
    found = targets(ring_of(batches))
    assert set(found) == {1, 2, 3, 4, 101, 102, 104}
    assert (found[101].reward, found[101].steps) == (101 + 102 / 2, 2)
    assert found[102].steps == 1 and found[102].terminated
    assert found[1].steps == 3 and found[104].steps == 1


@pytest.mark.parametrize("inserted", range(3, 12))
def test_a_row_that_only_resets_is_not_drawn_in_the_oldest_round_either(inserted):
    # Episodes of one step: every second row only resets. In a full ring of an odd number
    # of rounds, the oldest and the newest row may both be such rows.
    even, odd = range(0, inserted, 2), range(1, inserted, 2)
    batches = stream(
        inserted, 1, ends=[(t, 0) for t in even], resets=[(t, 0) for t in odd]
    )
    found = targets(ring_of(batches, capacity=5), num_envs=1)
    assert set(found) == {t + 1 for t in even if t >= inserted - 5}
    assert all(row.steps == 1 and row.terminated for row in found.values())


@pytest.mark.parametrize("inserted", [2, 4, 7])
def test_one_step_targets_are_the_stored_rows(inserted):
    state = ring_of(stream(inserted, ends=[(2, 0)]))
    plain = jax.jit(replay.sample, static_argnums=2)(jax.random.key(1), state, 400)
    assert targets(state, config=n_step_config(1)) == by_number(plain)


def test_the_draws_of_n_step_targets_are_uniform_over_the_steps():
    state = ring_of(stream(8, 1, ends=[(2, 0)], resets=[(3, 0)]))
    sample = jax.jit(replay.sample_n_step, static_argnums=(2, 3, 4))
    batch = sample(jax.random.key(5), state, 7000, 1, n_step_config())
    counts = np.bincount(np.asarray(batch.observation[:, 0]).astype(int), minlength=9)
    # Seven steps are drawn first or second; the last one before the reset also stands in
    # for the reset where both draws met it: one in 64.
    assert counts[4] == 0
    expected = np.full(7, 7000 * (1 / 8 + 1 / 64))
    expected[2] += 7000 / 64
    steps = np.delete(counts[1:], 3)
    assert (np.abs(steps - expected) < 5 * np.sqrt(expected)).all()
