"""Worlds without photographs: the package's description, compiled by MuJoCo in a moment.

The package writes its world as XML and compiles it, 190 MB of sky included, at every
reset. Here its XML is taken as written, the sky is painted instead, and MuJoCo derives the
rest: the numbers of the model are the package's to the last bit. Knows nothing of rewards,
costs or observations; importing it imports the package.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import contextlib
from typing import Any, NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float

from orac.envs.safety import import_compat as package
from orac.envs.safety.layout import Point

package.load()
World: Any = package.module("world").World


class Poses(NamedTuple):
    """Where a reset puts everything."""

    bodies: Float[np.ndarray, "body 7"]
    """Position and unit quaternion, in the order of `Scene.names`."""
    heading: float
    """The agent's first angle, which the following camera keeps."""


class Scene:
    """The worlds of one task, the package's `task`: described once, compiled often."""

    def __init__(
        self, task: Any, layout: dict[str, Point], timestep: float | None = None
    ) -> None:
        self._task = task
        config = task._build_world_config(layout)
        self.names = ("agent", *_things(config))
        draft = _Draft(task.agent, task._obstacles, config)
        self.spec = _describe(draft, timestep)

    def poses(self, layout: dict[str, Point]) -> Poses:
        """What the package makes of a layout; draws the angles from its random numbers."""
        config = self._task._build_world_config(layout)
        things = _things(config).values()
        positions = [[*config["agent_xy"], self._task.agent.z_height]]
        positions += [thing["pos"] for thing in things]
        heading = config["agent_rot"]
        half = np.array([heading, *(thing["rot"] for thing in things)]) / 2
        zero = np.zeros_like(half)
        quaternions = np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)
        return Poses(np.concatenate([positions, quaternions], axis=-1), heading)

    def compile(self, poses: Poses) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """The model of a world, and its data at time zero, not yet computed forward."""
        for name, pose in zip(self.names, poses.bodies, strict=True):
            # A mocap body stays at the origin: the package places the shape within it.
            mocap = name.endswith("mocap")
            thing = self.spec.geom(name) if mocap else self.spec.body(name)
            thing.pos, thing.quat = pose[:3], pose[3:]
        self._turn_camera(poses.heading)
        model = self.spec.compile()
        return model, mujoco.MjData(model)

    def _turn_camera(self, heading: float) -> None:
        """The camera that follows the agent does not turn with it: it looks one way."""
        angle = heading + np.pi
        cos, sin = np.cos(angle), np.sin(angle)
        camera = self.spec.camera("track")
        camera.pos = [-2 * sin, -2 * cos, 2]
        camera.alt.xyaxes = [cos, -sin, 0, sin, cos, 1]


class PaintedWorld(World):
    """The package's world for any of its tasks, built without the photographs."""

    def __init__(self, task: Any, timestep: float | None) -> None:
        super().__init__(task.agent, task._obstacles)
        self._timestep = timestep

    def build(self) -> None:
        draft = _Draft(self._agent, self._obstacles, self.config)
        model = _describe(draft, self._timestep).compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        draft.engine.update(model, data)
        self.engine = draft.engine


class _Written(Exception):
    """The XML is there; what would follow is the package's compilation."""


class _Draft(World):
    """A world that is only written down."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "xml_string" and value is not None:
            raise _Written


def _describe(draft: _Draft, timestep: float | None) -> mujoco.MjSpec:
    """MuJoCo's description of what the package has written."""
    with contextlib.suppress(_Written):
        draft.build()
    spec = mujoco.MjSpec.from_string(draft.xml_string)
    _paint_sky(spec)
    if timestep is not None:
        spec.option.timestep = timestep
    return spec


def _things(config: dict[str, Any]) -> dict[str, Any]:
    """Everything but the agent in one of the package's descriptions of a world."""
    return {**config["geoms"], **config["free_geoms"], **config["mocaps"]}


def _paint_sky(spec: mujoco.MjSpec) -> None:
    for texture in spec.textures:
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            texture.cubefiles = [""] * 6
            texture.builtin = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
            texture.rgb1, texture.rgb2 = [0.93, 0.95, 0.97], [0.6, 0.7, 0.8]
            texture.width = texture.height = 32
