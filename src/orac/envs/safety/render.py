"""Off-screen rendering with MuJoCo's renderer.

On Linux without a display, the OpenGL context comes from EGL unless the environment
variable MUJOCO_GL is set. In all other cases MuJoCo chooses it.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import os
import sys
from typing import Any

import mujoco
import numpy as np
from jaxtyping import UInt8

from orac.config.validation import check_choice

ABOVE = "above"
"""Name of our own camera, which shows the whole floor from the south and above."""

MAX_GEOMS = 1000
COST_COLOR = np.array([1.0, 0.15, 0.1, 0.45], np.float32)

HELP = """\
Rendering needs OpenGL without a screen. On Debian or Ubuntu run

    apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri

or choose another backend with the environment variable MUJOCO_GL (egl, osmesa, glfw)."""


class Renderer:
    """Renders the models of one task, which all contain the same objects.

    Graphics memory is filled from the first model. Positions and colours are read again in
    each call of `render`, because a reset may compile a new model.
    """

    def __init__(
        self, model: mujoco.MjModel, width: int, height: int, camera: str
    ) -> None:
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        self._camera = _make_camera(model, camera)
        self._context = _open_context(width, height)
        self._context.make_current()
        font = mujoco.mjtFontScale.mjFONTSCALE_100.value
        self._gpu = mujoco.MjrContext(model, font)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._gpu)
        self._scene = mujoco.MjvScene(model, MAX_GEOMS)
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = 1
        self._viewport = mujoco.MjrRect(0, 0, width, height)

    def render(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        cost_at: np.ndarray | None = None,
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Return an image; a red ball at `cost_at` marks a step with a cost."""
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            model, data, self._options, None, self._camera, everything, self._scene
        )
        if cost_at is not None and self._scene.ngeom < self._scene.maxgeom:
            mujoco.mjv_initGeom(
                self._scene.geoms[self._scene.ngeom],
                mujoco.mjtGeom.mjGEOM_SPHERE.value,
                np.full(3, 0.25),
                np.asarray(cost_at, np.float64),
                np.eye(3).reshape(-1),
                COST_COLOR,
            )
            self._scene.ngeom += 1
        mujoco.mjr_render(self._viewport, self._scene, self._gpu)
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._gpu)
        return np.flipud(pixels).copy()

    def close(self) -> None:
        self._context.make_current()
        self._gpu.free()
        self._context.free()


def _make_camera(model: mujoco.MjModel, name: str) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    if name == ABOVE:
        camera.type = mujoco.mjtCamera.mjCAMERA_FREE.value
        camera.lookat[:] = 0.0, 0.0, 0.0
        camera.distance, camera.azimuth, camera.elevation = 5.6, 90.0, -55.0
        return camera
    names = [model.camera(index).name for index in range(model.ncam)]
    check_choice("camera", name, (ABOVE, *names))
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
    camera.fixedcamid = names.index(name)
    return camera


def _open_context(width: int, height: int) -> Any:
    headless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    try:
        if headless and not os.environ.get("MUJOCO_GL"):
            # This is imported here, because the import fails if EGL is not installed.
            from mujoco.egl import GLContext

            return GLContext(width, height)
        return mujoco.GLContext(width, height)
    except Exception as error:
        raise RuntimeError(f"{HELP} ({type(error).__name__}: {error})") from error
