"""The replay: a ring buffer of transitions on device.

A row is one transition. `inserted` counts all rows ever added, and the write position and
the size are computed from it. If `add` is compiled by `jit` and the state is donated, it
writes in place and does not copy the buffer. A round is one call of `step`, which steps all
environments. It adds one row for each of them, except for rows that `add` leaves out.
`terminated` and `truncated` are separate columns, and `core.agent.update_critics` decides
whether to bootstrap at a truncation.
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
    """Arrays whose first axis has the length of the buffer's capacity."""
    inserted: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Maximum number of rows."""
        return self.storage.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """Number of rows that are stored now."""
        return jnp.minimum(self.inserted, self.capacity)


def init(capacity: int, example: Transition) -> ReplayState:
    """Return an empty buffer for rows like `example`, a transition without a batch axis."""
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}.")
    storage = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example
    )
    return ReplayState(storage, jnp.int32(0))


def add(
    state: ReplayState, rows: Transition, valid: Bool[Array, " batch"] | None = None
) -> ReplayState:
    """Insert a batch of rows. If the buffer is full, they overwrite the oldest rows.

    Rows that are not `valid` come from vector environments in which some calls of `step`
    only reset an environment. With one-step targets, these rows are left out. With n-step
    targets they are stored, with `steps` 0, so that two consecutive steps of an environment
    are always the same number of rows apart.
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
        # The scatter below ignores rows whose index is past the end.
        index = jnp.where(valid, index, state.capacity)
        inserted = state.inserted + valid.sum(dtype=jnp.int32)
    storage = jax.tree.map(
        lambda ring, new: ring.at[index].set(new, mode="drop"), state.storage, rows
    )
    return ReplayState(storage, inserted)


def sample(key: Key[Array, ""], state: ReplayState, batch_size: int) -> Transition:
    """Sample uniformly with replacement from the stored rows."""
    index = jax.random.randint(key, (batch_size,), 0, jnp.maximum(state.size, 1))
    return jax.tree.map(lambda ring: ring[index], state.storage)


def sample_n_step(
    key: Key[Array, ""],
    state: ReplayState,
    batch_size: int,
    num_envs: int,
    config: AgentConfig,
) -> Transition:
    """Sample rows, and add the discounted rewards and costs of the following steps to each.

    The next step of an environment is stored `num_envs` rows later. A sampled row sums
    `n_step` steps, or fewer if the episode or the stored rows end earlier.

    Rows that come from a reset (`steps` 0) must not be used. So two indices are drawn for
    each row of the batch, and the second one is used if the first is a reset. If both are
    resets, the previous row of the second one's environment is used, which is the last step
    of an episode. A row of the oldest round has no previous row. In that case, the row of
    the same environment in the newest round is used if it is a step, and otherwise the row
    in the second-oldest round.
    """
    # Choice: unlike in n-step SAC, the target has no entropy of the steps in between.
    rings, capacity = state.storage, state.capacity
    stored = jnp.maximum(state.size, 1)
    first, second = jax.random.randint(key, (2, batch_size), 0, stored)
    assert not isinstance(rings.steps, tuple)
    before, after = (second - num_envs) % capacity, (second + num_envs) % capacity
    # In the oldest round, `before` is in the newest round or not filled yet, so its row may
    # not be a step. The row at `after` always is one.
    neighbour = jnp.where(rings.steps[before] > 0, before, after)
    spare = jnp.where(rings.steps[second] > 0, second, neighbour)
    index = jnp.where(rings.steps[first] > 0, first, spare)
    # Number of rounds after the sampled row.
    head = state.inserted % capacity
    rounds_left = ((head - 1 - index) % capacity) // num_envs

    reward, cost = rings.reward[index], rings.cost[index]
    last, length = index, jnp.ones_like(index)
    going = ~(rings.terminated[index] | rings.truncated[index])
    for k in range(1, config.n_step):
        row = (index + k * num_envs) % capacity
        going = going & (k <= rounds_left) & (rings.steps[row] > 0)
        reward = reward + jnp.where(going, config.discount**k * rings.reward[row], 0)
        discounted = config.cost_discount**k * rings.cost[row]
        cost = cost + jnp.where(going[:, None], discounted, 0)
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
    """Return a transition of zeros with the shapes of a problem."""
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
