"""Types that several packages use.

In critics and risks, the axes are constraint, ensemble, batch, quantile, feature, in this
order. In the data of a step, such as costs, the batch comes before the constraint.
"""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int

Metrics = dict[str, Array]
"""Scalar metrics by name, such as `critic/cost_loss`."""


class Transition(NamedTuple):
    """One step of one environment, or, with an additional first axis, a batch of steps.

    At the end of an episode, `next_observation` is the last observation of that episode and
    not the first observation of the next one. `accumulated_cost` is the discounted cost of
    the episode before this step, in critic units (`core.cost_models`).
    `accumulated_discount` is `cost_discount ** t` at step t of the episode, which starts
    at t = 0.
    """

    observation: Float[Array, "*batch observation"]
    action: Float[Array, "*batch action"]
    """Action in [-1, 1], before it is scaled to the environment's box."""
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch constraint"]
    next_observation: Float[Array, "*batch observation"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    accumulated_cost: Float[Array, "*batch constraint"]
    accumulated_discount: Float[Array, "*batch"]
    steps: Int[Array, "*batch"] | tuple[()] = ()
    """Number of steps whose rewards and costs this row sums. In the replay it is 1, or 0 if
    the environment was only reset in this step and took no action. It is empty if `n_step` is 1."""
