"""Registry of environments: make a JAX environment by id, or look up its metrics.

Environments are registered with Gymnasium by the names of the functions or classes that make
them, so the module of an environment is imported only when the environment is made.
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import gymnasium

from orac.config.validation import check_choice, frozen_value
from orac.envs import safety

if TYPE_CHECKING:
    from orac.envs.base import Environment, MetricSpec
else:
    Environment = MetricSpec = Any

JAX_ENVS = {
    "orac/GuardedMaze-v0": "orac.envs.maze.env:GuardedMaze",
    "orac/CityLearn-v0": "orac.envs.citylearn.env:CityLearn",
}
"""Class of each environment that is written in JAX, by id."""


LIBRARIES = {
    "brax": ("brax", "brax.envs"),
    "playground": ("playground", "mujoco_playground"),
}
"""Package to install and module to import, for each library whose environments have ids
of the form `<library>:<name>`."""


def is_jax_env(env_id: str) -> bool:
    """Return whether this is the id of an environment that is written in JAX."""
    return env_id in JAX_ENVS


def is_library_id(env_id: str) -> bool:
    """Return whether an id names an environment of Brax or MuJoCo Playground."""
    return env_id.partition(":")[0] in LIBRARIES and ":" in env_id


def make(env_id: str, **parameters: Any) -> Environment:
    """Make the JAX environment with this id.

    Parameters that are not given have their default values. Lists, for example from a
    configuration file, become tuples, because `jit` needs a hashable environment.
    """
    check_choice("The id of a JAX environment", env_id, JAX_ENVS)
    env_class = _import_class(JAX_ENVS[env_id])
    known = list(inspect.signature(env_class).parameters)
    for name in parameters:
        check_choice(f"A parameter of {env_id}", name, known)
    return env_class(
        **{name: frozen_value(value) for name, value in parameters.items()}
    )


def metrics_of(env_id: str) -> tuple[MetricSpec, ...]:
    """Return the metrics that an environment declares, without making it.

    `env_id` may also be the name of a class: a run that was trained on an environment
    object has this name as its environment id. The result is empty for environments that
    this package does not provide.
    """
    classes = [*JAX_ENVS.values(), safety.ENTRY_POINT]
    by_name = {entry_point.partition(":")[2]: entry_point for entry_point in classes}
    entry_point = (JAX_ENVS | by_name).get(env_id)
    registered = gymnasium.registry.get(env_id)
    if registered is not None and registered.entry_point == safety.ENTRY_POINT:
        entry_point = safety.ENTRY_POINT
    return _import_class(entry_point).METRICS if entry_point else ()


def register_all() -> None:
    """Register our ids with Gymnasium; ids that are already registered stay as they are."""
    for env_id in JAX_ENVS:
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="orac.envs.gym_wrappers:make_single",
                vector_entry_point="orac.envs.gym_wrappers:make_vector",
                kwargs={"env_id": env_id},
            )
    safety.register()


def _import_class(entry_point: str) -> Any:
    module, name = entry_point.split(":")
    return getattr(importlib.import_module(module), name)
