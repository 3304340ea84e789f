"""The interface between the cost critics and the learner.

A `CostModel` is a small record of functions with which one risk form (`agent.risk_form`)
sets up its critics, trains them and measures risk with them. The learner in `agent.py` only
calls these functions and never branches on the form. The forms are in `risk_forms/`.

The limit of an episode is a limit on an undiscounted sum of costs, but a critic predicts a
discounted sum. A limit *in critic units* is the limit converted to such a discounted sum
and, if the learner divides costs by a unit, divided by the same unit. A pivot is the
threshold in the dual form of CVaR (`risk_forms/dual.py`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Key

from orac.config.schema import Constraint
from orac.config.validation import check_range
from orac.core.critics import Fractions
from orac.core.types import Metrics


@dataclass(frozen=True)
class Problem:
    """The constrained problem: sizes, constraints, and limits in critic units."""

    observation_size: int
    action_size: int
    constraints: tuple[Constraint, ...]
    cost_value_limits: tuple[float, ...]
    cost_units: tuple[float, ...] | None = None
    """Numbers by which the costs of a step are divided, or None if costs are not divided."""
    horizon_share: float = 1.0
    """Sum of the rewards' discount factors over an episode, divided by its number of steps."""
    observation_structure: str = ""
    """Structure of an observation before it was flattened, for an encoder. It has the same
    format as `EnvSpec.observation_structure`."""

    @property
    def num_constraints(self) -> int:
        """Number of constraints. Plain SAC has none."""
        return len(self.constraints)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the constraints, in order."""
        return tuple(constraint.name for constraint in self.constraints)

    @property
    def limits(self) -> Float[Array, " constraint"]:
        """Limits in critic units, as an array."""
        return jnp.array(self.cost_value_limits, jnp.float32)

    @property
    def units(self) -> Float[Array, " constraint"]:
        """Numbers by which the costs of a step are divided, as an array; 1 means no division."""
        return jnp.array(self.cost_units or (1.0,) * self.num_constraints, jnp.float32)


def make_problem(
    observation_size: int,
    action_size: int,
    constraints: tuple[Constraint, ...],
    episode_length: int,
    cost_discount: float,
    discount: float = 1.0,
    divide_by_limit: bool = False,
    observation_structure: str = "",
) -> Problem:
    """Return the problem with its episode limits converted to critic units. Eq. (6).

    If `divide_by_limit` is true, each cost is divided by a unit: the `cost_scale` of its
    constraint, or the limit if there is no `cost_scale`, as a discounted sum. Then nothing in
    the learner depends on the unit in which an environment counts costs.
    """

    def convert(limit: float) -> float:
        return cost_value_limit(limit, cost_discount, episode_length)

    limits = tuple(convert(constraint.limit) for constraint in constraints)
    units = None
    if divide_by_limit:
        units = tuple(convert(constraint.unit) for constraint in constraints)
        limits = tuple(x / unit for x, unit in zip(limits, units, strict=True))
    share = cost_value_limit(1.0, discount, episode_length)
    return Problem(
        observation_size,
        action_size,
        constraints,
        limits,
        units,
        share,
        observation_structure,
    )


def cost_value_limit(cost_limit: float, discount: float, episode_length: int) -> float:
    """Convert an episode's undiscounted limit to a discounted sum, as a critic predicts it.

    The result is the discounted cost of an episode of T steps whose cost is the limit,
    spread evenly over the steps: limit * (1 - g^T) / (1 - g) / T with discount g. It is the
    c-bar of (19) and the c of (7).
    """
    check_range(
        "cost_limit", cost_limit, 0, advice="It is the limit per episode, undiscounted."
    )
    check_range("cost discount", discount, 0, 1, open_low=True)
    advice = "Pass the environment's time limit in steps."
    check_range("episode_length", episode_length, 1, advice=advice)
    if discount == 1:
        return float(cost_limit)
    # Numerics: expm1 computes 1 - g^T accurately for g near 1, such as 0.9999.
    log_discount = math.log(discount)
    horizon = math.expm1(episode_length * log_discount) / math.expm1(log_discount)
    return cost_limit * horizon / episode_length


class Context(NamedTuple):
    """For each row of a batch, the pivot, the cost so far and the discount of its episode.

    Only the dual form uses the pivot and the accumulated cost. The accumulated discount also
    shows which rows are initial states of episodes.
    """

    pivot: Float[Array, "batch constraint"]
    """Pivot as a fraction of the limit, in [0, 1]. An agent that acts in the environment draws
    one pivot per episode."""
    accumulated_cost: Float[Array, "batch constraint"]
    """Discounted cost of the episode before this step."""
    accumulated_discount: Float[Array, " batch"]
    """cost_discount ** t at step t of the episode."""

    @staticmethod
    def start(batch: int, pivot: Float[Array, "*batch constraint"]) -> "Context":
        """Return the context of a batch whose rows are all at the first step of an episode."""
        pivot = jnp.broadcast_to(pivot, (batch, pivot.shape[-1]))
        return Context(pivot, jnp.zeros_like(pivot), jnp.ones(batch))


class Quantiles(NamedTuple):
    """Quantiles of the cost to go that every critic predicts, and their fractions."""

    values: Float[Array, "constraint ensemble batch quantile"]
    fractions: Fractions


class CostModel(NamedTuple):
    """The functions of one risk form for one problem.

    `members` are the parameters of the cost critics, `inputs` are the rows that
    `network_inputs` returned, and `action` lies in [-1, 1]. A form that uses no random
    numbers ignores the key.
    """

    input_size: int
    """Width of the rows that `network_inputs` returns."""
    init: Callable[[Array], Any]
    """`(key) -> members`: new critics, ordered by constraint."""
    network_inputs: Callable[[Array, Context], Array]
    """`(observation, context) -> inputs`: rows for the actor and all critics."""
    critic_quantiles: Callable[[Array, Any, Array, Array], Quantiles]
    """`(key, members, inputs, action) -> Quantiles` for the critics' loss and targets."""
    loss: Callable[[Quantiles, Quantiles, float], Array]
    """`(predicted, targets, kappa) -> scalar loss`."""
    policy_quantiles: Callable[[Array | None, Any, Array, Array], Quantiles]
    """`(key, members, inputs, action) -> Quantiles` for the risk. With `key=None` the levels
    are a fixed grid, so that the gradient of the exploration is deterministic."""
    risk: Callable[[Array, Array, Context], Array]
    """`(quantiles averaged over the ensemble, widths, context) -> (constraint, batch)`."""
    remaining_limits: Callable[[Context], tuple[Array, Array | float]]
    """`(context) -> (limits, unit)`: limits on the cost to go from this step, and the
    factor that converts the cost to go to the units of the episode's cost (the accumulated
    discount in the episodic mode of the dual form, otherwise 1)."""
    episode_risk: Callable[[Array, Context], Array]
    """`(risk to go, context) -> risk of the whole episode`, given the cost so far. Only the
    episodic mode of the dual form adds that cost; otherwise the risk to go is returned."""
    evaluation_inputs: Callable[[Array], Array]
    """`(pivot parameters) -> inputs that evaluations append to an observation`."""
    metrics: Callable[[Array, Context], Metrics]
    """`(quantiles averaged over the ensemble, context) -> metrics` of this form."""
    pivot_metrics: Callable[[Array], Metrics]
    """`(pivot parameters) -> metrics` of the pivots."""
    hidden_rows: int = 1
    """Number of rows that the hidden layers of a critic compute for each row of a batch. In
    the implicit form it is the number of quantiles."""
    outer_step: Callable[..., Any] | None = None
    """`(key, agent state, batch, learner) -> agent state`: the dual form's update of its
    pivot distribution, which is due every `pivot.every` environment steps. Other forms have
    no such update, so this is None."""


