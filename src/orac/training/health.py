"""Health checks, which stop a run before it saves an invalid number.

A number is invalid if it is not finite, and a cost also if it is below 0. An actor that is
stuck is not handled here: `measurement.py` replaces it.
"""

from typing import Any

import jax
import numpy as np

from orac.config.validation import NonFiniteError
from orac.training.train_step import StepReport

ORDER = ("critic", "actor", "constraint", "explore")
"""Groups of metrics. An update computes the first three, in this order.

If metrics of several groups become invalid in the same round, the error names a metric of
the group that comes first here.
"""

ADVICE = (
    "Try smaller learning rates, agent.max_gradient_norm=10, or agent.reward_scale=0.1."
)


OBSERVATION_ADVICE = (
    "The square of an observation was infinite: let the environment return observations "
    "in a bounded range."
)


NEGATIVE = "the environment's negative cost"


FIX_ENVIRONMENT = "The environment's step returned this value: fix it there."


def check_report(
    report: StepReport,
    first_round: int,
    num_envs: int,
    newest: str,
    running_cost: np.ndarray | None = None,
) -> None:
    """Raise an error if a number that learning uses is not finite, or if a cost is negative.

    These numbers are the actions, observations, rewards, costs and metrics of updates. Costs
    must be at least 0, because limits and certificates assume this. The error names the
    earliest invalid value. It contains `newest`, a sentence about the newest checkpoint.
    `running_cost` contains the costs of the running episodes before the first round, with the
    shape (environment, cost). If it is None, they are 0.
    """
    # The action is checked first, because even a correct environment returns NaN after a
    # NaN action.
    bad = {
        "the agent's action": ~np.asarray(report.finite_action),
        "the environment's observation": ~np.asarray(report.finite_observation),
        "the environment's reward": rows_not_finite(report.totals.reward),
        "the environment's cost": rows_not_finite(report.totals.cost),
        NEGATIVE: rows_with_a_negative_cost(report, running_cost),
    }
    for name in sorted(report.metrics, key=lambda x: ORDER.index(x.partition("/")[0])):
        bad[name] = rows_not_finite(report.metrics[name]) & report.updated
    first = {name: int(rows.argmax()) for name, rows in bad.items() if rows.any()}
    if not first:
        return
    quantity = min(first, key=first.__getitem__)
    step = (first_round + first[quantity] + 1) * num_envs
    if quantity == NEGATIVE:
        raise ValueError(
            f"the environment's cost must be at least 0, but one was negative at step "
            f"{step:,}. {newest} {FIX_ENVIRONMENT}"
        )
    of_environment = quantity.startswith("the environment")
    advice = FIX_ENVIRONMENT if of_environment else ADVICE
    raise NonFiniteError(
        f"{quantity} must be finite, but it was not at step {step:,}. {newest} {advice}"
    )


def rows_not_finite(values: Any) -> np.ndarray:
    """Return, for each index of the first axis, whether a value at it is not finite."""
    return ~np.isfinite(values).reshape(len(values), -1).all(axis=1)


def rows_with_a_negative_cost(
    report: StepReport, running_cost: np.ndarray | None = None
) -> np.ndarray:
    """Return, for each round, whether the total cost of an episode decreased.

    This finds negative costs, because adding a cost of at least 0 never lowers a sum, even
    when the sum is rounded.
    """
    totals, ended = np.asarray(report.totals.cost), np.asarray(report.ended)
    before = np.zeros_like(totals)
    if running_cost is not None:
        before[0] = running_cost
    before[1:] = np.where(ended[:-1, :, None], 0, totals[:-1])
    lower: np.ndarray = np.less(totals, before)
    return np.asarray(lower.reshape(len(lower), -1).any(axis=1))


def check_parameters(agent: Any, step: int, newest: str) -> None:
    """Raise an error if a number in the agent's state is not finite.

    `newest` is a sentence about the newest checkpoint.
    """
    name = first_not_finite(agent)
    if name is not None:
        of_observations = name.startswith(".observation_stats")
        raise NonFiniteError(
            f"the agent's {name} must be finite, but it was not at step {step:,}. "
            f"{newest} {OBSERVATION_ADVICE if of_observations else ADVICE}"
        )


def first_not_finite(tree: Any) -> str | None:
    """Return the path of the first leaf with a value that is not finite, or None."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not bool(np.isfinite(np.asarray(leaf)).all()):
            return jax.tree_util.keystr(path)
    return None
