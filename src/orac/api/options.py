"""Keyword arguments that several functions of the Python interface share."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from orac.config.schema import Constraint
from orac.config.validation import shown, unknown_name
from orac.envs.gym_adapter.costs import CostKeys
from orac.envs.gym_adapter.make import make_host

Options = ParamSpec("Options")
Result = TypeVar("Result")

HOST_OPTIONS = (
    "cost_bound",
    "cost_names",
    "cost_keys",
    "metric_names",
    "vectorization",
)
"""Options that are passed on to `make_host`."""
COST_OPTIONS = ("cost_keys", "cost_names")
"""Options that select the costs that an environment reports."""
RECORDED_OPTIONS = (*COST_OPTIONS, "metric_names", "vectorization")
"""Options that are written to a run. A bound on the cost is never read from a file."""


def refuse_unknown_options(
    function: Callable[Options, Result],
) -> Callable[Options, Result]:
    """Return the function with a check of its options.

    An unknown option raises an error that suggests the nearest known option.
    """
    parameters = inspect.signature(function).parameters
    known = [x for x, one in parameters.items() if one.kind is one.KEYWORD_ONLY]

    @wraps(function)
    def checked(*arguments: Options.args, **options: Options.kwargs) -> Result:
        for name in options:
            if name not in parameters:
                raise unknown_name("an option", name, known)
        return function(*arguments, **options)

    return checked


def changed_host_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `HOST_OPTIONS` whose values differ from the defaults of `make_host`.

    `given` has values by name, such as the `locals()` of a function with these options. Some
    environments reject unknown options, so options with default values are left out.
    """
    defaults = inspect.signature(make_host).parameters
    return {x: given[x] for x in HOST_OPTIONS if given[x] is not defaults[x].default}


def options_to_record(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `RECORDED_OPTIONS` as they are written to a run: text and lists of text."""
    recorded = {}
    for name in RECORDED_OPTIONS:
        value = options.get(name)
        if name != "vectorization" and isinstance(value, str):
            value = [value]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = list(value)
        if value is not None:
            recorded[name] = value
    return recorded


def recorded_options(task: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options that a run or a saved agent was trained with, from its file.

    `where` names the file in the error message for entries that orac did not write.
    """
    recorded = task.get("host_options", {})
    if isinstance(recorded, dict):
        texts = [
            [value] if name == "vectorization" else value
            for name, value in recorded.items()
        ]
        if {*recorded} <= {*RECORDED_OPTIONS} and all(
            isinstance(text, list) and all(isinstance(x, str) for x in text)
            for text in texts
        ):
            return recorded
    raise ValueError(
        f"host_options in {where} must have lists of names for "
        f"{', '.join(RECORDED_OPTIONS[:-1])} and text for vectorization, got "
        f"{shown(recorded)}. Restore the file."
    )


def other_cost_option(
    given: Mapping[str, Any],
    task: Mapping[str, Any],
    constraints: Sequence[Constraint],
) -> str:
    """Return an option with which another cost is read than in training, or "".

    `given` are the options of the caller and `task` is the record of the run. The record of
    an earlier version has no options, and then nothing is compared.
    """
    before, now = task.get("host_options"), options_to_record(given)
    if before is None:
        return ""
    names = [constraint.name for constraint in constraints]
    defaults = {"cost_names": names or None}
    if len(names) <= 1:
        defaults["cost_keys"] = [*CostKeys().keys]
    for name in COST_OPTIONS:
        if name in now and now[name] != before.get(name, defaults.get(name)):
            return f"{name}={now[name]!r}"
    return ""
