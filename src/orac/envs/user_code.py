"""Import the cost functions, encoders and environment modules that the user names.

Importing a module runs its code, so it happens only for names that the user has just typed or
allowed with `--import`. For a name that comes from a file, an error says which option to add.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orac.config.validation import did_you_mean, shown, with_shell_text
from orac.envs.registry import is_library_id

CostFn = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""`cost_fn(observation, action, next_observation, info)` returns the cost of a step.

It is one number, or one per constraint."""


def import_cost_fn(name: str) -> CostFn:
    """Import the function with the name `module:function`. This runs the module.

    Call this function only with a name that the user has just given, never with a name
    from a file: loading a config or a checkpoint must not run code.
    """
    example = "For a function too_fast in my_costs.py write my_costs:too_fast."
    found = import_object(name, "cost_fn", "function", example)
    return checked_cost_fn(found, f"cost_fn {name!r}")


def import_object(name: str, option: str, kind: str, example: str) -> Any:
    """Import the object with the name `module:name`. This runs the module.

    The other arguments are for error messages: the option with which the user gave the
    name, the kind of object that it should name, and a sentence with an example.
    """
    module_name, separator, attribute = name.partition(":")
    if not (separator and module_name and attribute):
        raise ValueError(
            f"{option} must be a {kind} or its name as module:{kind}, got {name!r}. "
            f"{example}"
        )
    found = import_named(module_name, f"{option} {name!r}")
    for part in attribute.split("."):
        if not hasattr(found, part):
            advice = ""
            if module_name in STOPPED_SCRIPTS:
                advice = f" Define it above the first agent of {module_name}, {GUARD}."
            raise ValueError(
                f"{option} {name!r}: {module_name} has no {kind} {attribute!r}."
                + (advice or did_you_mean(part, dir(found)))
            )
        found = getattr(found, part)
    return found


class NotImported(ValueError):
    """Error if a file names a module that the user has not allowed orac to import."""

    def __init__(
        self, module: str, reason: str, python: str, shell: str, *options: str
    ) -> None:
        """`python` and `shell` say what to do in Python and on the command line."""
        super().__init__(f"{reason} {python}")
        with_shell_text(self, f"{reason} {shell}")
        self.module = module
        self.options = options
        """Options to add to the command so that it works; empty if none helps."""


ALLOWED_MODULES: set[str] = set()
"""Modules that the user named with `--import`."""


def allow_module(module: str) -> None:
    """Import the user's module, so that files may name functions and environments in it."""
    import_named(module, f"--import {module}")
    ALLOWED_MODULES.add(module)


def check_env_module(env_id: str) -> None:
    """Raise an error if making an environment with an id from a file would import code."""
    module = env_id.rpartition(":")[0]
    if module and module not in sys.modules and not is_library_id(env_id):
        raise NotImported(
            module,
            f"the environment is {env_id!r}, and orac never imports code that a file "
            "names.",
            f"Import {module} first, or pass env={env_id!r}.",
            f"Add --import {module} to the command.",
            "--import",
            module,
        )


def cost_fn_from_file(name: str) -> CostFn:
    """Return the cost function that a file names, or raise an error.

    The user must have allowed the function's module with `--import`, and the function must be
    defined in that module, because a module can import any function from elsewhere.
    """
    module = name.partition(":")[0]
    if module not in ALLOWED_MODULES:
        why = (
            f"the cost is computed by {name!r}, and orac never imports code that a file "
            "names."
        )
        if not can_be_imported(name):
            raise NotImported(
                module,
                why,
                "Pass the function itself as cost_fn=.",
                "This function cannot be imported by its name: write it at the top level of "
                "a file whose name has only letters, digits and underscores, such as "
                "my_costs.py, and add --cost-fn my_costs:NAME.",
            )
        raise NotImported(
            module,
            why,
            f"Pass the function itself as cost_fn=, or its name, cost_fn={name!r}.",
            f"Add --cost-fn {name} or --import {module} to the command.",
            "--cost-fn",
            name,
        )
    function = import_cost_fn(name)
    if getattr(function, "__module__", None) != module:
        raise ValueError(
            f"the cost function {name!r}, which a file names, must be defined in "
            f"{module}. Pass it with --cost-fn under the module that defines it."
        )
    return function


GUARD = 'or put the code that the script runs below `if __name__ == "__main__":`'
STOPPED_SCRIPTS: set[str] = set()
"""Modules that made an agent while they were imported. The code after that line did not
run."""
_importing: list[str] = []
"""The user's modules that are being imported now."""


class AgentReached(BaseException):
    """Raised when a script that is imported for its functions makes an agent.

    It is not an `Exception`, so that `except Exception` in the script does not catch it.
    """

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found


def stop_script() -> None:
    """Stop the import of a user's script at its first agent, so that it does not train.

    The functions above that line are already defined. Every agent calls this function when
    it is made. Nothing happens unless a module is being imported.
    """
    if _importing:
        raise AgentReached(sys.modules.get(_importing[-1]))


