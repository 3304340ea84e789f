"""Sensors of the fast path: the lidar, the agent's own sensors, and its contacts.

Names are looked up once, because every model of a task has the same indices.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float


class Lidar:
    """The package's pseudo-lidar, computed for all objects at once.

    Each kind of object has a full circle of bins. A reading is 1 where an object touches
    the agent and 0 from `max_distance` on; the nearest object counts. An object also shows
    in the two neighbouring bins, weighted by its position within its own bin, so that
    readings change smoothly.
    """

    def __init__(
        self, counts: Sequence[int], num_bins: int, max_distance: float
    ) -> None:
        self._shape = (len(counts), num_bins)
        self._bin_size = 2 * np.pi / num_bins
        self._max_distance = max_distance
        # An angle just below zero is rounded to the full circle, one bin past the last.
        bins = np.arange(num_bins + 1) % num_bins
        near = np.stack([bins, (bins + 1) % num_bins, (bins - 1) % num_bins], axis=-1)
        first = num_bins * np.repeat(np.arange(len(counts)), counts)
        self._near, self._first = near, first[:, None]
        self._weights = np.ones((len(first), 3))

    def read(
        self, offsets: Float[np.ndarray, "object 3"], rotation: Float[np.ndarray, "3 3"]
    ) -> Float[np.ndarray, "kind bin"]:
        """Return the readings for objects at `offsets` from the agent, sorted by kind."""
        ego = offsets @ rotation
        x, y = ego[:, 0], ego[:, 1]
        bins = np.arctan2(y, x) % (2 * np.pi) / self._bin_size
        index = bins.astype(np.intp)
        weights = self._weights
        np.subtract(bins, index, out=weights[:, 1])
        np.subtract(1.0, weights[:, 1], out=weights[:, 2])
        nearness = (self._max_distance - np.hypot(x, y)) / self._max_distance
        readings = np.zeros(self._shape)
        # Objects out of range have a negative nearness, and the zeros win.
        np.maximum.at(
            readings.reshape(-1),
            (self._near[index] + self._first).reshape(-1),
            (weights * nearness[:, None]).reshape(-1),
        )
        return readings


class BodySensors:
    """The part of an observation that comes from the agent's own sensors."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        quaternions = task.agent.sensor_info.ballquat_names
        names = [name for name in task.obs_info.obs_space_dict if "lidar" not in name]
        plain = [name for name in names if name not in quaternions]
        self._plain = np.concatenate([_addresses(model, name) for name in plain])
        self._quaternions = [_addresses(model, name) for name in quaternions]
        self.size = len(self._plain) + 9 * len(self._quaternions)

    def read(
        self, sensordata: Float[np.ndarray, " sensor"], out: Float[np.ndarray, " size"]
    ) -> None:
        """Write the readings to `out`, quaternions of ball joints as rotation matrices."""
        start = len(self._plain)
        sensordata.take(self._plain, out=out[:start])
        for address in self._quaternions:
            mujoco.mju_quat2Mat(out[start : start + 9], sensordata[address])
            start += 9


class Contacts:
    """Objects that the agent touches."""

    def __init__(self, model: mujoco.MjModel, agent_geoms: Sequence[str]) -> None:
        names = [model.geom(index).name for index in range(model.ngeom)]
        self._is_agent = [name in agent_geoms for name in names]
        # "gremlin" and "vase" for any of them, the full name of a button, else None.
        kinds = [re.match("gremlin|vase|button.*", name) for name in names]
        self._labels = [kind and kind[0] for kind in kinds]

    def touched(self, data: mujoco.MjData) -> set[str]:
        """Return `gremlin`, `vase` and names of buttons in contact with the agent."""
        found: set[str | None] = set()
        is_agent, labels = self._is_agent, self._labels
        for first, second in data.contact.geom.tolist():
            if is_agent[first] or is_agent[second]:
                found.add(labels[first])
                found.add(labels[second])
        found.discard(None)
        return found  # pyright: ignore[reportReturnType]


def _addresses(model: mujoco.MjModel, name: str) -> np.ndarray:
    sensor = model.sensor(name).id
    start = model.sensor_adr[sensor]
    return np.arange(start, start + model.sensor_dim[sensor])
