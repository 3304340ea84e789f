"""Stop a run that has gone wrong, by name and step, before anything bad is saved."""

from typing import Any

import jax
import numpy as np

from orac.training.state import RoundReport


class NonFiniteError(ArithmeticError):
    """A quantity of a run became infinite or not a number."""


def check_report(
    report: RoundReport, first_round: int, num_envs: int, last_good: str
) -> None:
    """Refuse a stretch in which a metric or an episode's sum was not finite."""
    for name, values in sorted(report.metrics.items()):
        bad = ~np.isfinite(values) & report.updated
        if bad.any():
            stop(name, first_round, int(bad.argmax()), num_envs, last_good)
    sums = {"reward": report.totals.reward, "cost": report.totals.cost}
    for name, values in sums.items():
        bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
        if bad.any():
            quantity = f"{name} of the environment"
            stop(quantity, first_round, int(bad.argmax()), num_envs, last_good)


def stop(
    quantity: str, first_round: int, index: int, num_envs: int, last_good: str
) -> None:
    step = (first_round + index + 1) * num_envs
    raise NonFiniteError(
        f"{quantity} must be finite, but it was not at step {step:,}. {last_good} "
        "Try smaller learning rates, agent.max_gradient_norm=10, or "
        "agent.reward_scale=0.1."
    )


def check_parameters(agent: Any, step: int, last_good: str) -> None:
    """Refuse to save an agent with a parameter that is not finite."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(agent)[0]:
        if not bool(np.isfinite(np.asarray(leaf)).all()):
            raise NonFiniteError(
                f"the agent's {jax.tree_util.keystr(path)} must be finite, but it was "
                f"not at step {step:,}. {last_good} Try smaller learning rates, "
                "agent.max_gradient_norm=10, or agent.reward_scale=0.1."
            )
