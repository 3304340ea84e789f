"""The replay: a ring buffer of transitions on device.

`inserted` counts every row ever added; the position and size of the ring follow from it.
Under `jit` with the state donated, `add` writes in place and never copies.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from orac.config.schema import AgentConfig
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
    reset, which is not a transition. With n-step targets such rows have `steps` 0 and are
    stored, so that the steps of an environment stay equally far apart.
    """
    count = rows.reward.shape[0]
    if count > state.capacity:
        raise ValueError(
            f"cannot add {count} rows at once to a replay of {state.capacity}. "
            "Use fewer environments or a larger buffer_size."
        )
    if valid is None or not isinstance(rows.steps, tuple):
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


def sample_n_step(
    key: Key[Array, ""],
    state: ReplayState,
    batch_size: int,
    num_envs: int,
    config: AgentConfig,
) -> Transition:
    """Sample rows and add up the rewards and costs of the steps that follow them.

    The next step of an environment is `num_envs` rows later. A row sums up to `n_step`
    steps; it ends earlier at the end of an episode or at the newest row of the ring. Rows
    that only reset an environment are not drawn: where the first draw is one, a second
    replaces it, and if that is one too, the last step of the episode before it (or, in the
    oldest round of the ring, the step after it).
    """
    # Choice: unlike in SAC, the entropy of the steps in between is not part of the target.
    rings, capacity = state.storage, state.capacity
    held = jnp.maximum(state.size, 1)
    first, second = jax.random.randint(key, (2, batch_size), 0, held)
    assert not isinstance(rings.steps, tuple)
    before, after = (second - num_envs) % capacity, (second + num_envs) % capacity
    # In the oldest round there is nothing before a row; the step after it is there.
    neighbour = jnp.where(rings.steps[before] > 0, before, after)
    spare = jnp.where(rings.steps[second] > 0, second, neighbour)
    index = jnp.where(rings.steps[first] > 0, first, spare)
    # Rounds of all environments between a row and the newest one.
    head = state.inserted % capacity
    rounds_left = ((head - 1 - index) % capacity) // num_envs

    reward, cost = rings.reward[index], rings.cost[index]
    last, length = index, jnp.ones_like(index)
    going = ~(rings.terminated[index] | rings.truncated[index])
    for k in range(1, config.n_step):
        row = (index + k * num_envs) % capacity
        going = going & (k <= rounds_left) & (rings.steps[row] > 0)
        reward = reward + jnp.where(going, config.discount**k * rings.reward[row], 0)
        now = config.cost_discount**k * rings.cost[row]
        cost = cost + jnp.where(going[:, None], now, 0)
        last, length = jnp.where(going, row, last), length + going
        going = going & ~(rings.terminated[row] | rings.truncated[row])
    return Transition(
        observation=rings.observation[index],
        action=rings.action[index],
        reward=reward,
        cost=cost,
        next_observation=rings.next_observation[last],
        terminated=rings.terminated[last],
        truncated=rings.truncated[last],
        accumulated_cost=rings.accumulated_cost[index],
        accumulated_discount=rings.accumulated_discount[index],
        steps=length,
    )


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
