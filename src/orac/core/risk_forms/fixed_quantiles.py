"""Cost critics with a fixed number of outputs: the scalar and the quantile form.

In the scalar form a critic has one output, the mean cost to go. In the quantile form it has
one output per quantile, on an even grid of levels. This is the form of the paper's main
text: the quantiles are trained with the quantile Huber loss (9) on the targets (10), and the
risk is a weighted sum of them (11).
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from orac.config.schema import AgentConfig
from orac.core import critics, networks, risk
from orac.core.cost_models import Context, CostModel, Problem, Quantiles
from orac.core.encoders import fold_in_each, init_ensemble


def grid_quantiles(
    members: tuple[networks.Network, ...],
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


def grid_critics(
    input_size: int,
    num_quantiles: int,
    problem: Problem,
    config: AgentConfig,
    with_mean: bool = False,
) -> dict[str, Any]:
    """Return the fields of `CostModel` for critics on a fixed grid of quantiles.

    With `with_mean` each critic has one more output after the quantiles, the mean.
    """
    outputs = num_quantiles + with_mean
    rows = input_size + problem.action_size
    count = problem.num_constraints * config.num_cost_critics

    def init_critic(key: Array, size: int) -> networks.Mlp:
        sizes = (size, *config.hidden_sizes, outputs)
        return networks.init_mlp(key, sizes, config.critics_have_layer_norm)

    def init(key: Array) -> tuple[networks.Network, ...]:
        keys = fold_in_each(key, count)
        return init_ensemble(keys, rows, init_critic, problem, config)

    def quantiles(
        key: Array | None, members: Any, inputs: Array, action: Array
    ) -> Quantiles:
        values = grid_quantiles(members, inputs, action, outputs, problem, config)
        return Quantiles(values, critics.uniform_fractions(num_quantiles))

    return {
        "input_size": input_size,
        "init": init,
        "critic_quantiles": quantiles,
        "policy_quantiles": quantiles,
    }


def without_pivot(problem: Problem) -> dict[str, Any]:
    """Return the fields of `CostModel` that all forms without a pivot share."""
    return {
        "network_inputs": lambda observation, context: observation,
        "risk": lambda quantiles, widths, context: risk.risk_of(quantiles, widths),
        "remaining_limits": lambda context: (problem.limits[:, None], 1.0),
        "episode_risk": lambda risk_to_go, context: risk_to_go,
        "evaluation_inputs": lambda params: jnp.zeros(0),
        "metrics": lambda quantiles, context: {},
        "pivot_metrics": lambda params: {},
    }


def quantile_loss(predicted: Quantiles, targets: Quantiles, kappa: float) -> Array:
    """Return the quantile loss: the mean over the batch, summed over constraints and members."""
    per_row = critics.quantile_loss(
        predicted.values,
        predicted.fractions.levels,
        targets.values,
        targets.fractions.widths,
        kappa,
    )
    return per_row.mean(axis=-1).sum()


def quantile_model(problem: Problem, config: AgentConfig) -> CostModel:
    """Return the quantile form, which computes any risk measure from a grid of quantiles."""

    def risk_of_grid(quantiles: Array, widths: Array, context: Context) -> Array:
        if not problem.constraints:
            return quantiles.sum(axis=-1)
        # A quantile can count in part: a tail of 0.05 contains 1.6 of 32 quantiles.
        weights = [risk.level_weights(c.measure, widths) for c in problem.constraints]
        return risk.risk_of(quantiles, jnp.stack(weights)[:, None])

    recentres = config.recentre_quantiles
    grid = grid_critics(
        problem.observation_size, config.num_quantiles, problem, config, recentres
    )
    model = CostModel(loss=quantile_loss, **grid, **without_pivot(problem))
    model = model._replace(risk=risk_of_grid)
    if not recentres:
        return model

    def policy_quantiles(
        key: Array | None, members: Any, inputs: Array, action: Array
    ) -> Quantiles:
        return recentred(model.policy_quantiles(key, members, inputs, action))

    return model._replace(loss=loss_with_mean, policy_quantiles=policy_quantiles)


def loss_with_mean(predicted: Quantiles, targets: Quantiles, kappa: float) -> Array:
    """Return the quantile loss plus the squared error of the last output, the mean."""
    quantiles, following = (
        q._replace(values=q.values[..., :-1]) for q in (predicted, targets)
    )
    squared = critics.squared_loss(predicted.values[..., -1], targets.values[..., -1])
    return quantile_loss(quantiles, following, kappa) + squared


def recentred(predicted: Quantiles) -> Quantiles:
    """Shift the quantiles so that their mean is the last output of the critic.

    Quantile critics underestimate the cost of events whose probability is smaller than the
    width of a quantile, and the error grows with every bootstrapped step. The last output
    does not have this error, because it is trained with squared error.
    """
    quantiles, mean = predicted.values[..., :-1], predicted.values[..., -1:]
    shift = mean - quantiles.mean(axis=-1, keepdims=True)
    return predicted._replace(values=quantiles + shift)


def scalar_model(problem: Problem, config: AgentConfig) -> CostModel:
    """Return the scalar form: critics of the mean cost, trained with squared error."""

    def loss(predicted: Quantiles, targets: Quantiles, kappa: float) -> Array:
        return critics.squared_loss(predicted.values[..., 0], targets.values[..., 0])

    return CostModel(
        loss=loss,
        **grid_critics(problem.observation_size, 1, problem, config),
        **without_pivot(problem),
    )
