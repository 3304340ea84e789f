"""Pictures of a world without a screen: MuJoCo's own renderer in an EGL context.

Without a display, and with MUJOCO_GL unset, EGL is taken; any other choice of MUJOCO_GL is
left to MuJoCo. Knows a model, its data and whether the last step cost; nothing of tasks.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import os
import sys
from typing import Any

import mujoco
import numpy as np
from jaxtyping import UInt8

ABOVE = "above"
"""Our own camera: the whole floor, from the south and from above."""

MAX_SHAPES = 1000
WARNING_RED = np.array([1.0, 0.15, 0.1, 0.45], np.float32)

HELP = """\
Rendering needs OpenGL without a screen. On Debian or Ubuntu run

    apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri

or choose another way with the environment variable MUJOCO_GL (egl, osmesa, glfw)."""


class Renderer:
    """Draws worlds of the same things, such as one task's.

    Graphics memory is filled from the first model; where things are and what colour they
    have comes with each picture, because a reset may bring a model of its own.
    """

    def __init__(
        self, model: mujoco.MjModel, width: int, height: int, camera: str
    ) -> None:
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        self._camera = _camera(model, camera)
        self._context = _open_context(width, height)
        self._context.make_current()
        font = mujoco.mjtFontScale.mjFONTSCALE_100.value
        self._gpu = mujoco.MjrContext(model, font)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._gpu)
        self._scene = mujoco.MjvScene(model, MAX_SHAPES)
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = 1
        self._frame = mujoco.MjrRect(0, 0, width, height)

    def picture(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        alarm_at: np.ndarray | None = None,
    ) -> UInt8[np.ndarray, "height width 3"]:
        """One frame; a red ball at `alarm_at` says that the last step cost."""
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            model,
            data,
            self._options,
            None,
            self._camera,
            everything,
            self._scene,
        )
        if alarm_at is not None:
            self._add_ball(alarm_at)
        mujoco.mjr_render(self._frame, self._scene, self._gpu)
        pixels = np.empty((self._frame.height, self._frame.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._frame, self._gpu)
        return np.flipud(pixels).copy()

    def close(self) -> None:
        self._context.make_current()
        self._gpu.free()
        self._context.free()

    def _add_ball(self, position: np.ndarray) -> None:
        if self._scene.ngeom == self._scene.maxgeom:
            return
        mujoco.mjv_initGeom(
            self._scene.geoms[self._scene.ngeom],
            mujoco.mjtGeom.mjGEOM_SPHERE.value,
            np.full(3, 0.25),
            np.asarray(position, np.float64),
            np.eye(3).reshape(-1),
            WARNING_RED,
        )
        self._scene.ngeom += 1


def _camera(model: mujoco.MjModel, name: str) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    if name == ABOVE:
        camera.type = mujoco.mjtCamera.mjCAMERA_FREE.value
        camera.lookat[:] = 0.0, 0.0, 0.0
        camera.distance, camera.azimuth, camera.elevation = 5.6, 90.0, -55.0
        return camera
    names = [model.camera(index).name for index in range(model.ncam)]
    if name not in names:
        raise ValueError(
            f"camera must be one of {', '.join(map(repr, (ABOVE, *names)))}, got {name!r}."
        )
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
    camera.fixedcamid = names.index(name)
    return camera


def _open_context(width: int, height: int) -> Any:
    headless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    try:
        if headless and not os.environ.get("MUJOCO_GL"):
            # Imported here: it fails where no EGL is installed, and training needs none.
            from mujoco.egl import GLContext

            return GLContext(width, height)
        return mujoco.GLContext(width, height)
    except Exception as error:
        raise RuntimeError(f"{HELP} ({type(error).__name__}: {error})") from error
