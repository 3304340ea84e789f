"""The costs of a vector environment's step, checked before a learner sees them.

They are read from infos or computed by the user's function, in the user's own terms. A
cost that is missing, negative, no number or not finite is an error that names the environment
and the step. This room knows nothing of limits, constraints' names or episodes.
"""

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Float32

from orac.envs.gym_adapter.autoreset import (
    AnyVector,
    Outcome,
    final_observations,
    rows_of,
)
from orac.envs.gym_adapter.costs import CostFn, CostKeys, NoCost, fault, read_value
from orac.envs.gym_adapter.infos import Readings, info_rows, read_costs
from orac.envs.gym_adapter.numeric import is_storable


class CostMeter:
    """Reads costs under `keys`, or computes them with the user's `cost_fn`."""

    def __init__(
        self,
        vector: AnyVector,
        mode: AutoresetMode,
        keys: CostKeys,
        cost_fn: CostFn | None,
    ) -> None:
        self._vector, self._mode = vector, mode
        self._keys, self._cost_fn = keys, cost_fn
        self.before: list[Any] = []
        """What each environment's action was chosen on; kept only for a `cost_fn`."""
        self._kind: str | None = None
        batches = isinstance(vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._may_round = batches and vector.num_envs > 1

    def remember(self, observation: Any) -> None:
        """Copy what the next actions are chosen on: environments may reuse the array."""
        if self._cost_fn is not None:
            self.before = deepcopy(rows_of(self._vector, observation))

    def read(self, outcome: Outcome, action: np.ndarray, valid: np.ndarray) -> Readings:
        """One row of costs per environment, unchecked; any row where no step was taken."""
        if self._cost_fn is None:
            readings = read_costs(outcome, self._keys, self._mode)
            self._forbid_rounding(readings)
            return readings
        reached = rows_of(self._vector, outcome.observation)
        if self._mode is AutoresetMode.SAME_STEP and outcome.any_ended:
            for row, observation in final_observations(outcome).items():
                reached[row] = observation
        infos = info_rows(outcome, self._mode)
        steps = zip(self.before, action, reached, infos, strict=True)
        return [
            read_value(self._cost_fn(*step)) if took_one else NoCost("a restart")
            for step, took_one in zip(steps, valid, strict=True)
        ]

    def _forbid_rounding(self, readings: Readings) -> None:
        """Gymnasium stores a batch in the type of its first value, so 0.7 can become 0."""
        if not self._may_round or not isinstance(readings, np.ndarray):
            return
        kind = "float" if readings.dtype.kind == "f" else "integer"
        if self._kind not in (None, kind):
            raise ValueError(
                "The environments report their cost now as an integer, now as a float, "
                "and Gymnasium's vector environments round such batches. Report "
                "float(cost) always."
            )
        self._kind = kind


def checked_costs(
    readings: Readings, valid: np.ndarray, num_costs: int, name: str, step: int
) -> Float32[np.ndarray, "batch constraint"]:
    """The readings as one array, zero where no step was taken; a sentence if one is bad."""
    if len(readings) != len(valid):
        raise ValueError(
            f"{name} reported {len(readings)} costs for {len(valid)} environments at step "
            f"{step:,}. Report one per environment."
        )
    if np.count_nonzero(valid) == len(valid):
        cost = _as_array(readings, num_costs)
        if cost is not None:
            return cost
    rows: list[Any] = [read_value(_) for _ in readings]
    zero = (0.0,) * num_costs
    rows = [row if kept else zero for row, kept in zip(rows, valid, strict=True)]
    for index, row in enumerate(rows):
        wrong = fault(row, num_costs)
        if wrong is not None:
            raise ValueError(
                f"{name}: at step {step:,} environment {index} reported {wrong.reason}. "
                f"{wrong.fix}"
            )
    return np.array(rows, np.float32)


def _as_array(readings: Readings, num_costs: int) -> np.ndarray | None:
    """All costs at once; None when something is wrong with one of them."""
    try:
        cost = np.array(readings, np.float64)
    except (TypeError, ValueError):
        return None
    if cost.ndim == 1 and num_costs == 1:
        cost = cost[:, None]
    good = cost.shape == (len(readings), num_costs) and is_storable(cost)
    return cost.astype(np.float32) if good and cost.min() >= 0 else None
