"""NumPy data inside JSON: what an environment remembers, for a checkpoint's `extra`.

Arrays become their bytes in base 64 with dtype and shape, so that they come back exact.
"""

import base64
from typing import Any

import numpy as np

ARRAY = "__array__"


def to_json(value: Any) -> Any:
    """Dicts, lists, numbers, strings and arrays as what JSON can hold."""
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        return {
            ARRAY: base64.b64encode(data.tobytes()).decode(),
            "dtype": data.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, np.generic):
        return to_json(np.asarray(value))
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    """The inverse of `to_json`; tuples come back as lists."""
    if isinstance(value, dict):
        if ARRAY in value:
            dtype = np.dtype(value["dtype"])
            if dtype.hasobject:
                raise ValueError(f"an array must hold plain numbers, got {dtype}.")
            data = base64.b64decode(value[ARRAY])
            return np.frombuffer(data, dtype).reshape(value["shape"]).copy()
        return {name: from_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value
