"""Costs of a step, which an environment reports or a cost function computes.

`read_value` and `read_info` parse one step. They return the numbers that they find, or an
`InvalidCost`, from which the caller makes an error that names the environment and the step.
`read_costs` reads the costs of a vector environment, whose infos Gymnasium batches into
columns, each with a mask. The user's cost function is called in `wrapper.py` and `vector.py`.
"""

import math
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Bool, Float32

from orac.config.validation import FLOAT32_MAX

Infos = dict[str, Any]
NOT_REPORTED = object()
"""Stands for the missing cost of a step with five values. None cannot be used for this,
because an environment that returns six values may report None by mistake."""

SAFE_SQUARE = 1e76
"""If the sum of squares is below this, no number exceeds 3.4e38, the float32 maximum."""

REPORT_IT = (
    "Report it as info['cost'] or as the third of six step values, name other info keys "
    "with cost_keys=, or compute it with cost_fn= (in the shell --cost-fn module:function)."
)
NUMBERS = "Report a float, or a flat array with one number per constraint."
FINITE = "Guard its formula against division by zero and overflow."


class InvalidCost(NamedTuple):
    """Reason why a step has no usable cost, and advice on how to fix it.

    In messages, the reason follows the word "reported".
    """

    reason: str
    fix: str = NUMBERS


Reading = tuple[float, ...] | InvalidCost
"""The costs of one step, or the reason why there are none. There should be one cost per
constraint, which `find_fault` checks."""
Readings = np.ndarray | list[Reading]
"""One row per environment: an array of numbers, or a list of unchecked readings."""


class CostKeys(NamedTuple):
    """Info keys of the costs: one key per cost, or one key for an array of all costs."""

    keys: tuple[str, ...] = ("cost",)
    array_key: str | None = None
    """Key of a flat array that is read if `info` lacks one of `keys`."""

    def found_in(self, info: dict[str, Any]) -> tuple[str, ...]:
        """Return the keys to read in this info."""
        lacking = any(key not in info for key in self.keys)
        return (self.array_key,) if lacking and self.array_key in info else self.keys


def read_value(value: Any) -> Reading:
    """Return the costs in a number or in a flat array of numbers."""
    if type(value) is float:
        return (value,)
    is_reading = type(value) is tuple and all(type(number) is float for number in value)
    if is_reading or isinstance(value, InvalidCost):
        return value
    if value is None:
        return InvalidCost("no cost (it is None)", REPORT_IT)
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, object)  # It is a list of lists of different lengths.
    # The kind is checked, because NumPy would turn the string "3" into a number.
    if array.dtype.kind not in "buif":
        return InvalidCost(f"the cost {value!r}, which is not a number")
    if array.ndim > 1:
        return InvalidCost(f"a cost of shape {array.shape} instead of a number")
    return tuple(float(number) for number in array.reshape(-1))


def read_info(info: Any, cost_keys: CostKeys) -> Reading:
    """Return the costs, which are all under a single key or each under its own key."""
    if not isinstance(info, dict):
        return InvalidCost(f"no cost: info is {info!r}, not a dict", REPORT_IT)
    keys = cost_keys.found_in(info)
    for key in keys:
        if key not in info:
            have = ", ".join(repr(known) for known in info) or "none"
            each = (
                f"Report one number under each of the keys {', '.join(map(repr, keys))}, "
                "or report a flat array as info['cost'] in the order of the constraints, "
                "or compute the costs with cost_fn=."
            )
            fix = each if cost_keys.array_key else REPORT_IT
            missing = f"no cost: info has no key {key!r} (its keys: {have})"
            return InvalidCost(missing, fix)
    if len(keys) == 1:
        return read_value(info[keys[0]])
    costs: list[float] = []
    for key in keys:
        reading = read_value(info[key])
        if isinstance(reading, InvalidCost):
            return reading
        if len(reading) != 1:
            return InvalidCost(
                f"{len(reading)} numbers, not one, under the key {key!r}"
            )
        costs.append(reading[0])
    return tuple(costs)


