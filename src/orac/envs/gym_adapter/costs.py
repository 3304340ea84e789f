"""What one step costs, read from what an environment or a user's function reports.

A reading is a tuple of numbers, one per constraint, or a `NoCost` that says in words why
there is none: the caller knows which environment and which step it was and raises.
This room knows nothing of vector environments, observations or constraints' limits.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CostFn = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""`cost_fn(obs, action, next_obs, info)`: a number, or one number per constraint."""

FLOAT32_MAX = float(np.finfo(np.float32).max)

REPORT_IT = (
    "Report it as info['cost'] or as the third of six step values, name other info keys "
    "with cost_keys=, or compute it with cost_fn=."
)
NUMBERS = "Report a float, or a flat array with one number per constraint."
SAME_NUMBER = (
    "Give one constraint for each cost (constraints=[orac.Constraint(...), ...]), and "
    "report as many at every step."
)
FINITE = "Guard its formula against division by zero and overflow."
FROM_ZERO = (
    "A cost is at least 0: report max(cost, 0), and put what is good in the reward."
)
EACH = (
    "Report one number under each of those keys, a flat array as info['cost'] in the order "
    "of the constraints, or compute them with cost_fn=."
)


class NoCost(NamedTuple):
    """Why a step has no usable cost, as the object of 'reported ...', and what to do."""

    reason: str
    fix: str = NUMBERS


Reading = tuple[float, ...] | NoCost


class CostKeys(NamedTuple):
    """Where info has the costs: under one key each, or all of them under one key."""

    named: tuple[str, ...] = ("cost",)
    flat: str | None = None
    """Key of a flat array that counts where info lacks one of those that are named."""

    def within(self, info: dict[str, Any]) -> tuple[str, ...]:
        """The keys to read of this info."""
        lacking = any(key not in info for key in self.named)
        return (self.flat,) if lacking and self.flat in info else self.named


def read_value(value: Any) -> Reading:
    """The costs in a number or in a flat array of them."""
    if type(value) is float:
        return (value,)
    if isinstance(value, NoCost):
        return value
    if value is None:
        return NoCost("no cost (it is None)", REPORT_IT)
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


def read_info(info: Any, cost_keys: CostKeys) -> Reading:
    """The costs under the keys: one key may hold several, several keys hold one each."""
    if not isinstance(info, dict):
        return NoCost(f"no cost: info is {info!r}, not a dict", REPORT_IT)
    keys = cost_keys.within(info)
    for key in keys:
        if key not in info:
            have = ", ".join(repr(known) for known in info) or "none"
            missing = f"no cost: info has no key {key!r} (its keys: {have})"
            return NoCost(missing, REPORT_IT if cost_keys.flat is None else EACH)
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


def fault(reading: Reading, num_costs: int | None) -> NoCost | None:
    """What is wrong with a reading; None when it can be learned from."""
    if isinstance(reading, NoCost):
        return reading
    if not reading:
        return NoCost("an empty cost")
    if num_costs is not None and len(reading) != num_costs:
        counts = f"{len(reading)} cost(s) where {num_costs} were expected"
        return NoCost(counts, SAME_NUMBER)
    for number in reading:
        if not math.isfinite(number):
            return NoCost(f"a cost of {number}", FINITE)
        if abs(number) > FLOAT32_MAX:
            return NoCost(f"a cost of {number}, which is beyond float32", FINITE)
        if number < 0:
            return NoCost(f"a cost of {number}", FROM_ZERO)
    return None
