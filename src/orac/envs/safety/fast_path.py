"""Fast simulation of Safety-Gymnasium's Goal and Button tasks for Point and Car.

The physics, the random numbers and the rules are the same as in the package. The fast path
is several times faster because names are looked up once, the lidar reads all objects at
once, MuJoCo runs its forward computation once instead of four times per step, sensors are
computed once per step, and a reset does not compile the package's sky textures.
`unsupported_reason` returns why a task cannot use the fast path. The supported tasks are
those that `tests/envs/safety/test_fast_path.py` compares with the package.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import functools
import importlib.metadata
import math
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from packaging.version import Version

from orac.envs.safety import import_compat
from orac.envs.safety.layout import Placements, Point, sample_goal, sample_layout
from orac.envs.safety.package_backend import ModelBuilder


@dataclass(frozen=True)
class Rules:
    """Constants of one task; `read_rules` reads them from the package's task object."""

    goal_size: float
    """Distance within which a goal is met. A goal button must be touched instead."""
    has_buttons: bool
    hazard_size: float | None
    """Distance within which a hazard has a cost; None if no hazard has a cost."""
    buttons_cost: bool
    gremlins_cost: bool
    vases_cost: bool
    vase_speed: float
    """Minimum speed, in metres per second, at which a moving vase has a cost. A touched
    vase always has one."""
    distance_reward: float
    goal_reward: float
    reward_limit: float
    button_delay: int
    """Number of steps for which buttons are inactive after the goal button was touched."""

    @property
    def uses_contacts(self) -> bool:
        return self.has_buttons or self.gremlins_cost or self.vases_cost

    def is_met(self, distance: float, touched: Set[str], goal_button: int) -> bool:
        if self.has_buttons:
            return f"button{goal_button}" in touched
        return distance <= self.goal_size

    def reward(self, previous: float, distance: float, met: bool) -> float:
        """Return the reward for progress towards the goal and for meeting it, clipped."""
        reward = (previous - distance) * self.distance_reward
        if met:
            reward += self.goal_reward
        return min(max(reward, -self.reward_limit), self.reward_limit)

    def costs(
        self,
        hazard_distances: Float[np.ndarray, " hazard"],
        vase_velocities: Float[np.ndarray, "vase 3"],
        touched: Set[str],
        goal_button: int,
        button_timer: int,
    ) -> dict[str, float]:
        """Return 0 or 1 for each kind of cost, under the package's names."""
        costs: dict[str, float] = {}
        if self.buttons_cost:
            wrong = touched - {f"button{goal_button}", "gremlin", "vase"}
            costs["cost_buttons"] = float(button_timer == 0 and bool(wrong))
        if self.hazard_size is not None:
            nearest = float(hazard_distances.min())
            costs["cost_hazards"] = float(nearest < self.hazard_size)
        if self.vases_cost:
            costs["cost_vases_contact"] = float("vase" in touched)
            fastest = math.sqrt(float(np.square(vase_velocities).sum(axis=1).max()))
            costs["cost_vases_velocity"] = float(fastest >= self.vase_speed)
        if self.gremlins_cost:
            costs["cost_gremlins"] = float("gremlin" in touched)
        return costs


def read_rules(task: Any) -> Rules:
    """Read the rules from a task object of the package that the fast path supports."""
    kinds = {kind.name: kind for kind in task._obstacles}
    buttons, hazards = kinds.get("buttons"), kinds.get("hazards")
    vases, gremlins = kinds.get("vases"), kinds.get("gremlins")
    rewarding = buttons if buttons else task.goal
    return Rules(
        goal_size=task.goal.size,
        has_buttons=buttons is not None,
        hazard_size=hazards.size if hazards and hazards.is_constrained else None,
        buttons_cost=buttons is not None and buttons.is_constrained,
        gremlins_cost=gremlins is not None and gremlins.is_constrained,
        vases_cost=vases is not None and vases.is_constrained,
        vase_speed=vases.velocity_threshold if vases else 0.0,
        distance_reward=rewarding.reward_distance,
        goal_reward=rewarding.reward_goal,
        reward_limit=float(task.reward_conf.reward_clip),
        button_delay=int(buttons.resampling_delay) if buttons else 0,
    )


