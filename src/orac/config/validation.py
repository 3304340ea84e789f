"""What cannot be meant is refused, in words: the checks that all doors share.

An error says what was expected and what arrived; a name nobody knows gets the nearest
one. Nothing here knows which settings there are.
"""

import difflib
import math
from collections.abc import Iterable
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" with the known name nearest to `name`, or "".

    Upper and lower case count as equal: the classes are ORAC and WCSAC, the names orac...
    """
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(str(name).lower(), lowered, 1, 0.4)
    return f" Did you mean {lowered[near[0]]!r}?" if near else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that nobody knows, with the nearest one that somebody does."""
    known = list(known)
    hint = did_you_mean(name, known)
    return ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}.{hint}")


def check_choice(what: str, value: str, known: Iterable[str]) -> None:
    """Refuse a word that is not one of those known."""
    if value not in known:
        raise unknown_name(what, value, known)


def is_number(value: Any) -> bool:
    """Whether this is a finite number; True and False are none."""
    return (
        isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    )


def check_range(
    what: str,
    value: float,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    advice: str = "",
) -> None:
    """Refuse a number that is not finite or lies outside [low, high] or (low, high]."""
    good = (
        is_number(value)
        and (low < value if open_low else low <= value)
        and value <= high
    )
    if good:
        return
    if high < math.inf:
        text = f"in {'(' if open_low else '['}{low:g}, {high:g}]"
    elif low > -math.inf:
        text = f"{'above' if open_low else 'at least'} {low:g}"
    else:
        text = "a finite number"
    raise ValueError(f"{what} must be {text}, got {value!r}.{advice and ' ' + advice}")


def check_flags(what: str, config: Any, *names: str) -> None:
    """Refuse anything but True and False: the text "no" would count as true."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, bool):
            raise ValueError(f"{what}.{name} must be true or false, got {value!r}.")


def check_count(what: str, value: int, low: int = 1, advice: str = "") -> None:
    """Refuse anything but a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(
            f"{what} must be a whole number of at least {low}, got {value!r}."
            f"{advice and ' ' + advice}"
        )


def check_seed(what: str, value: int) -> None:
    """Refuse a seed of more than 32 bits: JAX keeps no more, and two would be one."""
    check_count(what, value, 0)
    if value >= 2**32:
        raise ValueError(f"{what} must be below 2**32, got {value}.")


def frozen_value(value: Any) -> Any:
    """`value` with lists as tuples and NumPy's scalars as Python's, all the way down."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen_value(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def freeze(settings: Any) -> None:
    """Make every field hashable and Python's own: a config is static under `jit`."""
    for entry in fields(settings):
        value = frozen_value(getattr(settings, entry.name))
        object.__setattr__(settings, entry.name, value)


def check_tuple(what: str, value: Any, of: str) -> None:
    """Refuse one thing where several are expected."""
    if not isinstance(value, tuple):
        raise ValueError(f"{what} must be a list of {of}, got {value!r}.")
