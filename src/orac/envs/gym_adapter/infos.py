"""Costs and metrics in the batched infos of a Gymnasium vector environment.

Gymnasium turns the infos of its environments into columns, with a mask beside each. Here
columns are read at once where all their values are numbers and row by row where not; the
last step of an episode that restarted in the same call is read from `final_info`.
"""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Float32

from orac.envs.gym_adapter.autoreset import Outcome
from orac.envs.gym_adapter.costs import CostKeys, Reading, read_info, read_value

Readings = np.ndarray | list[Reading]
"""One row per environment: numbers, or readings still to be looked at one by one."""


def read_costs(outcome: Outcome, keys: CostKeys, mode: AutoresetMode) -> Readings:
    """Costs, one row per environment: an array where all are plainly numbers."""
    if outcome.cost is not None:
        column = np.asarray(outcome.cost)
        return column if _is_numeric(column) else [read_value(_) for _ in column]
    if mode is AutoresetMode.SAME_STEP and outcome.any_ended:
        return [read_info(info, keys) for info in info_rows(outcome, mode)]
    columns = [_full_column(outcome.infos, key) for key in keys.within(outcome.infos)]
    if len(columns) == 1 and columns[0] is not None:
        column = columns[0]
        return column if _is_numeric(column) else [_trusted(_) for _ in column.tolist()]
    if all(column is not None and _is_numeric(column, 1) for column in columns):
        return np.stack([column for column in columns if column is not None], axis=1)
    return [read_info(info, keys) for info in info_rows(outcome, mode)]


def read_metric(
    outcome: Outcome, key: str, mode: AutoresetMode
) -> Float32[np.ndarray, " batch"]:
    """One of the environments' own numbers; NaN where it was not reported."""
    if mode is not AutoresetMode.SAME_STEP or not outcome.any_ended:
        column = _full_column(outcome.infos, key)
        if column is not None and _is_numeric(column, 1):
            return column.astype(np.float32)
    values = [info.get(key, np.nan) for info in info_rows(outcome, mode)]
    try:
        return np.array(values, np.float32)
    except (TypeError, ValueError):
        raise ValueError(
            f"info[{key!r}] is not a number in every environment ({values}). Leave "
            f"{key!r} out of metric_names."
        ) from None


def info_rows(outcome: Outcome, mode: AutoresetMode) -> list[dict[str, Any]]:
    """The info of each environment's own step, in Gymnasium's terms for one environment."""
    final = outcome.infos.get("final_info") if mode is AutoresetMode.SAME_STEP else None
    return [
        _info(final if final is not None and ended else outcome.infos, row)
        for row, ended in enumerate(outcome.ended)
    ]


def _full_column(infos: dict[str, Any], key: str) -> np.ndarray | None:
    """The batched value under `key` when every environment reported one."""
    column, present = infos.get(key), infos.get(f"_{key}")
    if column is None or isinstance(column, dict):
        return None
    if present is not None and np.count_nonzero(present) < len(present):
        return None
    column = np.asarray(column)
    return column if column.ndim else None


def _is_numeric(column: np.ndarray, most_axes: int = 2) -> bool:
    return column.dtype.kind in "buif" and 1 <= column.ndim <= most_axes


def _trusted(value: Any) -> Reading:
    """A view reports readings; anything else in an object column is still to be read."""
    if type(value) is tuple and all(type(number) is float for number in value):
        return value
    return read_value(value)


def _info(infos: Any, row: int) -> dict[str, Any]:
    """One environment's info out of a batched one, or out of an array of infos."""
    if not isinstance(infos, dict):
        return infos[row] or {}
    own: dict[str, Any] = {}
    for key, column in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        present = infos.get(f"_{key}")
        if isinstance(column, dict):
            own[key] = _info(column, row)
        elif present is None or present[row]:
            own[key] = column[row] if np.ndim(column) else column
    return own
