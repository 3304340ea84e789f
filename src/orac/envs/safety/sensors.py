"""What the agent senses of itself, and what it touches: MuJoCo's arrays by index.

Names are looked up once; a world compiled anew from the same description keeps them.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float


class Sensors:
    """The agent's own part of an observation, in the package's order."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        quaternions = task.agent.sensor_info.ballquat_names
        names = [name for name in task.obs_info.obs_space_dict if "lidar" not in name]
        plain = [name for name in names if name not in quaternions]
        self._plain = np.concatenate([_addresses(model, name) for name in plain])
        self._quaternions = [_addresses(model, name) for name in quaternions]
        self.size = len(self._plain) + 9 * len(self._quaternions)

    def read(
        self, sensordata: Float[np.ndarray, " sensor"], out: Float[np.ndarray, " own"]
    ) -> None:
        """Most sensors as they are; a ball joint's quaternion as a rotation matrix."""
        start = len(self._plain)
        sensordata.take(self._plain, out=out[:start])
        for address in self._quaternions:
            mujoco.mju_quat2Mat(out[start : start + 9], sensordata[address])
            start += 9


class Touch:
    """Which things the agent is in contact with."""

    KINDS = ("gremlin", "vase")

    def __init__(self, model: mujoco.MjModel, agent_geoms: Sequence[str]) -> None:
        names = [model.geom(index).name for index in range(model.ngeom)]
        self._is_agent = [name in agent_geoms for name in names]
        self._labels = [self._label(name) for name in names]

    def touched(self, data: mujoco.MjData) -> set[str]:
        """`gremlin`, `vase`, and buttons by name, in contact with the agent."""
        found: set[str | None] = set()
        is_agent, labels = self._is_agent, self._labels
        for first, second in data.contact.geom.tolist():
            if is_agent[first] or is_agent[second]:
                found.add(labels[first])
                found.add(labels[second])
        found.discard(None)
        return found  # pyright: ignore[reportReturnType]

    def _label(self, name: str) -> str | None:
        for kind in self.KINDS:
            if name.startswith(kind):
                return kind
        return name if name.startswith("button") else None


def _addresses(model: mujoco.MjModel, name: str) -> np.ndarray:
    sensor = model.sensor(name).id
    start = model.sensor_adr[sensor]
    return np.arange(start, start + model.sensor_dim[sensor])
