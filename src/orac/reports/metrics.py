"""Metrics of a report: title, better direction and valid range.

Keys are those of `evaluation.result.summarise`. Environments declare their own metrics (see
`envs.base`); `seed_statistics` computes the values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from orac import envs
from orac.config.schema import EnvConfig
from orac.envs.base import Better
from orac.envs.registry import metrics_of
from orac.evaluation.result import cost_column
from orac.reports.run_reader import Group, cost_names

_COUNTS = ("cost", "length", "episodes", "train/", "constraint/multiplier")
"""Keys of numbers that count or sum something start with one of these."""


@dataclass(frozen=True)
class Metric:
    """One number of a report."""

    key: str
    title: str
    better: Better = "lower"
    cost: str = ""
    """Name of the cost whose constrained risk this is."""
    low: float = -math.inf
    high: float = math.inf


REWARD = Metric("reward/mean", "reward", "higher")


def summary_metrics(groups: Sequence[Group]) -> list[Metric]:
    """Return what a report shows for groups of one environment: reward, then costs."""
    found = [REWARD]
    tails = common_tails(groups)
    for name in cost_names(groups):
        column, noun = cost_column(name), _cost_noun(name)
        found.append(Metric(f"{column}/mean", f"mean {noun}"))
        found += [
            Metric(f"{column}/cvar_{tail:g}", f"CVaR at {tail:g} of {noun}")
            for tail in tails.get(name, ())
        ]
        constraints = [
            c for g in groups for c in g.config.constraints if c.name == name
        ]
        if any(c.risk not in ("cvar", "mean") for c in constraints):
            found.append(Metric(f"{column}/risk", f"constrained risk of {noun}"))
        if constraints:
            found.append(Metric(f"{column}/violation_rate", f"P({noun} > limit)"))
        found.append(Metric(f"{column}/worst", f"worst {noun}"))
    return found


def objective_metrics(groups: Sequence[Group]) -> list[Metric]:
    """Return what training optimises: the reward and the risk under each constraint."""
    found = [REWARD]
    risks: dict[str, set[str]] = {}
    for group in groups:
        for constraint in group.config.constraints:
            risks.setdefault(constraint.name, set()).add(str(constraint.measure))
    for name, measures in risks.items():
        risk = measures.pop() if len(measures) == 1 else "own constrained risk"
        title = f"{risk} of {_cost_noun(name)}"
        found.append(Metric(f"{cost_column(name)}/risk", title, cost=name))
    return found


def env_metrics(env_id: str, values: Sequence[dict[str, np.ndarray]]) -> list[Metric]:
    """Return the environment's own metrics that occur in the `seed_values` of groups.

    A metric that the environment does not declare has its name as title and no better
    direction.
    """
    keys = dict.fromkeys(k for known in values for k in known if k.startswith("env/"))
    declared = _declared_metrics(env_id)
    return [
        declared.get(key, Metric(key, key.removeprefix("env/"), "")) for key in keys
    ]


@lru_cache(maxsize=64)
def _declared_metrics(env_id: str) -> dict[str, Metric]:
    """Return the environment's declared metrics, and shares of labels, by summary key."""
    found = []
    for spec in metrics_of(env_id):
        low = -math.inf if spec.low is None else spec.low
        high = math.inf if spec.high is None else spec.high
        key = f"env/{spec.name}"
        found.append(Metric(key, spec.title, spec.better, low=low, high=high))
        found += [
            Metric(f"{key}_{label.name}", label.title, label.better, low=0, high=1)
            for label in spec.labels
        ]
    return {metric.key: metric for metric in found}


def _cost_noun(name: str) -> str:
    return name if name == "cost" else f"cost {name}"


def common_tails(groups: Sequence[Group]) -> dict[str, list[float]]:
    """Return the CVaR tails of each cost that any group constrains.

    All groups are evaluated at these tails.
    """
    tails: dict[str, set[float]] = {}
    for group in groups:
        for constraint in group.config.constraints:
            wanted = tails.setdefault(constraint.name, set())
            if constraint.tail < 1:
                wanted.add(constraint.tail)
    return {name: sorted(values) for name, values in tails.items()}


def bounds_of(key: str, values: np.ndarray, group: Group) -> tuple[float, float]:
    """Return the range in which a mean of the values must lie.

    Shares are in [0, 1]; the environment's own metrics have their declared range. Counts
    and costs that were never negative start at 0; lengths and costs end at the maximum
    that the group's environment declares.
    """
    if key.endswith("/violation_rate"):
        return 0.0, 1.0
    if key in (declared := _declared_metrics(group.env_id)):
        return declared[key].low, declared[key].high
    # A user's environment may have negative costs: 0 is a bound only if none occurred.
    counts = key.startswith(_COUNTS) and "reward" not in key
    maxima = _declared_maxima(group.config.env)
    # A cost may be called `cost` among others, whose columns are `cost/<name>`.
    columns = [name for name in maxima if key == name or key.startswith(f"{name}/")]
    high = maxima[max(columns, key=len)] if columns else math.inf
    # Numerics: float32 sums may exceed the maximum by rounding. Larger excess shows that
    # the declared maximum does not hold.
    holds = values.max() <= high + 1e-6 * abs(high)
    return (
        0.0 if counts and values.min() >= 0 else -math.inf,
        max(high, float(values.max())) if holds else math.inf,
    )


@lru_cache(maxsize=64)
def _declared_maxima(env: EnvConfig) -> dict[str, float]:
    """Return the declared maxima of an episode's length and costs, by column.

    They depend on the environment's parameters, such as its time limit.
    """
    if not envs.has_jax_form(env.id):
        return {"length": env.episode_length} if env.episode_length else {}
    try:
        spec = envs.make(env.id, **dict(env.params)).spec
    except (ValueError, TypeError, OSError):
        # The run was made by a version with other parameters: nothing is known.
        return {}
    costs = zip(spec.cost_names, spec.cost_bounds or (), strict=False)
    found = {cost_column(name): float(bound) for name, bound in costs}
    return found | ({"length": spec.episode_length} if spec.episode_length else {})
