"""Check the values that users pass in. These functions are for all packages.

An invalid value raises a `ValueError` that says what was expected and what was passed, and
often what to do. For an unknown name, the error suggests a similar known name, if there is
one. The argument `what` of these functions is the name of the value in the error message.
"""

import difflib
import importlib
import math
import os
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from numbers import Real
from typing import Any, TypeVar

FLOAT32_MAX = 3.4028234663852886e38
"""Largest number in float32. The learner would treat a larger number as infinite."""
MAX_COUNT = 10**12
"""Largest valid whole number, unless a smaller maximum is given for a value."""
LONG_LIST = 10
"""Number of known names above which an error suggests one before it lists them."""


class NonFiniteError(ArithmeticError):
    """A number in a policy, an evaluation or a run is infinite or NaN."""


AnyError = TypeVar("AnyError", bound=Exception)


def with_shell_text(error: AnyError, text: str) -> AnyError:
    """Return the error with another text for the command line.

    The error's own text names Python arguments, and `text` names options of the shell.
    """
    vars(error)["shell_text"] = text
    return error


def did_you_mean(name: str, known: Iterable[str], similarity: float = 0.4) -> str:
    """Return " Did you mean 'x'?" for the known name x nearest to `name`.

    If no known name has at least this similarity, from 0 to 1, return "". Upper and lower
    case are treated as equal, because users may mix up the agent `orac` and the class `ORAC`.
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(str(name).lower(), lowered, 1, similarity)
    return f" Did you mean {lowered[near[0]]!r}?" if near else ""


def unknown_name(
    what: str, name: str, known: Iterable[str], hint: str = ""
) -> ValueError:
    """Return an error that says that `name` is not one of the `known` names.

    Without a `hint`, it suggests the nearest known name. A suggestion comes before a long list.
    """
    known = list(known)
    hint = hint or did_you_mean(name, known)
    if hint and len(known) > LONG_LIST:
        return ValueError(
            f"{what} must be one of {len(known)} names; got {shown(name)}.{hint} The names "
            f"are {', '.join(known)}."
        )
    return ValueError(
        f"{what} must be one of {', '.join(known)}; got {shown(name)}.{hint}"
    )


def check_choice(what: str, value: Any, known: Iterable[str]) -> None:
    """Raise an error unless the value is one of the `known` names."""
    if not isinstance(value, str) or value not in known:
        raise unknown_name(what, value, known)


def check_flag(what: str, value: Any) -> None:
    """Raise an error unless the value is True or False.

    Without this check, Python would treat the text "no" as true.
    """
    if not isinstance(frozen_value(value), bool):
        raise ValueError(f"{what} must be True or False, got {shown(value)}.")


def check_path(what: str, value: Any) -> None:
    """Raise an error for a value that is not a path.

    An empty path is an error too, because it would mean the working directory.
    """
    is_path = isinstance(value, str | os.PathLike)
    text = os.fspath(value) if is_path else ""
    if not text or not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{what} must name a file or folder, got {shown(value)}.")


def import_extra(what: str, extra: str, *modules: str, advice: str = "") -> Any:
    """Import modules of an optional dependency and return the first of them.

    If the dependency is not installed, raise an error that says which extra of this package
    to install.
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
    """Return whether the value is a finite number. True and False are not numbers here."""
    try:
        is_finite = isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # A whole number beyond 1e308.
        return False
    return is_finite and not isinstance(value, bool)


def check_range(
    what: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    advice: str = "",
) -> None:
    """Raise an error unless the value is a finite number from `low` to `high`.

    If `open_low` is true, `low` itself is invalid.
    """
    above = is_number(value) and (low < value if open_low else low <= value)
    if above and value <= high and abs(value) <= FLOAT32_MAX:
        return
    if is_number(value) and abs(value) > FLOAT32_MAX:
        advice = f"The learner's largest number is {FLOAT32_MAX:.1e}. {advice}".strip()
    if high < math.inf:
        text = f"in {'(' if open_low else '['}{low:g}, {high:g}]"
    elif low > -math.inf:
        text = f"{'above' if open_low else 'at least'} {low:g}"
    else:
        text = "a finite number"
    message = f"{what} must be {text}, got {shown(value)}."
    raise ValueError(f"{message}{advice and ' ' + advice}")


def check_count(
    what: str, value: Any, low: int = 1, advice: str = "", high: float = MAX_COUNT
) -> None:
    """Raise an error unless the value is a whole number in [low, high]."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and low <= value <= high:
        return
    text = f"a whole number of at least {low}"
    if is_whole and value > high:
        text = f"at most {int(high):,}"
    message = f"{what} must be {text}, got {shown(value)}."
    raise ValueError(f"{message}{advice and ' ' + advice}")


def shown(value: Any) -> str:
    """Return a value as text for a message: on one line, and cut off if it is long."""
    if not isinstance(value, int) or abs(value) < 10**15:
        text = " ".join(repr(value).split())
        return text if len(text) <= 300 else f"{text[:200]}..."
    return f"{value:.3g}" if is_number(value) else "a number with hundreds of digits"


def check_seed(what: str, value: Any) -> None:
    """Raise an error unless the seed is a whole number of at most 32 bits.

    JAX would ignore further bits.
    """
    check_count(what, value, 0, high=2**32 - 1)


@dataclass(frozen=True)
class Range:
    """Annotation of a number in a config: its valid range.

    If `open_low` is true, `low` itself is invalid.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    advice: str = ""


@dataclass(frozen=True)
class Choice:
    """Annotation of a string in a config: its valid values."""

    values: tuple[str, ...]


def check_fields(config: Any, prefix: str) -> None:
    """Freeze the fields of a config, and check each value against its annotation."""
    freeze(config)
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        check_value(f"{prefix}.{name}", getattr(config, name), hint)


def check_value(what: str, value: Any, hint: Any, rule: Any = None) -> None:
    """Check a value against a type hint, which may contain a `Range` or a `Choice`.

    `rule` is the `Range` or `Choice` that was found in an enclosing type hint.
    """
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
    elif is_dataclass(hint) and not isinstance(value, typing.cast(type, hint)):
        name = getattr(hint, "__name__", "")
        raise ValueError(f"{what} must be of type {name}, got {shown(value)}.")
    elif isinstance(rule, Choice):
        check_choice(what, value, rule.values)
    elif hint is bool and not isinstance(value, bool):
        # Without this check, Python would treat the text "no" as true.
        raise ValueError(f"{what} must be true or false, got {value!r}.")
    elif hint is int and rule:
        high = min(rule.high, MAX_COUNT)
        check_count(what, value, int(rule.low), rule.advice, high)
    elif hint is float and rule:
        check_range(what, value, rule.low, rule.high, rule.open_low, rule.advice)


def frozen_value(value: Any) -> Any:
    """Return `value` with lists as tuples and NumPy scalars as Python numbers."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen_value(item) for item in value)
    is_numpy_scalar = type(value).__module__ == "numpy" and hasattr(value, "item")
    return value.item() if is_numpy_scalar and not value.ndim else value


def freeze(config: Any) -> None:
    """Make every field of a config hashable, because configs are static arguments of `jit`."""
    for entry in fields(config):
        value = frozen_value(getattr(config, entry.name))
        object.__setattr__(config, entry.name, value)
