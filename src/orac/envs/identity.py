"""Describe environments and cost functions, to notice when a run is given another one.

A description is plain data, which is written to meta.json when a run starts and compared when
the run is loaded. It contains names, plain values and digests, and never the address of an
object, so that the same environment or function has the same description in every process.
"""

import dataclasses
import enum
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from orac.envs.user_code import importable_module

MAX_TEXT = 500
"""Longer texts in a description are replaced by their digests."""
MAX_DEPTH = 10
"""Values that are nested deeper are described by their type."""
NOT_COMPARED = {"render_mode", "num_envs", "vectorization_mode", "vector_kwargs"} | {
    "max_episode_steps"
}
"""Arguments that do not change the task. The length of an episode is compared separately."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version of Python, because each version compiles a function to other instructions."""


def qualified_name(owner: Any) -> str:
    """Return `module:name` of a class or function."""
    module = importable_module(getattr(owner, "__module__", None) or "")
    return f"{module}:{getattr(owner, '__qualname__', type(owner).__qualname__)}"


def stable_text(value: Any, depth: int = 0) -> str:
    """Return a text of a value that is the same in every process.

    Objects other than plain values, containers, arrays and dataclasses are described by their
    types, and functions by their names.
    """
    if depth > MAX_DEPTH:
        return qualified_name(type(value))

    def inner(part: Any) -> str:
        return stable_text(part, depth + 1)

    if isinstance(value, enum.Enum):
        text = f"{qualified_name(type(value))}.{value.name}"
    elif isinstance(value, np.generic):
        text = inner(value.item())
    elif isinstance(value, float) and value.is_integer():
        text = repr(int(value))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = repr(value)
    elif isinstance(value, list | tuple):
        text = f"({', '.join(map(inner, value))})"
    elif isinstance(value, set | frozenset):
        text = f"{{{', '.join(sorted(map(inner, value)))}}}"
    elif isinstance(value, Mapping):
        items = sorted(f"{inner(key)}: {inner(x)}" for key, x in value.items())
        text = f"{{{', '.join(items)}}}"
    elif isinstance(value, os.PathLike):
        text = repr(os.fspath(value))
    elif isinstance(value, partial):
        text = f"{inner(value.func)}{inner(value.args)}{inner(value.keywords)}"
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        text = f"{qualified_name(type(value))}{inner(arguments_of(value, depth + 1))}"
    elif isinstance(value, type) or inspect.isroutine(value):
        text = qualified_name(value)
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        text = array_text(value)
    else:
        text = qualified_name(type(value))
    return text if len(text) <= MAX_TEXT else f"{text[:50]}... {digest(text)}"


def array_text(value: Any) -> str:
    """Return the type, shape and digest of an array, or its type if it cannot be read."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return qualified_name(type(value))
    if array.dtype.hasobject:
        return qualified_name(type(value))
    data = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"array {array.dtype} {array.shape} {data}"


def digest(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def arguments_of(made: Any, depth: int = 0) -> dict[str, str]:
    """Return the arguments that an object was made with, as far as its attributes show them.

    These are the fields of a dataclass. For another object, they are the plain values of the
    attributes that are named like the parameters of its class.
    """
    if dataclasses.is_dataclass(made):
        names = [x.name for x in dataclasses.fields(made) if x.init and x.compare]
        return {x: stable_text(getattr(made, x, None), depth) for x in names}
    try:
        parameters = [*inspect.signature(type(made)).parameters]
    except (TypeError, ValueError):
        return {}
    attributes = getattr(made, "__dict__", {})
    plain = bool | int | float | str | np.generic
    found = {}
    for name in parameters:
        value: Any = attributes.get(name, attributes.get(f"_{name}"))
        if type(value).__name__ == "ConfigDict":
            # The environments of MuJoCo Playground have their parameters in it.
            value = value.to_dict()
        elif not (isinstance(value, plain) or dataclasses.is_dataclass(value)):
            continue
        if name not in NOT_COMPARED:
            found[name] = stable_text(value, depth)
    return found


def describe_env(
    base: Any, spec: Any, wrappers: Iterable[Any] | None
) -> dict[str, Any]:
    """Return a description of an environment.

    `base` is the environment without its wrappers, or None if it cannot be read. `spec` is
    Gymnasium's spec, or None. `wrappers` are the wrappers that may change the task, or None
    if they are not known.
    """
    made: dict[str, Any] = {}
    if base is not None:
        made["class"] = qualified_name(type(base))
        made["arguments"] = arguments_of(base)
    if wrappers is not None:
        # Gymnasium's wrappers store the arguments that they were made with.
        made["wrappers"] = [
            f"{qualified_name(type(one))}{stable_text(getattr(one, '_saved_kwargs', {}))}"
            for one in wrappers
        ]
    if isinstance(getattr(spec, "id", None), str):
        entry = spec.entry_point
        if isinstance(entry, str):
            module, colon, name = entry.partition(":")
            entry_text = f"{importable_module(module)}{colon}{name}"
        else:
            entry_text = stable_text(entry)
        made |= {
            "id": spec.id,
            "entry_point": entry_text,
            "kwargs": plain_arguments(spec.kwargs or {}),
        }
    return made


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of an environment as text, without those that do not matter."""
    return {
        name: stable_text(arguments[name])
        for name in sorted(arguments)
        if name not in NOT_COMPARED
    }