def find_fault(reading: Reading, num_costs: int | None) -> InvalidCost | None:
    """Return why a reading is not a valid cost, or None if it is one."""
    if isinstance(reading, InvalidCost):
        return reading
    if not reading:
        return InvalidCost("an empty cost")
    if num_costs is not None and len(reading) != num_costs:
        found = "1 cost" if len(reading) == 1 else f"{len(reading)} costs"
        expected = "1 constraint" if num_costs == 1 else f"{num_costs} constraints"
        return InvalidCost(
            f"{found} for {expected}",
            "Give one constraint for each cost (constraints=[orac.Constraint(...), ...]), "
            "and report that number of costs at every step.",
        )
    for number in reading:
        if not math.isfinite(number):
            return InvalidCost(f"a cost of {number}", FINITE)
        if abs(number) > FLOAT32_MAX:
            return InvalidCost(f"a cost of {number}, which is beyond float32", FINITE)
        if number < 0:
            fix = (
                "Costs must not be negative: report max(cost, 0), and put bonuses into "
                "the reward."
            )
            return InvalidCost(f"a cost of {number}", fix)
    return None


def read_costs(
    cost: Any, infos: Infos, restarted: Bool[np.ndarray, " batch"], cost_keys: CostKeys
) -> Readings:
    """Return one unchecked row of costs per environment of a vector environment.

    `cost` is the third of six step values, or None if there were five. For environments
    that `restarted` in this call, the last step of the old episode is read from
    `final_info`. Columns are read whole if all values are numbers, and row by row otherwise.
    """
    if cost is not None:
        column = np.asarray(cost)
        if _is_numeric(column):
            return column
        return [read_value(value) for value in column]
    if not np.count_nonzero(restarted):
        columns = [_full_column(infos, key) for key in cost_keys.found_in(infos)]
        column = columns[0]
        if len(columns) == 1 and column is not None:
            if _is_numeric(column):
                return column
            return [read_value(value) for value in column.tolist()]
        if all(column is not None and _is_numeric(column, 1) for column in columns):
            return np.stack([c for c in columns if c is not None], axis=1)
    return [read_info(info, cost_keys) for info in info_rows(infos, restarted)]


def keep_fractions(vector: VectorEnv[Any, Any, Any]) -> None:
    """Make Gymnasium batch the infos of this vector environment without rounding.

    Gymnasium stores a batch in the type of its first value, so 0.7 would become 0 if the
    first environment reports the integer 0.
    """
    vector._add_info = MethodType(_add_exact_info, vector)


def _add_exact_info(vector: Any, infos: Infos, info: Infos, row: int) -> Infos:
    """Add one environment's info to the batch, after widening columns that cannot hold it.

    Gymnasium calls this method again for every dict in an info, such as `final_info`.
    """
    for key, value in info.items():
        column = infos.get(key)
        if isinstance(column, np.ndarray) and column.dtype.kind in "buif":
            infos[key] = column.astype(_common_type(column, value), copy=False)
    return type(vector)._add_info(vector, infos, info, row)


def _common_type(column: np.ndarray, value: Any) -> np.dtype[Any]:
    """Return a type that holds both a column of numbers and one more value exactly."""
    if value is None:
        return column.dtype
    try:
        dtype = np.asarray(value).dtype
    except ValueError:
        return np.dtype(object)
    numeric = dtype.kind in "buif"
    return np.result_type(column.dtype, dtype) if numeric else np.dtype(object)


