"""Build, compile and step the environments of Safety-Gymnasium with the package's code.

The package writes its model as XML and compiles it at every reset, together with 190 MB of
photographs of a sky. This module replaces the sky by a colour gradient, so compiling is
fast. Every other number of the model is the same as in the package, bit for bit. Our
faster implementation of some tasks, `fast_path.py`, uses `ModelBuilder`.
`NavigationSimulation` and `VelocitySimulation` step all tasks for which the fast path is not
used.
Importing this module imports the package.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import contextlib
import warnings
from typing import Any

import mujoco
import numpy as np

from orac.envs.safety import import_compat
from orac.envs.safety.layout import Point
from orac.envs.safety.render import Renderer
from orac.envs.safety.tasks import Task

import_compat.load()
World: Any = import_compat.module("world").World


def build(task: Task) -> Any:
    """Return the package's environment object for a task."""
    builder = import_compat.load()
    # The package draws its seed from NumPy's global generator, whose state is restored.
    state = np.random.get_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if task.robot is not None:
            env = import_compat.velocity_class(task.robot, task.version)()
        else:
            agent = import_compat.repaired_name(str(task.agent))
            config = {"agent_name": agent, **task.config}
            env = builder.Builder(task_id=task.name, config=config)
    np.random.set_state(state)
    return env


class ModelBuilder:
    """Compiles models of one task. The package's XML is parsed once for all resets."""

    def __init__(
        self, task: Any, layout: dict[str, Point], timestep: float | None = None
    ) -> None:
        self._task = task
        config = task._build_world_config(layout)
        self._names = ("agent", *_objects(config))
        world = _PlainSkyWorld(task.agent, task._obstacles, config)
        world.timestep = timestep
        self._spec = world.parse_xml()

    def compile(self, layout: dict[str, Point]) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Return a model and its data at time zero, before `mj_forward`.

        The package's random generator draws the angles of the objects.
        """
        config = self._task._build_world_config(layout)
        objects = _objects(config).values()
        positions = [[*config["agent_xy"], self._task.agent.z_height]]
        positions += [one["pos"] for one in objects]
        heading = config["agent_rot"]
        half = np.array([heading, *(one["rot"] for one in objects)]) / 2
        zero = np.zeros_like(half)
        quaternions = np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)
        poses = zip(self._names, np.array(positions), quaternions, strict=True)
        for name, position, quaternion in poses:
            # A mocap body stays at the origin: the package places the geom within it.
            mocap = name.endswith("mocap")
            placed = self._spec.geom(name) if mocap else self._spec.body(name)
            placed.pos, placed.quat = position, quaternion
        # The tracking camera follows the agent without turning with it.
        cos, sin = np.cos(heading + np.pi), np.sin(heading + np.pi)
        camera = self._spec.camera("track")
        camera.pos = [-2 * sin, -2 * cos, 2]
        camera.alt.xyaxes = [cos, -sin, 0, sin, cos, 1]
        model = self._spec.compile()
        return model, mujoco.MjData(model)


class NavigationSimulation:
    """A navigation task (Goal, Button, Push, ...) stepped by the package's code.

    Some attributes of the environment's task are changed: the object that compiles its
    model; the method that renders the agent's view, because the package's viewer does not
    work with Gymnasium 1; and the count of steps. The package's modules stay unchanged.
    """

    def __init__(self, env: Any, timestep: float | None) -> None:
        self.env, self.task = env, env.task
        self.task.world = _PlainSkyWorld(self.task.agent, self.task._obstacles)
        self.task.world.timestep = timestep
        self._agent_camera: Renderer | None = None
        # The caller counts the steps and ends the episodes, so the package must not.
        self.task.num_steps = np.inf
        if self.task.observe_vision:
            self.task._obs_vision = self._render_agent_view

    @property
    def model(self) -> Any:
        return self.task.model

    @property
    def data(self) -> Any:
        return self.task.data

    def seed(self, seed: int) -> None:
        self.env.set_seed(seed)

    def random_state(self) -> dict[str, Any]:
        return self.task.random_generator.random_generator.get_state(legacy=False)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.task.random_generator.random_generator.set_state(state)

    def reset(self) -> Any:
        return self.env.reset()[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, _, terminated, _, info = self.env.step(action)
        return observation, float(reward), terminated, info

    def close(self) -> None:
        if self._agent_camera is not None:
            self._agent_camera.close()

    def _render_agent_view(self) -> np.ndarray:
        if self._agent_camera is None:
            height, width = self.task.vision_env_conf.vision_size
            self._agent_camera = Renderer(self.model, width, height, "vision")
        return self._agent_camera.render(self.model, self.data)


class VelocitySimulation:
    """A velocity task: one of Gymnasium's robots with a speed limit."""

    def __init__(self, env: Any, timestep: float | None) -> None:
        if timestep is not None:
            raise ValueError(
                f"timestep={timestep} cannot be set for a velocity task, whose robot has "
                "its own timestep. Leave it out."
            )
        self.env = env

    @property
    def model(self) -> Any:
        return self.env.model

    @property
    def data(self) -> Any:
        return self.env.data

    def seed(self, seed: int) -> None:
        self.env.np_random = np.random.default_rng(seed)

    def random_state(self) -> dict[str, Any]:
        return dict(self.env.np_random.bit_generator.state)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.env.np_random.bit_generator.state = state

    def reset(self) -> Any:
        return self.env.reset()[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, cost, terminated, _, info = self.env.step(action)
        return observation, float(reward), bool(terminated), {**info, "cost_sum": cost}

    def close(self) -> None:
        self.env.close()


class _XmlWritten(Exception):
    """Raised once the package has written its XML, to skip the package's compilation."""


class _PlainSkyWorld(World):
    """The package's `World`, compiled without the photographs of a sky."""

    timestep: float | None = None
    """Seconds per physics step; None keeps the package's value."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "xml_string" and value is not None:
            raise _XmlWritten

    def parse_xml(self) -> mujoco.MjSpec:
        """Return MuJoCo's specification of the package's XML, with a plain sky."""
        with contextlib.suppress(_XmlWritten):
            super().build()
        spec = mujoco.MjSpec.from_string(self.xml_string)
        for texture in spec.textures:
            if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
                texture.cubefiles = [""] * 6
                texture.builtin = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
                texture.rgb1, texture.rgb2 = [0.93, 0.95, 0.97], [0.6, 0.7, 0.8]
                texture.width = texture.height = 32
        if self.timestep is not None:
            spec.option.timestep = self.timestep
        return spec

    def build(self) -> None:
        """Compile the model and run `mj_forward`. This replaces the package's method."""
        model = self.parse_xml().compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        self.engine.update(model, data)


def _objects(config: dict[str, Any]) -> dict[str, Any]:
    """Return all objects but the agent from the package's description of a layout."""
    return {**config["geoms"], **config["free_geoms"], **config["mocaps"]}