class Lidar:
    """The package's pseudo-lidar, computed for all objects at once.

    Each kind of object has a full circle of bins. A reading falls from 1 for an object at
    the agent's position to 0 at `max_distance`, and the nearest object in a bin counts. An
    object also shows in the two neighbouring bins, weighted by its position within its own
    bin, so that readings change smoothly.
    """

    def __init__(
        self, counts: Sequence[int], num_bins: int, max_distance: float
    ) -> None:
        self._shape = (len(counts), num_bins)
        self._bin_size = 2 * np.pi / num_bins
        self._max_distance = max_distance
        # An angle just below zero may be rounded to the full circle, which is one bin past
        # the last one.
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
        # Objects out of range have a negative nearness, so the reading stays 0.
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
        """Write the readings to `out`, with quaternions converted to rotation matrices."""
        start = len(self._plain)
        sensordata.take(self._plain, out=out[:start])
        for address in self._quaternions:
            mujoco.mju_quat2Mat(out[start : start + 9], sensordata[address])
            start += 9


class Contacts:
    """Finds the objects that the agent touches."""

    def __init__(self, model: mujoco.MjModel, agent_geoms: Sequence[str]) -> None:
        names = [model.geom(index).name for index in range(model.ngeom)]
        self._is_agent = [name in agent_geoms for name in names]
        # A label is "gremlin", "vase", the full name of a button, or None for other geoms.
        kinds = [re.match("gremlin|vase|button.*", name) for name in names]
        self._labels = [kind and kind[0] for kind in kinds]

    def touched(self, data: mujoco.MjData) -> set[str]:
        """Return the labels of all geoms in contact with the agent, except None."""
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


Observation = Float[np.ndarray, " observation"]

AGENTS = ("Point", "Car")
TASKS = tuple(
    f"{task}Level{level}" for task in ("Goal", "Button") for level in range(3)
)

MIN_MUJOCO = "3.3.6"
"""First version in which repeating a forward computation changes nothing."""

SETTINGS = {
    "debug": False,
    "observe_vision": False,
    "observation_flatten": True,
    "action_noise": 0.0,
    "sim_conf.frameskip_binom_p": 1.0,
    "lidar_conf.type": "pseudo",
    "lidar_conf.alias": True,
    "compass_conf.shape": 2,
    "reward_conf.reward_orientation": False,
    "cost_conf.constrain_indicator": True,
    "mechanism_conf.randomize_layout": True,
    "mechanism_conf.continue_goal": True,
    "mechanism_conf.terminate_resample_failure": True,
    "_is_load_static_geoms": False,
    "goal.is_comp_observed": False,
    "buttons.cost": 1.0,
    "hazards.cost": 1.0,
    "gremlins.contact_cost": 1.0,
    "vases.contact_cost": 1.0,
    "vases.velocity_cost": 1.0,
    "vases.displace_cost": 0.0,
}
"""The package's default settings; the fast path supports no other values."""

FLOOR_PROJECTION = np.array([1.0, 1.0, 0.0])
"""Factor that projects a position onto the floor, where the lidar sees every object."""

DISABLE_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
"""Flag that skips the sensors. The physics steps set it, because sensors are read only
once per environment step."""


def unsupported_reason(task: Any) -> str | None:
    """Return why the fast path does not support a task; None if it does."""
    version = importlib.metadata.version("safety-gymnasium")
    if version != import_compat.VERSION:
        return f"it needs version {import_compat.VERSION} of the package, not {version}"
    mujoco_version = importlib.metadata.version("mujoco")
    if Version(mujoco_version) < Version(MIN_MUJOCO):
        return f"it needs MuJoCo {MIN_MUJOCO} or newer, not {mujoco_version}"
    kind, agent = type(task).__name__, type(task.agent).__name__
    if kind not in TASKS or agent not in AGENTS:
        return (
            f"it supports {', '.join(TASKS)} with {' or '.join(AGENTS)}, not {kind} "
            f"with {agent}"
        )
    for name, supported in SETTINGS.items():
        # A task without this setting gives None.
        value = functools.reduce(
            lambda part, key: getattr(part, key, None), name.split("."), task
        )
        if value is not None and value != supported:
            return f"{name} is {value!r}, but only {supported!r} is supported"
    if task.lidar_conf.max_dist is None:
        return "the lidar has no maximum distance"
    if not all(kind.is_lidar_observed for kind in task._obstacles):
        return "the lidar does not observe every object"
    for placed in (task.agent, *task._obstacles):
        if placed.placements is not None or placed.locations:
            return "an object has a fixed location"
    return None


