"""Import the unmodified Safety-Gymnasium 1.0.0 on current Python, NumPy and Gymnasium.

This module works around three obstacles. The package's `__init__` needs modules that
Gymnasium 1 removed, so it is not run. The package's dataclasses have arrays as defaults,
which Python 3.11 refuses, so these defaults become factories during the import. Agents with
joints convert arrays of one element to numbers, which NumPy 2.4 refuses, so this module
adds a repaired subclass of every agent under a different name. The original agents stay
unchanged.
"""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

NAME = "safety_gymnasium"
VERSION = "1.0.0"
NEEDED = (NAME, "mujoco", "xmltodict", "imageio", "glfw", "packaging", "yaml")
"""Modules that must be installed: the first with `--no-deps`, the others with the extra
`orac-rl[safety]`."""

COMMANDS = (
    'pip install "orac-rl[safety]"',
    f"pip install --no-deps safety-gymnasium=={VERSION}",
)
INSTALL = f"""\
In the .venv of a checkout, `make setup-safety` installs it. Anywhere else run

    {COMMANDS[0]}
    {COMMANDS[1]}

(--no-deps because the package pins versions that do not install on Python 3.11 or newer)."""

AGENTS = ("Point", "Car", "Racecar", "Doggo", "Ant")


def missing() -> tuple[str, ...]:
    """Return the names of the required modules that are not installed."""
    return tuple(
        name
        for name in NEEDED
        if name not in sys.modules and importlib.util.find_spec(name) is None
    )


@functools.cache
def load() -> types.ModuleType:
    """Import the package and return its `builder` module."""
    absent = missing()
    if absent:
        raise ImportError(
            f"Safety-Gymnasium needs {' and '.join(absent)}, which must be installed "
            f"first: {' && '.join(COMMANDS)}"
        )
    if NAME not in sys.modules:
        # An empty module with the package's path makes the package's modules importable
        # without running its `__init__`.
        spec = importlib.util.find_spec(NAME)
        assert spec is not None and spec.submodule_search_locations is not None
        package = types.ModuleType(
            NAME, "Imported without its __init__ by orac.envs.safety."
        )
        package.__path__ = list(spec.submodule_search_locations)
        package.__file__, package.__spec__ = spec.origin, spec
        sys.modules[NAME] = package
    builder, agents = module("builder"), module("agents")
    for name in AGENTS:
        setattr(agents, repaired_name(name), _repaired(getattr(agents, name)))
    return builder


def velocity_class(robot: str, version: str) -> type:
    """Return a velocity environment's class, for example `velocity_class("Ant", "v1")`."""
    load()
    file = {"HalfCheetah": "half_cheetah"}.get(robot, robot.lower())
    robot_module = module(f"tasks.safe_velocity.safety_{file}_velocity_{version}")
    return getattr(robot_module, f"Safety{robot}VelocityEnv")


def repaired_name(agent: str) -> str:
    """Return the `agent_name` by which the package finds the repaired agent."""
    return f"{agent}OfOrac"


def module(name: str) -> types.ModuleType:
    """Return one of the package's modules by its name within the package."""
    with warnings.catch_warnings(), _arrays_as_dataclass_defaults():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"{NAME}.{name}")


@contextmanager
def _arrays_as_dataclass_defaults() -> Iterator[None]:
    """Allow arrays as defaults in the package's dataclasses, but in no others."""
    original = dataclasses.dataclass

    def tolerant(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: tolerant(decorated, **options)
        if cls.__module__.startswith(NAME):
            for name in inspect.get_annotations(cls):
                default = cls.__dict__.get(name)
                if isinstance(default, np.ndarray):
                    factory = functools.partial(np.array, default)
                    setattr(cls, name, dataclasses.field(default_factory=factory))
        return original(cls, **options)

    dataclasses.dataclass = tolerant
    try:
        yield
    finally:
        dataclasses.dataclass = original


class _ScalarJoints:
    """Wraps a model so that `jnt` accepts an array of one element, as with older NumPy."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def jnt(self, index: Any) -> Any:
        return self._model.jnt(np.asarray(index).item())


def _repaired(agent: Any) -> type:
    """Return a subclass that works with NumPy 2.4.

    It has the same class name, because the package finds the agent's XML file by that name.
    """

    def init_joint_sensors(self: Any) -> None:
        engine = self.engine
        self.engine = types.SimpleNamespace(
            model=_ScalarJoints(engine.model), data=engine.data
        )
        try:
            agent._init_jnt_sensors(self)
        finally:
            self.engine = engine

    def get_sensor(self: Any, name: str) -> np.ndarray:
        value = agent.get_sensor(self, name)
        return value.reshape(()) if name in self.sensor_info.hinge_pos_names else value

    methods = {"_init_jnt_sensors": init_joint_sensors, "get_sensor": get_sensor}
    return type(agent.__name__, (agent,), methods)
