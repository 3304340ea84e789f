"""The ring beside a shadow deque that sees the same rows."""

from collections import deque
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
