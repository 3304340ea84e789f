"""The words every room shares: what one environment step is, and what a metric is.

Shapes have one fixed order everywhere: constraint, ensemble, batch, quantile, feature.
This room imports nothing of ours.
"""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float

Metrics = dict[str, Array]
"""Scalars that leave an update, by name (`critic/cost_loss`). Nothing learns from them."""


class Transition(NamedTuple):
    """One step of one environment, or a batch of them (a leading axis everywhere).

    `next_observation` is the true next one, also at an episode's end. The last two
    fields are what the episodic dual form needs, both taken *before* this step's cost:
    the discounted cost paid so far in the episode, and the discount reached.
    """

    observation: Float[Array, "*batch observation"]
    action: Float[Array, "*batch action"]
    """In [-1, 1], before it is scaled to the environment's box."""
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch constraint"]
    next_observation: Float[Array, "*batch observation"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    accumulated_cost: Float[Array, "*batch constraint"]
    accumulated_discount: Float[Array, "*batch"]
