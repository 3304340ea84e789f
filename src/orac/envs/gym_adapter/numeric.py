"""Whether what came back is a number, and one that float32 can hold.

These run at every step of every environment, so they are written for small arrays.
"""

from typing import Any

import numpy as np

SAFE_SQUARE = 1e76
"""A sum of squares below this holds no number beyond float32's 3.4e38."""


def is_storable(array: np.ndarray) -> bool:
    """Whether every entry is finite, also once it is float32.

    Numerics: the sum of squares is one fast call that NaN and infinity cannot pass; what
    it cannot vouch for is looked at entry by entry.
    """
    if array.dtype.kind != "f":
        return array.dtype.kind in "bui"
    flat = array.reshape(-1)
    if float(flat.dot(flat)) < SAFE_SQUARE:
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(np.float32)).all())


def as_number(value: Any) -> float | None:
    """A Python float from a scalar of any kind or an array of one; None from others."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "buif":
        return None
    return float(array.item())
