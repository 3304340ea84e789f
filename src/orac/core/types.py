"""Types that all packages share.

Axes have the same order everywhere: constraint, ensemble, batch, quantile, feature.
"""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int

Metrics = dict[str, Array]
"""Scalars that an update reports, by name (`critic/cost_loss`)."""


class Transition(NamedTuple):
    """One step of one environment, or a batch of them (a leading axis everywhere).

    `next_observation` is the true next one, also at the end of an episode. The last two
    fields are for the episodic dual form, both from before this step: the discounted cost
    that the episode has paid, and the discount factor that it has reached.
    """

    observation: Float[Array, "*batch observation"]
    action: Float[Array, "*batch action"]
    """In [-1, 1], before scaling to the environment's box."""
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch constraint"]
    next_observation: Float[Array, "*batch observation"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    accumulated_cost: Float[Array, "*batch constraint"]
    accumulated_discount: Float[Array, "*batch"]
    steps: Int[Array, "*batch"] | tuple[()] = ()
    """Only with n-step targets. In the replay: 1, or 0 for a row that only reset an
    environment. In a batch: number of steps whose rewards and costs the row sums."""
