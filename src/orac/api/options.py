"""Keyword arguments that several functions of the Python interface share."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from orac.config.validation import unknown_name
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
