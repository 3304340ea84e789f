"""Health checks: stop a run before it saves a number that is not finite or a negative cost.

`measurement.py` replaces an actor that is stuck.
"""

from typing import Any

import jax
import numpy as np

from orac.config.validation import NonFiniteError
from orac.training.train_step import StepReport

ORDER = ("critic", "actor", "constraint", "explore")
"""Groups of metrics in the order of an update, to name the first that went wrong."""

ADVICE = (
    "Try smaller learning rates, agent.max_gradient_norm=10, or agent.reward_scale=0.1."
)


LARGE_OBSERVATION = (
    "The square of an observation was infinite: bound what the environment returns."
)


NEGATIVE = "the environment's negative cost"


class NegativeCostError(ValueError):
    """An environment reported a negative cost."""


def check_report(
    report: StepReport, first_round: int, num_envs: int, last_good: str
) -> None:
    """Raise an error that names the earliest value that is not finite.

    A negative cost raises an error too: limits and certificates need costs of at least 0.
    """
    # The action comes first: NaN actions make a correct environment return NaN.
    bad = {
        "the agent's action": ~np.asarray(report.finite_action),
        "the environment's observation": ~np.asarray(report.finite_observation),
        "the environment's reward": rows_not_finite(report.totals.reward),
        "the environment's cost": rows_not_finite(report.totals.cost),
        NEGATIVE: rows_with_a_negative_cost(report),
    }
    for name in sorted(report.metrics, key=lambda name: ORDER.index(group(name))):
        bad[name] = rows_not_finite(report.metrics[name]) & report.updated
    first = {name: int(rows.argmax()) for name, rows in bad.items() if rows.any()}
    if not first:
        return
    quantity = min(first, key=first.__getitem__)
    step = (first_round + first[quantity] + 1) * num_envs
    if quantity == NEGATIVE:
        raise NegativeCostError(
            f"the environment's cost must be at least 0, but one was negative at step "
            f"{step:,}. {last_good} Its step returned it: fix it there."
        )
    of_environment = quantity.startswith("the environment")
    advice = "Its step returned it: fix it there." if of_environment else ADVICE
    raise NonFiniteError(
        f"{quantity} must be finite, but it was not at step {step:,}. {last_good} {advice}"
    )


def rows_not_finite(values: Any) -> np.ndarray:
    """Return for each entry of the first axis whether anything in it is not finite."""
    return ~np.isfinite(values).reshape(len(values), -1).all(axis=1)


def rows_with_a_negative_cost(report: StepReport) -> np.ndarray:
    """Return for each round whether an episode's cost so far is negative or went down.

    Adding a cost of at least 0 never lowers a sum, even when the sum is rounded.
    """
    paid, ended = np.asarray(report.totals.cost), np.asarray(report.ended)
    lower: np.ndarray = np.less(paid, 0)
    lower[1:] |= (paid[1:] < paid[:-1]) & ~ended[:-1, :, None]
    return np.asarray(lower.reshape(len(lower), -1).any(axis=1))


def group(name: str) -> str:
    """Return the part of a metric's name before the first slash."""
    return name.partition("/")[0]


def check_parameters(agent: Any, step: int, last_good: str) -> None:
    """Raise an error if a parameter of the agent is not finite."""
    name = first_not_finite(agent)
    if name is not None:
        of_observations = name.startswith(".observation_stats")
        raise NonFiniteError(
            f"the agent's {name} must be finite, but it was not at step {step:,}. "
            f"{last_good} {LARGE_OBSERVATION if of_observations else ADVICE}"
        )


def first_not_finite(tree: Any) -> str | None:
    """Return the path of the first leaf that is not finite, or None."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not bool(np.isfinite(np.asarray(leaf)).all()):
            return jax.tree_util.keystr(path)
    return None
