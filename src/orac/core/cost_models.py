"""How an agent reads its critics: what they take in, and what risk comes out.

Between the networks, which map rows to numbers, and the agent, which learns from values
and risks. The three risk forms meet here and nowhere else: `scalar` has one quantile,
`implicit` asks for levels in the tail, `dual` compares quantiles with a pivot.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig, Constraint
from orac.core import critics, exploration, networks, risk
from orac.core.critics import Fractions


@dataclass(frozen=True)
class Problem:
    """What is to be learned: sizes, constraints, and their limits in critic units."""

    observation_size: int
    action_size: int
    constraints: tuple[Constraint, ...]
    cost_value_limits: tuple[float, ...]

    @property
    def num_constraints(self) -> int:
        """M: 0 is plain SAC."""
        return len(self.constraints)

    @property
    def names(self) -> tuple[str, ...]:
        """The constraints' names, in order."""
        return tuple(constraint.name for constraint in self.constraints)

    @property
    def limits(self) -> Float[Array, " constraint"]:
        """The limits in critic units, as an array."""
        return jnp.array(self.cost_value_limits, jnp.float32)


def make_problem(
    observation_size: int,
    action_size: int,
    constraints: tuple[Constraint, ...],
    episode_length: int,
    cost_discount: float,
) -> Problem:
    """The constrained problem, its episode limits in the units of the critics. Eq. (6)."""
    limits = tuple(
        risk.cost_value_limit(constraint.limit, cost_discount, episode_length)
        for constraint in constraints
    )
    return Problem(observation_size, action_size, constraints, limits)


class Context(NamedTuple):
    """What a row carries beside its observation; only the dual form looks at it."""

    pivot: Float[Array, "batch constraint"]
    """As a share of the limit, in [0, 1]; one draw per episode when acting."""
    accumulated_cost: Float[Array, "batch constraint"]
    """Discounted cost of the episode before this step."""
    accumulated_discount: Float[Array, " batch"]
    """Discount reached before this step."""

    @staticmethod
    def start(batch: int, pivot: Float[Array, "*batch constraint"]) -> "Context":
        """The context of a batch at the first step of its episodes."""
        pivot = jnp.broadcast_to(pivot, (batch, pivot.shape[-1]))
        return Context(pivot, jnp.zeros_like(pivot), jnp.ones(batch))


def input_size(problem: Problem, config: AgentConfig) -> int:
    """Features of an observation, and the pivots in the dual form."""
    extra = problem.num_constraints if config.risk_form == "dual" else 0
    return problem.observation_size + extra


def condition(
    observation: Float[Array, "batch observation"],
    context: Context,
    config: AgentConfig,
) -> Float[Array, "batch input"]:
    """What actor and critics see: in the dual form, the pivot too. Eq. (35)."""
    if config.risk_form != "dual":
        return observation
    return jnp.concatenate([observation, context.pivot], axis=-1)


def init_reward_critics(
    key: Key[Array, ""], problem: Problem, config: AgentConfig
) -> tuple[networks.Mlp, ...]:
    """Two scalar critics."""
    rows = input_size(problem, config) + problem.action_size
    sizes = (rows, *config.hidden_sizes, 1)
    keys = jax.random.split(key, 2)
    return tuple(networks.init_mlp(k, sizes, config.layer_norm) for k in keys)


def init_cost_critics(
    key: Key[Array, ""], problem: Problem, config: AgentConfig
) -> tuple[Any, ...]:
    """Members for every constraint in turn; none without constraints."""
    rows = input_size(problem, config) + problem.action_size
    count = problem.num_constraints * config.num_cost_critics
    keys = [jax.random.fold_in(key, i) for i in range(count)]
    hidden, norm = config.hidden_sizes, config.layer_norm
    if config.risk_form == "implicit":
        return tuple(
            networks.init_implicit(k, rows, hidden, config.embedding_size, norm)
            for k in keys
        )
    outputs = 1 if config.risk_form == "scalar" else config.num_quantiles
    return tuple(networks.init_mlp(k, (rows, *hidden, outputs), norm) for k in keys)


def reward_values(
    members: Any, inputs: Float[Array, "batch input"], action: Array
) -> Float[Array, "ensemble batch"]:
    """Each member's value of the pairs of input and action."""
    rows = jnp.concatenate([inputs, action], axis=-1)
    return networks.apply_ensemble(members, rows)[..., 0]


def cost_quantiles(
    members: Any,
    inputs: Float[Array, "batch input"],
    action: Float[Array, "batch action"],
    levels: Float[Array, "constraint *batch quantile"],
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, "constraint ensemble batch quantile"]:
    """Quantiles of the cost to go, every constraint and member."""
    shape = (problem.num_constraints, config.num_cost_critics, inputs.shape[0])
    if not members:
        return jnp.zeros((*shape, levels.shape[-1]))
    rows = jnp.concatenate([inputs, action], axis=-1)
    if config.risk_form == "implicit":
        flat = networks.apply_implicit_ensemble(members, rows, levels)
    else:
        flat = networks.apply_ensemble(members, rows)
    return flat.reshape(*shape, flat.shape[-1])


def for_each_constraint(levels: Array, problem: Problem) -> Array:
    """The same levels for every constraint: a leading axis is added."""
    return jnp.broadcast_to(levels, (problem.num_constraints, *levels.shape))