def import_named(module: str, what: str) -> Any:
    """Import a module that the user named. Error messages start with `what`.

    If the module is a script without a main guard, the import ends at its first agent.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"{what} must name a module, such as my_envs or my_package.envs, got "
            f"{module!r}. Write it without a leading dot or a path."
        )
    _importing.append(module)
    try:
        return importlib.import_module(module)
    except AgentReached as stopped:
        if stopped.found is None:
            raise ValueError(
                f"{what}: the package of {module} makes an agent when it is imported. Move "
                "the function to another file."
            ) from stopped
        STOPPED_SCRIPTS.add(module)
        sys.modules[module] = stopped.found
        return stopped.found
    except SystemExit as error:
        raise ValueError(
            f"{what} names the module {module!r}, which ended the program when it was "
            f"imported. Move the function to a file of its own, {GUARD}."
        ) from error
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{what} names the module {module!r}, which cannot be imported ({error}). "
            "Run in its directory, install it, or correct the name."
        ) from error
    finally:
        _importing.pop()


def checked_cost_fn(cost_fn: Any, what: str = "cost_fn") -> CostFn:
    """Return `cost_fn` if it can be called with (observation, action, next_observation, info)."""
    if not callable(cost_fn):
        raise ValueError(
            f"{what} must be a function of (observation, action, next_observation, info), got "
            f"{shown(cost_fn)}."
        )
    try:
        inspect.signature(cost_fn).bind(None, None, None, {})
    except TypeError as error:
        raise ValueError(
            f"{what} is called with (observation, action, next_observation, info), which it "
            f"does not take: {error}."
        ) from error
    except ValueError:
        pass  # A built-in without a signature is checked when it is called.
    return cost_fn


def call_cost_fn(
    cost_fn: CostFn,
    observation: Any,
    action: Any,
    next_observation: Any,
    info: dict[str, Any],
) -> Any:
    """Return the result of the user's cost function.

    If it raises an error, a note says so and names the keys of its arguments.
    """
    try:
        return cost_fn(observation, action, next_observation, info)
    except Exception as error:
        parts = [
            f"{name} has the keys {', '.join(map(repr, value))}"
            if value
            else f"{name} has no keys"
            for name, value in (("observation", observation), ("info", info))
            if isinstance(value, Mapping)
        ]
        keys = f" Here {' and '.join(parts)}." if parts else ""
        error.add_note(
            f"This error was raised by your cost function {name_of_cost_fn(cost_fn)}, which "
            f"was called with (observation, action, next_observation, info).{keys}"
        )
        raise


def name_of_cost_fn(cost_fn: CostFn) -> str:
    """Return the name of a function for a config.

    A lambda cannot be imported by this name. The name only says where the lambda was written.
    """
    owner = cost_fn if inspect.isroutine(cost_fn) else type(cost_fn)
    return f"{importable_module(owner.__module__)}:{owner.__qualname__}"


def importable_module(module: str) -> str:
    """Return the name under which a module can be imported.

    For a script this is the name of its file instead of `__main__`, or instead of
    `__mp_main__` in a process that it started.
    """
    if module in ("__main__", "__mp_main__"):
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        # `python -m package.script` sets the spec, `python script.py` only the file.
        if spec is not None:
            return spec.name
        if file is not None and Path(file).stem.isidentifier():
            return Path(file).stem
    return module


def can_be_imported(name: str) -> bool:
    """Return whether `module:function` can be imported by its name.

    Lambdas and functions that are defined in a notebook cannot.
    """
    module, _, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return module != "__main__" and all(part.isidentifier() for part in parts)


def cost_fn_location(name: str, cost_fn: CostFn) -> dict[str, Any]:
    """Return where a cost function is defined, for meta.json: module, file and name."""
    module, _, qualified = name.partition(":")
    owner = cost_fn if inspect.isroutine(cost_fn) else type(cost_fn)
    file = getattr(inspect.getmodule(owner), "__file__", None)
    path = None if file is None else str(Path(file).resolve())
    return {"module": module, "file": path, "name": qualified}


def search_path(place: Any) -> Path | None:
    """Return the folder to add to the search path to import a recorded cost function.

    `place` is the record that `cost_fn_location` made. Returns None if the function is
    found without this folder, or if the record is not valid. Nothing is imported.
    """
    if not isinstance(place, dict):
        return None
    module, file = place.get("module"), place.get("file")
    if not (isinstance(module, str) and isinstance(file, str) and file.isprintable()):
        return None
    parts, path = module.split("."), Path(file)
    folder = path.parent if path.name == "__init__.py" else path
    for _ in parts:
        folder = folder.parent
    try:
        found = importlib.util.find_spec(parts[0])
    except (ImportError, ValueError):
        found = None
    origin = None if found is None else found.origin
    known = origin is not None and folder in Path(origin).resolve().parents
    return None if known else folder
