"""Totals of episodes, their summary, their risk and their certificates.

Sorted episode costs are quantiles, whose weights depend on the risk measure.
`risk_of_episodes` computes the risk of a summary in double precision. Training measures
risk with `risk_of_costs`, which is faster and rounds the weights to float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from orac.config.schema import Constraint, RiskMeasure
from orac.config.validation import NonFiniteError
from orac.core import risk
from orac.envs.base import EnvSpec, MetricSpec
from orac.evaluation.cvar_bounds import Certificate, certify_cvar


@dataclass(frozen=True)
class Episodes:
    """Totals of whole episodes, with one entry per episode. Costs are undiscounted sums."""

    reward: np.ndarray
    cost: np.ndarray
    """Array of shape (episode, cost)."""
    length: np.ndarray
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    """The environment's metrics at each episode's last step, by name."""

    def __post_init__(self):
        if not len(self.reward):
            raise ValueError(
                "a sample of episodes must contain at least one episode, got none. Play at "
                "least one, for example with agent.evaluate(100)."
            )
        for name, values in (("reward", self.reward), ("cost", self.cost)):
            wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            if wrong.any():
                raise NonFiniteError(
                    f"the {name} of every episode must be finite, but in episode "
                    f"{int(wrong.argmax())} it is not, so there is no result. Fix the "
                    "environment that returned it."
                )

    def __len__(self) -> int:
        return len(self.reward)

    def rows(self, cost_names: Sequence[str]) -> list[dict[str, float]]:
        """Return one dict of numbers per episode: the columns of `evaluations.csv`, except
        `env_steps`."""
        columns = [cost_column(name) for name in cost_names]
        return [
            {
                "episode": i,
                "reward": float(self.reward[i]),
                **dict(zip(columns, self.cost[i].tolist(), strict=True)),
                "length": int(self.length[i]),
                **{name: float(values[i]) for name, values in self.metrics.items()},
            }
            for i in range(len(self))
        ]


def pool(first: Episodes, second: Episodes) -> Episodes:
    """Return the episodes of both samples as one sample."""
    return Episodes(
        np.concatenate([first.reward, second.reward]),
        np.concatenate([first.cost, second.cost]),
        np.concatenate([first.length, second.length]),
        {
            name: np.concatenate([values, second.metrics[name]])
            for name, values in first.metrics.items()
        },
    )


def cost_column(name: str) -> str:
    """Return a cost's column: `cost` if its name is `cost`, otherwise `cost/<name>`."""
    return name if name == "cost" else f"cost/{name}"


def cost_noun(name: str) -> str:
    """Return a cost's name for a sentence: `cost` if it is `cost`, otherwise `cost <name>`."""
    return name if name == "cost" else f"cost {name}"


def risk_phrase(measure: RiskMeasure, quantity: str) -> str:
    """Describe the risk of a quantity, such as "CVaR of episode cost at tail 0.05"."""
    if measure.name == "mean":
        return f"mean of {quantity}"
    if measure.name == "cvar":
        return f"CVaR of {quantity} at tail {measure.parameter:g}"
    return f"{measure.name} risk of {quantity} at parameter {measure.parameter:g}"


def summarise(
    episodes: Episodes,
    constraints: Sequence[Constraint],
    cost_names: Sequence[str],
    metrics: Sequence[MetricSpec] = (),
    tails: Sequence[float] = (),
) -> dict[str, float]:
    """Return statistics of the reward, length, costs and metrics of episodes, by name.

    Each cost has its mean, its largest value, and its CVaR and value at risk at each of
    `tails` and at the tail of its constraint. A cost with a constraint also has the
    constraint's risk and limit, and the fraction of episodes that cost more than the limit.
    `metrics` are the metrics that the environment declares. If a metric has labels, and
    every value has one, it is summarised by the fraction of episodes with each label. Any
    other metric is summarised by the mean of its known values.
    """
    summary: dict[str, float] = {
        "episodes": len(episodes),
        "reward/mean": float(episodes.reward.mean()),
        "length/mean": float(episodes.length.mean()),
    }
    constraint_of = {constraint.name: constraint for constraint in constraints}
    for m, name in enumerate(cost_names):
        costs, prefix = episodes.cost[:, m], cost_column(name)
        constraint = constraint_of.get(name)
        summary[f"{prefix}/mean"] = float(costs.mean())
        summary[f"{prefix}/worst"] = float(costs.max())
        limited_tail = [constraint.tail] if constraint else []
        for tail in sorted({float(tail) for tail in (*tails, *limited_tail)}):
            cvar = risk_of_episodes(costs, risk.cvar(tail))
            summary[f"{prefix}/cvar_{tail:g}"] = cvar
            summary[f"{prefix}/var_{tail:g}"] = value_at_risk(costs, tail)
        if constraint:
            summary[f"{prefix}/risk"] = risk_of_episodes(costs, constraint.measure)
            summary[f"{prefix}/limit"] = constraint.limit
            violated = costs > constraint.limit
            summary[f"{prefix}/violation_rate"] = float(violated.mean())
    labels_of = {metric.name: metric.labels for metric in metrics}
    for name, values in episodes.metrics.items():
        labels = labels_of.get(name, ())
        if labels and np.isin(values, [label.code for label in labels]).all():
            for label in labels:
                fraction = float((values == label.code).mean())
                summary[f"env/{name}_{label.name}"] = fraction
            continue
        known = values[~np.isnan(values)]
        summary[f"env/{name}"] = float(known.mean()) if len(known) else math.nan
    return summary


