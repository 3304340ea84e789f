"""Checks of what users pass in, shared by all packages.

Invalid values raise a `ValueError` that says what was expected, what arrived and what to do.
An unknown name gets the nearest known one.
"""

import difflib
import importlib
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" with the known name nearest to `name`, or "".

    Upper and lower case count as equal: the classes are ORAC and WCSAC, the names orac...
    """
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(str(name).lower(), lowered, 1, 0.4)
    return f" Did you mean {lowered[near[0]]!r}?" if near else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for an unknown name."""
    known = list(known)
    hint = did_you_mean(name, known)
    return ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}.{hint}")


def check_choice(what: str, value: str, known: Iterable[str]) -> None:
    """Raise an error unless the value is one of those known."""
    if value not in known:
        raise unknown_name(what, value, known)


def import_extra(what: str, extra: str, *modules: str, advice: str = "") -> Any:
    """Import modules of an optional dependency and return the first.

    If it is not installed, the error says which of our extras `what` needs.
    """
    try:
        imported = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        package = modules[0].partition(".")[0]
        raise ImportError(
            f'{what} needs {package}: pip install "orac-rl[{extra}]".'
            f"{advice and ' ' + advice}"
        ) from error
    return imported[0]


def is_number(value: Any) -> bool:
    """Return whether this is a finite number. True and False are not."""
    return (
        isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    )


def check_range(
    what: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    advice: str = "",
) -> None:
    """Raise an error unless the number is finite and in [low, high] or (low, high]."""
    above = is_number(value) and (low < value if open_low else low <= value)
    if above and value <= high:
        return
    if high < math.inf:
        text = f"in {'(' if open_low else '['}{low:g}, {high:g}]"
    elif low > -math.inf:
        text = f"{'above' if open_low else 'at least'} {low:g}"
    else:
        text = "a finite number"
    raise ValueError(f"{what} must be {text}, got {value!r}.{advice and ' ' + advice}")


def check_count(what: str, value: Any, low: int = 1, advice: str = "") -> None:
    """Raise an error unless the value is a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(
            f"{what} must be a whole number of at least {low}, got {value!r}."
            f"{advice and ' ' + advice}"
        )


def check_seed(what: str, value: int) -> None:
    """Raise an error for a seed of more than 32 bits, of which JAX would drop some."""
    check_count(what, value, 0)
    if value >= 2**32:
        raise ValueError(f"{what} must be below 2**32, got {value}.")


@dataclass(frozen=True)
class Range:
    """Annotates a number of a config with its valid range: [low, high] or (low, high]."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    advice: str = ""


@dataclass(frozen=True)
class Choice:
    """Annotates a string of a config with its valid values."""

    values: tuple[str, ...]


def check_fields(config: Any, prefix: str) -> None:
    """Freeze a config's fields and check each against its annotation."""
    freeze(config)
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        check_value(f"{prefix}.{name}", getattr(config, name), hint)


def check_value(what: str, value: Any, hint: Any, rule: Any = None) -> None:
    """Check one value against a type hint, which may carry a `Range` or a `Choice`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        check_value(what, value, arguments[0], arguments[1])
    elif origin is types.UnionType or origin is typing.Union:
        if value is not None:
            check_value(what, value, arguments[0], rule)
    elif origin is tuple:
        if not isinstance(value, tuple):
            kind = "whole numbers" if arguments[0] is int else "numbers"
            raise ValueError(f"{what} must be a list of {kind}, got {value!r}.")
        for item in value:
            check_value(what, item, arguments[0], rule)
    elif isinstance(rule, Choice):
        check_choice(what, value, rule.values)
    elif hint is bool and not isinstance(value, bool):
        # The text "no" would count as true.
        raise ValueError(f"{what} must be true or false, got {value!r}.")
    elif hint is int and rule:
        check_count(what, value, int(rule.low), rule.advice)
    elif hint is float and rule:
        check_range(what, value, rule.low, rule.high, rule.open_low, rule.advice)


def frozen_value(value: Any) -> Any:
    """Return `value` with lists as tuples and NumPy scalars as Python numbers."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen_value(item) for item in value)
    is_numpy_scalar = type(value).__module__ == "numpy" and hasattr(value, "item")
    return value.item() if is_numpy_scalar and not value.ndim else value


def freeze(config: Any) -> None:
    """Make every field hashable: a config is static under `jit`."""
    for entry in fields(config):
        value = frozen_value(getattr(config, entry.name))
        object.__setattr__(config, entry.name, value)
