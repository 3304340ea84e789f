"""Import the unmodified Safety-Gymnasium 1.0.0 beside current Python, numpy and gymnasium.

Three things stand in the way. The package's own `__init__` wants modules that gymnasium 1
removed, so it is not run. Its dataclasses have arrays as defaults, which Python 3.11
refuses, so they become factories while it is imported. Its jointed agents turn arrays of
one element into numbers, which numpy 2.4 refuses, so each gets a repaired subclass under
a name of its own. Nothing of the package is replaced; this room knows nothing of tasks.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
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
"""What must be importable; the first with `--no-deps`, the others through our extra."""

INSTALL = f"""\
In a checkout of ORAC run

    make setup-safety

and anywhere else

    pip install "orac-rl[safety]"
    pip install --no-deps safety-gymnasium=={VERSION}

(--no-deps because the package pins versions that do not install on Python 3.11 or newer)."""

AGENTS = ("Point", "Car", "Racecar", "Doggo", "Ant")


def missing() -> tuple[str, ...]:
    """The modules that have to be installed before an environment can be made."""
    return tuple(
        name
        for name in NEEDED
        if name not in sys.modules and importlib.util.find_spec(name) is None
    )


def version() -> str:
    """The installed version; the fast path knows `VERSION` and no other."""
    return importlib.metadata.version("safety-gymnasium")


@functools.cache
def load() -> types.ModuleType:
    """The package's `builder` module; everything it imports comes with it."""
    absent = missing()
    if absent:
        raise ImportError(
            f"Safety-Gymnasium needs {' and '.join(absent)}, not installed. {INSTALL}"
        )
    _enter_without_init()
    builder, agents = module("builder"), module("agents")
    for name in AGENTS:
        setattr(agents, repaired_name(name), _repaired(getattr(agents, name)))
    return builder


def velocity_class(robot: str, release: str) -> type:
    """One of the package's velocity environments, `velocity_class("Ant", "v1")`."""
    load()
    file = {"HalfCheetah": "half_cheetah"}.get(robot, robot.lower())
    robots = module(f"tasks.safe_velocity.safety_{file}_velocity_{release}")
    return getattr(robots, f"Safety{robot}VelocityEnv")


def repaired_name(agent: str) -> str:
    """Where the package finds the repaired agent: its `agent_name` in a configuration."""
    return f"{agent}OfOrac"


def _enter_without_init() -> None:
    """Make the package's modules importable without running its `__init__`."""
    if NAME in sys.modules:
        return
    spec = importlib.util.find_spec(NAME)
    assert spec is not None and spec.submodule_search_locations is not None
    package = types.ModuleType(
        NAME, "Entered without its __init__ by orac.envs.safety."
    )
    package.__path__ = list(spec.submodule_search_locations)
    package.__file__, package.__spec__ = spec.origin, spec
    sys.modules[NAME] = package


def module(name: str) -> types.ModuleType:
    """One of the package's modules, by its name within the package."""
    with warnings.catch_warnings(), _arrays_as_dataclass_defaults():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"{NAME}.{name}")


@contextmanager
def _arrays_as_dataclass_defaults() -> Iterator[None]:
    """Let the package's dataclasses, and no others, have arrays as defaults."""
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
    """A model whose `jnt` takes an array of one element, as older numpy let it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def jnt(self, index: Any) -> Any:
        return self._model.jnt(np.asarray(index).item())


def _repaired(agent: Any) -> type:
    """A subclass of the same name (the package finds the XML by it) for numpy 2.4."""

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