def pivot_location(params: Float[Array, " constraint"]) -> Float[Array, " constraint"]:
    """Return the location of the pivot distribution, which evaluations use as the pivot.

    A pivot is a fraction of the limit in critic units. It is drawn from a normal
    distribution truncated to [0, 1]. The location, which is the mean before truncation, is
    the sigmoid of one learned number per constraint, `params`.
    """
    return jax.nn.sigmoid(params)


def pivot_from_uniform(
    uniform: Float[Array, "batch constraint"],
    params: Float[Array, " constraint"],
    std: float,
) -> Float[Array, "batch constraint"]:
    """Map uniform draws to pivots by the inverse CDF, differentiably in `params`."""
    mean = pivot_location(params)
    low, high = ndtr((0 - mean) / std), ndtr((1 - mean) / std)
    # Numerics: ndtri is infinite at 0 and 1.
    level = jnp.clip(low + uniform * (high - low), 1e-6, 1 - 1e-6)
    return jnp.clip(mean + std * ndtri(level), 0, 1)


def sample_pivot(
    key: Key[Array, ""], params: Float[Array, " constraint"], std: float, batch: int
) -> Float[Array, "batch constraint"]:
    """Draw one independent pivot per row and constraint."""
    uniform = jax.random.uniform(key, (batch, params.shape[0]))
    return pivot_from_uniform(uniform, params, std)
