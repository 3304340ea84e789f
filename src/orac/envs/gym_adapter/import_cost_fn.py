"""Cost functions by name: `module:function`, as a person types it.

Importing a module runs it. So a name is imported when a person has just given it, never
because a file holds it: whoever loads a config or a checkpoint must give it again.
"""

import difflib
import importlib
import inspect
from typing import Any

from orac.envs.gym_adapter.costs import CostFn


def import_cost_fn(name: str) -> CostFn:
    """The function that `module:function` names; this runs the module."""
    module_name, separator, attribute = name.partition(":")
    if not (separator and module_name and attribute):
        raise ValueError(
            f"cost_fn must be a function or its name as module:function, got {name!r}. "
            "For a function too_fast in my_costs.py write my_costs:too_fast."
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"cost_fn {name!r} names the module {module_name!r}, which cannot be imported "
            f"({error}). Run in its directory, install it, or correct the name."
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"cost_fn {name!r}: {module_name} has no function {attribute!r}.{hint}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(
            f"cost_fn {name!r} must be a function of (obs, action, next_obs, info), but "
            f"it is a {type(found).__name__}."
        )
    return found


def name_of_cost_fn(cost_fn: CostFn) -> str:
    """What to call a function in a config; of a lambda it only says where it is."""
    owner = cost_fn if inspect.isroutine(cost_fn) else type(cost_fn)
    return f"{owner.__module__}:{owner.__qualname__}"
