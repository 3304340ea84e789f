"""What one step costs, read from what an environment or a user's function reports.

A reading is a tuple of numbers, one per constraint, or a `NoCost` that says in words why
there is none: the caller knows which environment and which step it was and raises.
This room knows nothing of vector environments, observations or constraints' limits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

CostFn = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""`cost_fn(obs, action, next_obs, info)`: a number, or one number per constraint."""

FIX = (
    "Report it as info['cost'] or as the third of six step values, name other info keys "
    "with cost_keys=, or compute it with cost_fn=."
)


FLOAT32_MAX = float(np.finfo(np.float32).max)


class NoCost(NamedTuple):
    """Why a step has no usable cost, as the object of 'reported ...'."""

    reason: str


Reading = tuple[float, ...] | NoCost


def read_value(value: Any) -> Reading:
    """The costs in a number or in a flat array of them."""
    if type(value) is float:
        return (value,)
    if isinstance(value, NoCost):
        return value
    if value is None:
        return NoCost("no cost (it is None)")
    try:
        array = np.asarray(value)
    except ValueError:
        return NoCost(f"the cost {value!r}, which is not a number")
    # The kind is asked for, because NumPy would turn the string "3" into a number.
    if array.dtype.kind not in "buif":
        return NoCost(f"the cost {value!r}, which is not a number")
    if array.ndim > 1:
        return NoCost(f"a cost of shape {array.shape} instead of a number")
    return tuple(float(number) for number in array.reshape(-1))


def read_info(info: dict[str, Any], keys: Sequence[str]) -> Reading:
    """The costs under `keys`: one key may hold several, several keys hold one each."""
    for key in keys:
        if key not in info:
            have = ", ".join(repr(known) for known in info) or "none"
            return NoCost(f"no cost: info has no key {key!r} (its keys: {have})")
    if len(keys) == 1:
        return read_value(info[keys[0]])
    costs: list[float] = []
    for key in keys:
        reading = read_value(info[key])
        if isinstance(reading, NoCost):
            return reading
        if len(reading) != 1:
            return NoCost(f"{len(reading)} numbers under the cost key {key!r}, not one")
        costs.append(reading[0])
    return tuple(costs)


def fault(reading: Reading, num_costs: int | None) -> str | None:
    """What is wrong with a reading, as the object of 'reported ...'; None when good."""
    if isinstance(reading, NoCost):
        return reading.reason
    if not reading:
        return "an empty cost"
    if num_costs is not None and len(reading) != num_costs:
        return f"{len(reading)} cost(s) where {num_costs} were expected"
    bad = next((number for number in reading if not math.isfinite(number)), None)
    if bad is not None:
        return f"a cost of {bad}"
    if any(abs(number) > FLOAT32_MAX for number in reading):
        return f"a cost of {max(reading, key=abs)}, which is beyond float32"
    return None
