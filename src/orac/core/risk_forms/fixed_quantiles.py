"""Cost critics with a fixed number of outputs: the scalar form, and the shared parts.

A critic has one output per quantile on an even grid of levels. The scalar form has one
output, the mean cost to go.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig
from orac.core import critics, exploration, networks, risk
from orac.core.cost_models import Context, CostModel, CostRisk, CostTargets, Problem
from orac.core.types import Metrics


def init_critics(
    key: Key[Array, ""],
    input_size: int,
    num_outputs: int,
    problem: Problem,
    config: AgentConfig,
) -> tuple[networks.Mlp, ...]:
    """Return the critics of every constraint in turn; none without constraints."""
    sizes = (input_size + problem.action_size, *config.hidden_sizes, num_outputs)
    count = problem.num_constraints * config.num_cost_critics
    keys = [jax.random.fold_in(key, i) for i in range(count)]
    return tuple(networks.init_mlp(k, sizes, config.layer_norm) for k in keys)


def grid_quantiles(
    members: tuple[networks.Mlp, ...],
    inputs: Float[Array, "batch input"],
    action: Float[Array, "batch action"],
    num_quantiles: int,
    problem: Problem,
    config: AgentConfig,
) -> Float[Array, "constraint ensemble batch quantile"]:
    """Return the quantiles of the cost to go for every constraint and member."""
    shape = (problem.num_constraints, config.num_cost_critics, inputs.shape[0])
    if not members:
        return jnp.zeros((*shape, num_quantiles))
    rows = jnp.concatenate([inputs, action], axis=-1)
    flat = networks.apply_ensemble(members, rows)
    return flat.reshape(*shape, flat.shape[-1])


def scalar_model(problem: Problem, config: AgentConfig) -> CostModel:
    """Return the scalar form: critics of the mean cost, trained by squared error."""
    even = critics.uniform_fractions(1)

    def init(key: Array) -> tuple[networks.Mlp, ...]:
        return init_critics(key, problem.observation_size, 1, problem, config)

    def values(members: Any, inputs: Array, action: Array) -> Array:
        return grid_quantiles(members, inputs, action, 1, problem, config)

    def targets(
        key: Array, members: Any, inputs: Array, action: Array, cost: Array, ends: Array
    ) -> CostTargets:
        following = values(members, inputs, action)
        return CostTargets(
            critics.cost_targets(cost, ends, following, config.cost_discount), even
        )

    def loss(
        key: Array, members: Any, inputs: Array, action: Array, wanted: CostTargets
    ) -> Array:
        predicted = values(members, inputs, action)
        return critics.squared_loss(predicted[..., 0], wanted.quantiles[..., 0])

    def cost_risk(
        key: Array, members: Any, inputs: Array, action: Array, context: Context
    ) -> CostRisk:
        predicted = values(members, inputs, action)
        average = predicted.mean(axis=1)
        return CostRisk(risk.risk_of(average, even.widths), predicted, {})

    def optimistic_risk(
        members: Any, inputs: Array, action: Array, context: Context
    ) -> Array:
        optimistic = exploration.optimistic_quantiles(
            values(members, inputs, action).swapaxes(0, 1),
            config.exploration.cost_optimism,
        )
        return risk.risk_of(optimistic, even.widths)

    return CostModel(
        input_size=problem.observation_size,
        init=init,
        targets=targets,
        loss=loss,
        risk=cost_risk,
        optimistic_risk=optimistic_risk,
        **without_pivot(problem),
    )


def without_pivot(problem: Problem) -> dict[str, Any]:
    """Return the functions of `CostModel` that only depend on having no pivot."""

    def no_metrics(params: Array) -> Metrics:
        return {}

    return {
        "network_inputs": lambda observation, context: observation,
        "remaining_limits": lambda context: (problem.limits[:, None], 1.0),
        "episode_risk": lambda risk_to_go, context: risk_to_go,
        "evaluation_inputs": lambda params: jnp.zeros(0),
        "pivot_metrics": no_metrics,
    }