def critic_fractions(key: Key[Array, ""], batch: int, config: AgentConfig) -> Fractions:
    """Where a loss looks: random fractions for an implicit network, else its own grid."""
    if config.risk_form != "implicit":
        count = 1 if config.risk_form == "scalar" else config.num_quantiles
        return critics.uniform_fractions(count)
    rows = () if config.shared_fractions else (batch,)
    return critics.sample_fractions(key, (*rows, config.num_quantiles))


def policy_levels(
    key: Key[Array, ""], batch: int, problem: Problem, config: AgentConfig
) -> tuple[Array, Array]:
    """Levels per constraint for the risk of the actor, and the weights to sum them with."""
    if config.risk_form != "implicit":
        return fixed_levels(problem, config)
    rows = () if config.shared_fractions else (batch,)
    shape = (*rows, config.num_policy_quantiles)
    return tail_levels(critics.sample_fractions(key, shape), problem)


def fixed_levels(problem: Problem, config: AgentConfig) -> tuple[Array, Array]:
    """As `policy_levels`, at even fractions: for exploration, which must not be noisy."""
    if config.risk_form == "implicit":
        even = critics.uniform_fractions(config.num_policy_quantiles)
        return tail_levels(even, problem)
    count = 1 if config.risk_form == "scalar" else config.num_quantiles
    even = critics.uniform_fractions(count)
    return for_each_constraint(even.levels, problem), even.widths


def tail_levels(fractions: Fractions, problem: Problem) -> tuple[Array, Array]:
    """Move levels to where each constraint's risk measure looks; widths stay. Eq. (26)."""
    if not problem.constraints:
        return for_each_constraint(fractions.levels, problem), fractions.widths
    levels = [
        risk.distort_levels(constraint.measure, fractions.levels)
        for constraint in problem.constraints
    ]
    return jnp.stack(levels), fractions.widths


def discount_reached(context: Context) -> Float[Array, " batch"]:
    """The discount at this step of the episode, kept away from 0."""
    # Numerics: it is divided by, and underflows in episodes of thousands of steps.
    return jnp.maximum(context.accumulated_discount, 1e-6)


def from_here(
    value: Float[Array, "constraint #batch"], context: Context, config: AgentConfig
) -> Float[Array, "constraint #batch"]:
    """An episode's pivot or limit, in the units of the cost to go from this step.

    With e paid so far and b the discount reached, e + b z >= value means
    z >= (value - e) / b. Only the episodic dual form makes the difference.
    """
    if config.risk_form != "dual" or config.pivot.mode != "episodic":
        return value
    return (value - context.accumulated_cost.T) / discount_reached(context)


def episode_unit(context: Context, config: AgentConfig) -> Array | float:
    """What a unit of the cost to go is worth in an episode's: see `from_here`."""
    if config.risk_form != "dual" or config.pivot.mode != "episodic":
        return 1.0
    return discount_reached(context)


def episode_risk(
    risk_to_go: Float[Array, "constraint batch"], context: Context, config: AgentConfig
) -> Float[Array, "constraint batch"]:
    """The inverse of `from_here`: risk of the whole episode, seen from this step."""
    if config.risk_form != "dual" or config.pivot.mode != "episodic":
        return risk_to_go
    paid = context.accumulated_cost.T
    return paid + discount_reached(context) * risk_to_go


def local_pivot(
    context: Context, problem: Problem, config: AgentConfig
) -> Float[Array, "constraint batch"]:
    """The pivot in critic units, as it stands at this step."""
    return from_here(problem.limits[:, None] * context.pivot.T, context, config)


def risk_to_go(
    quantiles: Float[Array, "constraint batch quantile"],
    weights: Float[Array, "*#batch quantile"],
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, "constraint batch"]:
    """Risk of the cost to go, from quantiles already averaged over the ensemble."""
    if config.risk_form != "dual":
        return risk.risk_of(quantiles, weights)
    pivot = local_pivot(context, problem, config)
    dual = [
        risk.dual_risk(quantiles[m], pivot[m], risk.dual_tail(constraint.measure))
        for m, constraint in enumerate(problem.constraints)
    ]
    return jnp.stack(dual) if dual else jnp.zeros_like(pivot)


def dead_zone(
    quantiles: Float[Array, "constraint batch quantile"],
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, " constraint"]:
    """Share of rows with every quantile below the pivot: no cost gradient comes of them."""
    if config.risk_form != "dual":
        return jnp.zeros(problem.num_constraints)
    pivot = local_pivot(context, problem, config)
    return (quantiles < pivot[..., None]).all(axis=-1).mean(axis=-1, dtype=jnp.float32)


def make_bounds(
    reward_critics: Any,
    cost_critics: Any,
    inputs: Float[Array, "batch input"],
    context: Context,
    problem: Problem,
    config: AgentConfig,
) -> exploration.Bounds:
    """The optimistic bounds as a function of the action, for `exploration`."""
    levels, weights = fixed_levels(problem, config)
    optimism = config.exploration

    def bounds(action: Float[Array, "batch action"]) -> tuple[Array, Array]:
        values = reward_values(reward_critics, inputs, action)
        quantiles = cost_quantiles(
            cost_critics, inputs, action, levels, problem, config
        )
        optimistic = exploration.optimistic_quantiles(
            quantiles.swapaxes(0, 1), optimism.cost_optimism
        )
        return (
            exploration.reward_upper_bound(values, optimism.reward_optimism),
            risk_to_go(optimistic, weights, context, problem, config),
        )

    return bounds