def checked_costs(
    readings: Readings, valid: np.ndarray, num_costs: int, name: str, step: int
) -> Float32[np.ndarray, "batch constraint"]:
    """Return the readings as one array, with zeros where `valid` is False.

    A cost that is missing, negative, not a number or not finite raises a `ValueError` that
    names the environment and the step.
    """
    if len(readings) != len(valid):
        raise ValueError(
            f"{name}: the costs at step {step:,} must have one row per environment "
            f"({len(valid)}), got {len(readings)}."
        )
    if np.count_nonzero(valid) == len(valid):
        # All costs are converted at once. They are read one by one only if this fails.
        try:
            cost = np.array(readings, np.float64)
        except (TypeError, ValueError):
            cost = np.empty(0)
        if cost.ndim == 1 and num_costs == 1:
            cost = cost[:, None]
        is_complete = cost.shape == (len(readings), num_costs)
        if is_complete and is_storable(cost) and cost.min() >= 0:
            return cost.astype(np.float32)
    zero: Reading = (0.0,) * num_costs
    rows = [
        read_value(reading) if is_step else zero
        for reading, is_step in zip(readings, valid, strict=True)
    ]
    for index, row in enumerate(rows):
        if (wrong := find_fault(row, num_costs)) is not None:
            raise ValueError(
                f"{name}: at step {step:,} environment {index} reported {wrong.reason}. "
                f"{wrong.fix}"
            )
    return np.array(rows, np.float32)


def is_storable(array: np.ndarray) -> bool:
    """Return whether every entry is finite, also after a conversion to float32.

    Numerics: the sum of squares is computed by one fast call. Every entry is checked only
    if the sum is not below `SAFE_SQUARE`, which includes sums that are NaN or infinite.
    """
    if array.dtype.kind != "f":
        return array.dtype.kind in "bui"
    flat = array.reshape(-1)
    if float(flat.dot(flat)) < SAFE_SQUARE:
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(np.float32)).all())


def read_metric(
    infos: dict[str, Any], key: str, restarted: Bool[np.ndarray, " batch"]
) -> Float32[np.ndarray, " batch"]:
    """Return one metric of every environment; it is NaN where it was not reported."""
    if not np.count_nonzero(restarted):
        column = _full_column(infos, key)
        if column is not None and _is_numeric(column, 1):
            return column.astype(np.float32)
    values = [info.get(key, np.nan) for info in info_rows(infos, restarted)]
    try:
        return np.array(values, np.float32)
    except (TypeError, ValueError):
        raise ValueError(
            f"info[{key!r}] must be a number in every environment, got {values}. Leave "
            f"{key!r} out of metric_names."
        ) from None


def unpack_step(result: Any, name: str) -> tuple[Any, ...]:
    """Return six step values; the third is the cost, or NOT_REPORTED if there were five."""
    size = len(result) if isinstance(result, tuple | list) else None
    if size == 6:
        return tuple(result)
    if size == 5:
        return (*result[:2], NOT_REPORTED, *result[2:])
    kind = f"an object of type {type(result).__name__}"
    found = kind if size is None else "1 value" if size == 1 else f"{size} values"
    raise ValueError(
        f"{name}.step returned {found}, but 5 (observation, reward, "
        "terminated, truncated, info) or 6 (with cost after reward) were expected. "
        "An environment of the old gym package needs a wrapper that turns done into "
        "terminated and truncated."
    )


def info_rows(infos: Infos, restarted: Bool[np.ndarray, " batch"]) -> list[Infos]:
    """Return the info of each environment's step, as a single environment returns it."""
    final = infos.get("final_info")
    return [
        _info_row(final if is_over and final is not None else infos, row)
        for row, is_over in enumerate(restarted)
    ]


def _info_row(infos: Any, row: int) -> dict[str, Any]:
    """Return one environment's info from batched infos or from an array of infos."""
    if not isinstance(infos, dict):
        return infos[row] or {}
    info: dict[str, Any] = {}
    for key, column in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        present = infos.get(f"_{key}")
        if isinstance(column, dict):
            info[key] = _info_row(column, row)
        elif present is None or present[row]:
            info[key] = column[row] if np.ndim(column) else column
    return info


def _full_column(infos: dict[str, Any], key: str) -> np.ndarray | None:
    """Return the batched value under `key` if every environment reported one."""
    column, present = infos.get(key), infos.get(f"_{key}")
    is_full = present is None or np.count_nonzero(present) == len(present)
    if column is None or isinstance(column, dict) or not is_full:
        return None
    column = np.asarray(column)
    return column if column.ndim else None


def _is_numeric(column: np.ndarray, max_axes: int = 2) -> bool:
    return column.dtype.kind in "buif" and 1 <= column.ndim <= max_axes
