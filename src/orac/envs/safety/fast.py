"""The package's Goal and Button tasks for Point and Car, stepped several times faster.

The physics, the random numbers and every decision are the package's; what is gone is
looking things up by name, reading lidars thing by thing, computing MuJoCo forward four
times a step and compiling photographs at a reset. Knows one world: seeds, time limits
and Gymnasium are the adapter's, and which tasks may come here `known` says.
"""

# MuJoCo is compiled and has no stubs.
# pyright: reportAttributeAccessIssue=false

import functools
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from orac.envs.safety.layout import Placements, Point, sample_goal, sample_layout
from orac.envs.safety.lidar import Lidar
from orac.envs.safety.rules import read_rules
from orac.envs.safety.scene import Poses, Scene
from orac.envs.safety.sensors import Sensors, Touch

Observation = Float[np.ndarray, " observation"]

ON_THE_FLOOR = np.array([1.0, 1.0, 0.0])
"""The lidar sees things at floor height, whatever their own."""

NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
"""Sensors are read once a step; the physics steps before need not compute them."""

NO_VELOCITIES = np.empty((0, 3))


class FastWorld:
    """One task's world. `task` is the package's and serves as a description."""

    def __init__(self, task: Any, timestep: float | None = None) -> None:
        self._task, self._rules = task, read_rules(task)
        self._placements = read_placements(task)
        self._substeps = task.sim_conf.frameskip_binom_n
        gremlins = getattr(task, "gremlins", None)
        self._gremlins = gremlins and (gremlins.travel, gremlins.size)
        self._goal_button = self._timer = 0
        self._distance = 0.0
        layout = sample_layout(self._placements, self.random)
        self._scene = Scene(task, layout, timestep)
        self._build(self._scene.poses(layout))
        self._index()

    @property
    def random(self) -> np.random.RandomState:
        return self._task.random_generator.random_generator

    def seed(self, seed: int) -> None:
        """Begin a new sequence of layouts."""
        self._task.random_generator.set_random_seed(seed)

    def random_state(self) -> dict[str, Any]:
        return self.random.get_state(legacy=False)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.random.set_state(state)

    def close(self) -> None:
        """Nothing is held that would have to be given back."""

    def reset(self) -> Observation:
        """Draw a layout and start an episode in it."""
        layout = sample_layout(self._placements, self.random)
        self._build(self._scene.poses(layout))
        mujoco.mj_forward(self.model, self.data)
        if not self._new_goal(layout):
            raise RuntimeError(
                "Found no place for the goal in a new layout. Make the extents larger or "
                "the goal's keep-out radius smaller."
            )
        self._timer = 0
        offsets, distances = self._look()
        costs = self._costs(distances, self._touched())
        if any(costs.values()):
            raise RuntimeError(f"The new layout costs before the first step: {costs}.")
        return self._observe(offsets)

    def step(
        self, action: Float[np.ndarray, " action"]
    ) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Observation, reward, whether the task ended, and what the package reports."""
        self._advance(action)
        offsets, distances = self._look()
        touched, before = self._touched(), self._distance
        self._distance = float(distances[self._goal])
        met = self._rules.is_met(self._distance, touched, self._goal_button)
        reward = self._rules.reward(before, self._distance, met)
        # The package's order: costs, then the buttons' clock, then a new goal.
        costs = self._costs(distances, touched)
        self._timer = max(0, self._timer - 1)
        terminated = False
        if met:
            terminated = not self._new_goal()
            offsets, _ = self._look()
        info = {**costs, "cost_sum": float(any(costs.values())), "goal_met": met}
        return self._observe(offsets), reward, terminated, info

    def _build(self, poses: Poses) -> None:
        """Compile a world; what is used at every step is kept at hand."""
        self.model, self.data = self._scene.compile(poses)
        self._options = self.model.opt
        self._positions, self._rotations = self.data.xpos, self.data.xmat
        self._sensordata, self._velocities = self.data.sensordata, self.data.qvel
        self._control, self._mocap = self.data.ctrl, self.data.mocap_pos

    def _index(self) -> None:
        """Look names up; every world of this task has them in the same places."""
        model, task = self.model, self._task
        bodies = {
            thing.name: [model.body(name).id for name in body_names(thing)]
            for thing in task._obstacles
        }
        counts = [len(ids) for ids in bodies.values()]
        starts = dict(zip(bodies, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        self._agent = model.body("agent").id
        self._things = np.concatenate(list(bodies.values()))
        self._goal, self._goal_body = starts["goal"], bodies["goal"][0]
        hazards = starts.get("hazards", 0)
        self._hazards = slice(hazards, hazards + len(bodies.get("hazards", ())))
        joints = model.body_dofadr[bodies.get("vases", [])].astype(int)
        self._vases = joints[:, None] + np.arange(3)
        lidar = task.lidar_conf
        self._lidar = Lidar(counts, lidar.num_bins, float(lidar.max_dist))
        self._sensors = Sensors(task, model)
        self._touch = Touch(model, task.agent.body_info.geom_names)
        self._low, self._high = model.actuator_ctrlrange.T.copy()

    def _advance(self, action: Float[np.ndarray, " action"]) -> None:
        """Some steps of physics under one action, then all that follows from the last."""
        model, data, options = self.model, self.data, self._options
        np.minimum(np.maximum(action, self._low), self._high, out=self._control)
        # The package draws the number of steps, though it is certain: one random number.
        self.random.random_sample()
        flags = options.disableflags
        options.disableflags = flags | NO_SENSORS
        if self._gremlins:
            for _ in range(self._substeps):
                self._mocap[:] = orbit(data.time, *self._gremlins)
                mujoco.mj_step(model, data)
        else:
            mujoco.mj_step(model, data, self._substeps)
        options.disableflags = flags
        mujoco.mj_forward(model, data)

    def _look(self) -> tuple[np.ndarray, np.ndarray]:
        """From the agent to each thing: vectors, and distances on the floor."""
        offsets = self._positions.take(self._things, axis=0) * ON_THE_FLOOR
        offsets -= self._positions[self._agent]
        square = np.square(offsets)
        return offsets, np.sqrt(square[:, 0] + square[:, 1])

    def _observe(self, offsets: np.ndarray) -> Observation:
        readings = self._lidar.read(offsets, self._rotations[self._agent].reshape(3, 3))
        if self._timer:
            readings[0] = 0.0
        own = self._sensors.size
        observation = np.empty(own + readings.size)
        self._sensors.read(self._sensordata, observation[:own])
        observation[own:] = readings.reshape(-1)
        return observation

    def _touched(self) -> set[str]:
        return self._touch.touched(self.data) if self._rules.touch_matters else set()

    def _costs(self, distances: np.ndarray, touched: set[str]) -> dict[str, float]:
        return self._rules.costs(
            distances[self._hazards],
            self._velocities[self._vases] if self._rules.vases_cost else NO_VELOCITIES,
            touched,
            self._goal_button,
            self._timer,
        )

    def _places(self) -> dict[str, Point]:
        """Where everything is now."""
        found = {name: self.data.body(name).xpos for name in self._placements.radii}
        return {name: (float(at[0]), float(at[1])) for name, at in found.items()}

    def _new_goal(self, layout: dict[str, Point] | None = None) -> bool:
        """Choose a button, or a place clear of all else; False when there is none."""
        if self._rules.has_buttons:
            self._goal_button = int(self.random.choice(self._task.buttons.num))
            self._timer = self._rules.delay
            point = self.data.body(f"button{self._goal_button}").xpos[:2]
        else:
            places = layout or self._places()
            others = {name: place for name, place in places.items() if name != "goal"}
            point = sample_goal(self._placements, others, self.random)
        if point is None:
            return False
        self.model.body_pos[self._goal_body, :2] = point
        mujoco.mj_forward(self.model, self.data)
        _, distances = self._look()
        self._distance = float(distances[self._goal])
        return True


@functools.lru_cache(maxsize=1 << 15)
def orbit(time: float, travel: float, size: float) -> Float[np.ndarray, "3"]:
    """Where gremlins are drawn to; every episode asks for the same few thousand times."""
    # Numerics: NumPy's sine, as in the package; the C library's may differ in a bit.
    return np.array([np.sin(time) * travel, np.cos(time) * travel, size])


def read_placements(task: Any) -> Placements:
    """What the package would keep apart, and by how much."""
    task._build_placements_dict()
    conf = task.placements_conf
    radii = {name: float(radius) for name, (_, radius) in conf.placements.items()}
    x_low, y_low, x_high, y_high = map(float, conf.extents)
    return Placements(radii, (x_low, y_low, x_high, y_high), float(conf.margin))


def body_names(thing: Any) -> list[str]:
    """The names of a thing's bodies in MuJoCo: one, or a numbered list."""
    if not hasattr(thing, "num"):
        return [thing.name]
    suffix = "obj" if thing.type == "mocaps" else ""
    return [f"{thing.name[:-1]}{index}{suffix}" for index in range(thing.num)]