class FastSimulation:
    """Simulation of one task, described by the package's `task` object."""

    def __init__(self, task: Any, timestep: float | None = None) -> None:
        self._task, self._rules = task, read_rules(task)
        self._placements = _read_placements(task)
        self._substeps = task.sim_conf.frameskip_binom_n
        gremlins = getattr(task, "gremlins", None)
        self._gremlins = gremlins and (gremlins.travel, gremlins.size)
        self._goal_button = self._button_timer = 0
        self._goal_distance = 0.0
        layout = sample_layout(self._placements, self.random)
        self._builder = ModelBuilder(task, layout, timestep)
        self._compile(layout)
        self._look_up_names()

    @property
    def random(self) -> np.random.RandomState:
        return self._task.random_generator.random_generator

    def seed(self, seed: int) -> None:
        """Start a new sequence of layouts."""
        self._task.random_generator.set_random_seed(seed)

    def random_state(self) -> dict[str, Any]:
        return self.random.get_state(legacy=False)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.random.set_state(state)

    def close(self) -> None:
        """Do nothing: this simulation holds no resources."""

    def reset(self) -> Observation:
        """Sample a layout and start an episode in it."""
        layout = sample_layout(self._placements, self.random)
        self._compile(layout)
        mujoco.mj_forward(self.model, self.data)
        if not self._new_goal(layout):
            raise RuntimeError(
                "Found no place for the goal in a new layout. Make the extents larger or "
                "the goal's keep-out radius smaller."
            )
        self._button_timer = 0
        offsets, distances = self._measure()
        costs = self._costs(distances, self._touched())
        if any(costs.values()):
            raise RuntimeError(
                f"The new layout has a cost before the first step: {costs}."
            )
        return self._observe(offsets)

    def step(
        self, action: Float[np.ndarray, " action"]
    ) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Take a step; return observation, reward, whether the episode ended, and info."""
        self._advance(action)
        offsets, distances = self._measure()
        touched, previous = self._touched(), self._goal_distance
        self._goal_distance = float(distances[self._goal])
        met = self._rules.is_met(self._goal_distance, touched, self._goal_button)
        reward = self._rules.reward(previous, self._goal_distance, met)
        # The order is the package's: costs, then the timer of the buttons, then a new goal.
        costs = self._costs(distances, touched)
        self._button_timer = max(0, self._button_timer - 1)
        terminated = False
        if met:
            terminated = not self._new_goal()
            offsets, _ = self._measure()
        info = {**costs, "cost_sum": float(any(costs.values())), "goal_met": met}
        return self._observe(offsets), reward, terminated, info

    def _compile(self, layout: dict[str, Point]) -> None:
        """Compile a model, and store references to the arrays that every step uses."""
        self.model, self.data = self._builder.compile(layout)
        self._options = self.model.opt
        self._positions, self._rotations = self.data.xpos, self.data.xmat
        self._sensordata, self._velocities = self.data.sensordata, self.data.qvel
        self._control, self._mocap = self.data.ctrl, self.data.mocap_pos

    def _look_up_names(self) -> None:
        """Find the indices of all names, which are the same in every model of a task."""
        model, task = self.model, self._task
        bodies = {
            kind.name: [model.body(name).id for name in _body_names(kind)]
            for kind in task._obstacles
        }
        counts = [len(ids) for ids in bodies.values()]
        starts = dict(zip(bodies, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        self._agent = model.body("agent").id
        self._objects = np.concatenate(list(bodies.values()))
        self._goal, self._goal_body = starts["goal"], bodies["goal"][0]
        hazards = starts.get("hazards", 0)
        self._hazards = slice(hazards, hazards + len(bodies.get("hazards", ())))
        joints = model.body_dofadr[bodies.get("vases", [])].astype(int)
        self._vases = joints[:, None] + np.arange(3)
        lidar = task.lidar_conf
        self._lidar = Lidar(counts, lidar.num_bins, float(lidar.max_dist))
        self._sensors = BodySensors(task, model)
        self._contacts = Contacts(model, task.agent.body_info.geom_names)
        self._low, self._high = model.actuator_ctrlrange.T.copy()

    def _advance(self, action: Float[np.ndarray, " action"]) -> None:
        """Run the physics steps of one environment step, and compute the sensors."""
        model, data, options = self.model, self.data, self._options
        np.minimum(np.maximum(action, self._low), self._high, out=self._control)
        # The package draws the number of physics steps from a binomial distribution with
        # probability 1, which consumes one random number.
        self.random.random_sample()
        flags = options.disableflags
        options.disableflags = flags | DISABLE_SENSORS
        if self._gremlins:
            for _ in range(self._substeps):
                self._mocap[:] = _gremlin_target(data.time, *self._gremlins)
                mujoco.mj_step(model, data)
        else:
            mujoco.mj_step(model, data, self._substeps)
        options.disableflags = flags
        mujoco.mj_forward(model, data)

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors from the agent to the objects, and the floor distances."""
        offsets = self._positions.take(self._objects, axis=0) * FLOOR_PROJECTION
        offsets -= self._positions[self._agent]
        square = np.square(offsets)
        return offsets, np.sqrt(square[:, 0] + square[:, 1])

    def _observe(self, offsets: np.ndarray) -> Observation:
        readings = self._lidar.read(offsets, self._rotations[self._agent].reshape(3, 3))
        if self._button_timer:
            readings[0] = 0.0
        size = self._sensors.size
        observation = np.empty(size + readings.size)
        self._sensors.read(self._sensordata, observation[:size])
        observation[size:] = readings.reshape(-1)
        return observation

    def _touched(self) -> set[str]:
        return self._contacts.touched(self.data) if self._rules.uses_contacts else set()

    def _costs(self, distances: np.ndarray, touched: set[str]) -> dict[str, float]:
        return self._rules.costs(
            distances[self._hazards],
            self._velocities[self._vases],
            touched,
            self._goal_button,
            self._button_timer,
        )

    def _new_goal(self, layout: dict[str, Point] | None = None) -> bool:
        """Choose a new goal button or goal position; return False if there is no place.

        A goal position keeps its distance from the objects at their positions in `layout`,
        or at their current positions if there is no layout.
        """
        if self._rules.has_buttons:
            self._goal_button = int(self.random.choice(self._task.buttons.num))
            self._button_timer = self._rules.button_delay
            point = self.data.body(f"button{self._goal_button}").xpos[:2]
        else:
            if layout is None:
                at = {
                    name: self.data.body(name).xpos for name in self._placements.radii
                }
                layout = {name: (float(p[0]), float(p[1])) for name, p in at.items()}
            others = {name: place for name, place in layout.items() if name != "goal"}
            point = sample_goal(self._placements, others, self.random)
        if point is None:
            return False
        self.model.body_pos[self._goal_body, :2] = point
        mujoco.mj_forward(self.model, self.data)
        _, distances = self._measure()
        self._goal_distance = float(distances[self._goal])
        return True


@functools.lru_cache(maxsize=1 << 15)
def _gremlin_target(time: float, travel: float, size: float) -> Float[np.ndarray, "3"]:
    """Return the point to which gremlins are pulled.

    The result is cached, because the same times occur in all episodes.
    """
    # Numerics: NumPy's sine is used as in the package. The C library's may differ slightly.
    return np.array([np.sin(time) * travel, np.cos(time) * travel, size])


def _read_placements(task: Any) -> Placements:
    """Return the distances that the package keeps between objects."""
    task._build_placements_dict()
    conf = task.placements_conf
    radii = {name: float(radius) for name, (_, radius) in conf.placements.items()}
    x_low, y_low, x_high, y_high = map(float, conf.extents)
    return Placements(radii, (x_low, y_low, x_high, y_high), float(conf.margin))


def _body_names(kind: Any) -> list[str]:
    """Return the MuJoCo names of all objects of one kind."""
    if not hasattr(kind, "num"):
        return [kind.name]
    suffix = "obj" if kind.type == "mocaps" else ""
    return [f"{kind.name[:-1]}{index}{suffix}" for index in range(kind.num)]