def risk_of_episodes(costs: np.ndarray, measure: RiskMeasure) -> float:
    """Return the risk of a sample of episode costs, computed in double precision."""
    with jax.enable_x64(True):
        return float(risk.sample_risk(jnp.asarray(costs, jnp.float64), measure))


@lru_cache(maxsize=4096)
def sample_weights(measure: RiskMeasure, count: int) -> np.ndarray:
    """Return the weights with which `count` costs, sorted from low to high, enter the risk."""
    # The levels are padded to a multiple of 64, because JAX compiles for each shape.
    size = 64 * math.ceil(count / 64)
    levels = np.minimum(np.arange(size + 1) / count, 1)
    weights = np.diff(np.asarray(risk.distort(measure, jnp.asarray(levels))))[:count]
    return weights.astype(np.float64) / weights.sum(dtype=np.float64)


def risk_of_costs(costs: np.ndarray, measure: RiskMeasure) -> float:
    """Return the risk of a sample of episode costs, as training measures it.

    Unlike `risk_of_episodes`, it does not compile a program for every number of episodes.
    The weights of the costs are rounded to float32.
    """
    return float(np.sort(costs) @ sample_weights(measure, len(costs)))


def risk_and_error(costs: np.ndarray, measure: RiskMeasure) -> tuple[float, float]:
    """Return the risk of a sample of episode costs, and its jackknife standard error."""
    ordered, count = np.sort(costs), len(costs)
    others = ~np.eye(count, dtype=bool)
    samples = np.broadcast_to(ordered, others.shape)[others].reshape(count, -1)
    left_out = samples @ sample_weights(measure, count - 1)
    error = math.sqrt(np.var(left_out, dtype=np.float64) * (count - 1))
    return risk_of_costs(costs, measure), error


def value_at_risk(costs: np.ndarray, tail: float) -> float:
    """Return the smallest cost c such that at least a fraction 1 - tail of the episodes cost
    at most c. The dual form of CVaR is minimal if its pivot has this value. Eq. (31).
    """
    rank = math.ceil(len(costs) * (1 - tail) - 1e-9)
    return float(np.sort(costs)[max(rank - 1, 0)])


def costs_of(episodes: Episodes, constraint: Constraint, spec: EnvSpec) -> np.ndarray:
    """Return, for each episode, the cost that the constraint limits."""
    return episodes.cost[:, spec.cost_names.index(constraint.name)]


def declared_cost_bound(constraint: Constraint, spec: EnvSpec) -> float | None:
    """Return the declared largest possible cost of an episode, or None if there is none.

    It is the bound on the cost that the constraint limits.
    """
    if spec.cost_bounds is None:
        return None
    return spec.cost_bounds[spec.cost_names.index(constraint.name)]


def check_cost_bounds(costs: Sequence[float], spec: EnvSpec, where: str) -> None:
    """Raise an error if an episode cost more than is declared possible.

    `costs` are the largest costs of episodes, one for each cost of the environment. The error
    contains `where`, which says where they come from.
    """
    if spec.cost_bounds is None:
        return
    for name, cost, bound in zip(spec.cost_names, costs, spec.cost_bounds, strict=True):
        # Numerics: costs summed in float32 may exceed the bound by a rounding error.
        if cost > (1 + 1e-6) * bound:
            raise ValueError(
                f"the declared bound on the {name!r} of an episode, {bound:g}, must be at "
                f"least the cost of every episode, but one episode cost {cost:g} ({where}). "
                "Declare a bound that no episode can exceed, because a certificate relies "
                "on it."
            )


def certify(
    episodes: Episodes,
    constraints: Sequence[Constraint],
    spec: EnvSpec,
    confidence: float = 0.95,
) -> list[Certificate]:
    """Return one certificate for each constraint, computed from these episodes."""
    certificates = []
    for constraint in constraints:
        costs, measure = costs_of(episodes, constraint, spec), constraint.measure
        estimate = risk_of_episodes(costs, measure)
        if measure.name in ("cvar", "mean"):
            certificate = certify_cvar(
                costs,
                estimate,
                cost_limit=float(constraint.limit),
                tail=float(measure.parameter) if measure.name == "cvar" else 1.0,
                cost_bound=declared_cost_bound(constraint, spec),
                level=confidence,
            )
        else:
            quantity = f"the {risk_phrase(measure, 'episode cost')}"
            numbers = (estimate, None, constraint.limit, confidence, len(costs))
            remark = (
                "orac has bounds only for CVaR and the mean. Set the constraint's risk to "
                "'cvar' and choose its tail."
            )
            certificate = Certificate(quantity, *numbers, remark=remark)
        certificates.append(certificate)
    return certificates