def env_difference(before: Any, now: Mapping[str, Any]) -> str:
    """Return how a description of an environment differs from an earlier one, or "".

    `before` may come from a file. If it is None, nothing was recorded, and nothing is
    compared.
    """
    if before is None:
        return ""
    if not isinstance(before, dict):
        return "its description in the run's files is damaged"

    def changed(name: str, what: str) -> str:
        old, new = before.get(name), now.get(name)
        if old is None or new is None or old == new:
            return ""
        parts = [str(text).partition(":") for text in (old, new)]
        in_notebook = "__main__" in (parts[0][0], parts[1][0])
        if in_notebook and parts[0][2] == parts[1][2]:
            # A class of a notebook or a terminal has no module to compare.
            return ""
        return f"its {what} {shown_json(new)} and was {shown_json(old)} in training"

    # A run of a class may go on with an id that is registered for the class.
    if before.get("id") is not None:
        if now.get("id") is None and "class" in now:
            return (
                f"it was made without the id {shown_json(before['id'])} of training, so its "
                "arguments cannot be compared"
            )
        names = [("id", "id is"), ("entry_point", "entry point is")]
    else:
        names = [("class", "class is")]
    names += [("kwargs", "arguments are"), ("wrappers", "wrappers are")]
    names += [("episode_length", "episodes have the length")]
    differences = [changed(*one) for one in names]
    old, new = before.get("arguments"), now.get("arguments")
    if isinstance(old, dict) and isinstance(new, dict):
        differences += [
            f"its {name} is {new[name]} and was {shown_json(old[name])} in training"
            for name in new
            if name in old and old[name] != new[name]
        ]
    return next(filter(None, differences), "")


def shown_json(value: Any) -> str:
    """Return a value of a description for a message, on one short line."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = "".join(x if x.isprintable() else "?" for x in text)
    return text if len(text) <= 200 else f"{text[:200]}..."


def code_record(function: Any) -> dict[str, str]:
    """Return the digest of a function's code and the version of Python, for meta.json.

    The record is empty if the function has no code that Python can show.
    """
    text = code_text(function)
    return {} if text is None else {"digest": digest(text), "python": PYTHON}


def code_text(function: Any, depth: int = 0) -> str | None:
    """Return a text of what a function computes, or None if its code cannot be read.

    It contains the instructions, constants and names of the function, its default values and
    the plain values and functions of its closure. It does not contain the code of other
    functions that it calls by name.
    """
    if depth > MAX_DEPTH:
        return None
    if isinstance(function, partial):
        inner = code_text(function.func, depth + 1)
        values = stable_text(function.args) + stable_text(function.keywords)
        return None if inner is None else f"partial {inner} {values}"
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            return code_text(wrapped, depth + 1)
        call = type(function).__call__
        if not isinstance(getattr(call, "__code__", None), CodeType):
            return None
        values = stable_text(arguments_of(function))
        return f"object {code_text(call, depth + 1)} {values}"
    cells = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:
            cells.append("empty")
            continue
        inner = code_text(value, depth + 1) if inspect.isroutine(value) else None
        # A list or dict may change while the function is used, so its type must suffice.
        is_mutable = isinstance(value, list | set | Mapping)
        text = qualified_name(type(value)) if is_mutable else stable_text(value)
        cells.append(inner or text)
    defaults = [
        getattr(function, x, None) or () for x in ("__defaults__", "__kwdefaults__")
    ]
    doc = getattr(function, "__doc__", None)
    return f"{instructions(code, doc)} {stable_text(defaults)} {cells}"


def instructions(code: CodeType, doc: str | None = None) -> str:
    """Return a text of compiled code and of the functions that are defined inside it.

    `doc` is the docstring, which is left out.
    """
    known = list(code.co_consts)
    if doc is not None and known[:1] == [doc]:
        known[0] = None
    constants = [
        instructions(one) if isinstance(one, CodeType) else stable_text(one)
        for one in known
    ]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_freevars}"
