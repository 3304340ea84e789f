"""The replay: a ring buffer of transitions on device.

`inserted` counts every row ever added; the position and size of the ring follow from it.
Under `jit` with the state donated, `add` writes in place and never copies.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from orac.core.types import Transition


class ReplayState(NamedTuple):
    """The stored rows, and the number of rows ever inserted."""

    storage: Transition
    """Every leaf has a leading axis of the buffer's capacity."""
    inserted: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Maximum number of transitions."""
        return self.storage.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """Number of transitions that it holds now."""
        return jnp.minimum(self.inserted, self.capacity)


def init(capacity: int, example: Transition) -> ReplayState:
    """Return an empty ring with rows like `example`, one transition without a batch axis."""
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}.")
    storage = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example
    )
    return ReplayState(storage, jnp.int32(0))


def add(
    state: ReplayState, rows: Transition, valid: Bool[Array, " batch"] | None = None
) -> ReplayState:
    """Insert a batch of rows, overwriting the oldest when full.

    Rows that are not `valid` are left out: some vector environments use a call only to
    reset, which is not a transition.
    """
    count = rows.reward.shape[0]
    if count > state.capacity:
        raise ValueError(
            f"cannot add {count} rows at once to a replay of {state.capacity}. "
            "Use fewer environments or a larger buffer_size."
        )
    if valid is None:
        index = (state.inserted + jnp.arange(count)) % state.capacity
        inserted = state.inserted + count
    else:
        places = jnp.cumsum(valid) - 1
        index = (state.inserted + places) % state.capacity
        # An index past the end is dropped by the scatter below.
        index = jnp.where(valid, index, state.capacity)
        inserted = state.inserted + valid.sum(dtype=jnp.int32)
    storage = jax.tree.map(
        lambda ring, new: ring.at[index].set(new, mode="drop"), state.storage, rows
    )
    return ReplayState(storage, inserted)


def sample(key: Key[Array, ""], state: ReplayState, batch_size: int) -> Transition:
    """Sample rows uniformly with replacement from those that the ring holds."""
    index = jax.random.randint(key, (batch_size,), 0, jnp.maximum(state.size, 1))
    return jax.tree.map(lambda ring: ring[index], state.storage)


def example_transition(
    observation_size: int, action_size: int, num_costs: int
) -> Transition:
    """Return a row of zeros with the shapes of a problem."""
    return Transition(
        observation=jnp.zeros(observation_size),
        action=jnp.zeros(action_size),
        reward=jnp.zeros(()),
        cost=jnp.zeros(num_costs),
        next_observation=jnp.zeros(observation_size),
        terminated=jnp.zeros((), bool),
        truncated=jnp.zeros((), bool),
        accumulated_cost=jnp.zeros(num_costs),
        accumulated_discount=jnp.ones(()),
    )
