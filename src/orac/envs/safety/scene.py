"""A world described once and compiled anew for every layout.

The package writes its world as XML and compiles it, sky photographs (190 MB) included, at
every reset. Here its XML is read once, the sky is painted instead, and a reset only moves
the bodies in MuJoCo's description: the compiler derives the rest, so the model's numbers
are the package's to the last bit. Knows nothing of rewards, costs or observations.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

from typing import Any, NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float

from orac.envs.safety.layout import Point


class Poses(NamedTuple):
    """Where a reset puts everything."""

    bodies: Float[np.ndarray, "body 7"]
    """Position and unit quaternion, in the order of `Scene.names`."""
    heading: float
    """The agent's first angle, which the following camera keeps."""


class Scene:
    """Compiles the worlds of one task."""

    def __init__(self, task: Any, xml: str, timestep: float | None = None) -> None:
        self.spec = mujoco.MjSpec.from_string(xml)
        _paint_sky(self.spec)
        if timestep is not None:
            self.spec.option.timestep = timestep
        self._task = task
        self.names: tuple[str, ...] = ()

    def poses(self, layout: dict[str, Point]) -> Poses:
        """What the package makes of a layout; draws the angles from its random numbers."""
        config = self._task._build_world_config(layout)
        things = {**config["geoms"], **config["free_geoms"], **config["mocaps"]}
        self.names = ("agent", *things)
        positions = [[*config["agent_xy"], self._task.agent.z_height]]
        positions += [thing["pos"] for thing in things.values()]
        heading = config["agent_rot"]
        half = np.array([heading, *(thing["rot"] for thing in things.values())]) / 2
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


def world_xml(task: Any) -> str:
    """The package's own description of a task's world, at some layout."""
    task.reset()
    return task.world.xml_string


def _paint_sky(spec: mujoco.MjSpec) -> None:
    for texture in spec.textures:
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            texture.delete() if hasattr(texture, "delete") else spec.delete(texture)
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.93, 0.95, 0.97],
        rgb2=[0.6, 0.7, 0.8],
        width=32,
        height=32,
    )
