"""The worlds: pure JAX environments, and any Gymnasium environment behind one face.

Importing this package tells Gymnasium of our environments, by name only: nothing heavy
is imported until one is made. `make` gives the pure JAX form itself.
"""

import difflib
import importlib
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import gymnasium

from orac.envs.safety import register as _register_safety

if TYPE_CHECKING:
    from orac.envs.base import Environment
else:
    Environment = Any

_JAX_FORMS = {
    "orac/GuardedMaze-v0": "orac.envs.maze.env:GuardedMaze",
    "orac/CityLearn-v0": "orac.envs.citylearn.env:CityLearn",
}


def has_jax_form(env_id: str) -> bool:
    """Whether `make` can build this environment, so that training can run compiled."""
    return env_id in _JAX_FORMS


def make(env_id: str, **parameters: Any) -> Environment:
    """The pure JAX environment of this id, with the parameters that differ from defaults."""
    if env_id not in _JAX_FORMS:
        raise ValueError(
            f"No JAX environment is called {env_id!r}; there are {sorted(_JAX_FORMS)}."
            + _nearest(env_id, _JAX_FORMS)
        )
    module, name = _JAX_FORMS[env_id].split(":")
    maker = getattr(importlib.import_module(module), name)
    known = list(inspect.signature(maker).parameters)
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"{env_id} has no parameter {parameter!r}; it has {known}."
                + _nearest(parameter, known)
            )
    return maker(**{name: _hashable(value) for name, value in parameters.items()})


def _hashable(value: Any) -> Any:
    """Lists come from configuration files; an environment is static under jit."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f" Did you mean {near[0]!r}?" if near else ""


for _env_id in _JAX_FORMS:
    if _env_id not in gymnasium.registry:
        gymnasium.register(
            id=_env_id,
            entry_point="orac.envs.gym_wrappers:make_single",
            vector_entry_point="orac.envs.gym_wrappers:make_vector",
            kwargs={"env_id": _env_id},
        )

_register_safety()
