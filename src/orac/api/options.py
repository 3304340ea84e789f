"""Keyword arguments that several functions of the Python interface share."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from orac.config.validation import unknown_name
from orac.envs.gym_adapter.make import make_host

Options = ParamSpec("Options")
Result = TypeVar("Result")


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


def changed_host_options(**given: Any) -> dict[str, Any]:
    """Return the arguments of `make_host` that differ from its defaults.

    Some environments reject unknown options, so options with default values are left out.
    """
    defaults = inspect.signature(make_host).parameters
    return {x: value for x, value in given.items() if value is not defaults[x].default}
