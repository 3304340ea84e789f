"""Which tasks the fast path may run: those whose every setting it was compared with."""

import importlib.metadata
from typing import Any

from packaging.version import Version

from orac.envs.safety import import_compat as package

AGENTS = ("Point", "Car")
TASKS = tuple(
    f"{task}Level{level}" for task in ("Goal", "Button") for level in range(3)
)

MUJOCO = "3.3.6"
"""The first that computes forward twice with the same result, as leaving one out needs."""

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
"""The package's own values; a task that has others is left to the package."""


def unknown(task: Any) -> str | None:
    """Why the fast path does not know a task; None when it does."""
    if package.version() != package.VERSION:
        return f"it knows version {package.VERSION}, not {package.version()}"
    mujoco = importlib.metadata.version("mujoco")
    if Version(mujoco) < Version(MUJOCO):
        return f"it needs MuJoCo {MUJOCO} or newer, not {mujoco}"
    kind, agent = type(task).__name__, type(task.agent).__name__
    if kind not in TASKS or agent not in AGENTS:
        return f"it knows {', '.join(TASKS)} with {' or '.join(AGENTS)}, not {kind}, {agent}"
    for name, value in SETTINGS.items():
        found = _setting(task, name)
        if found is not None and found != value:
            return f"{name} is {found!r}, and it knows {value!r}"
    if task.lidar_conf.max_dist is None:
        return "the lidar has no greatest distance"
    if not all(thing.is_lidar_observed for thing in task._obstacles):
        return "the lidar does not see everything"
    for thing in (task.agent, *task._obstacles):
        if thing.placements is not None or thing.locations:
            return "something has a place of its own"
    return None


def _setting(task: Any, name: str) -> Any:
    """A setting, or None when the task has nothing of that name."""
    for part in name.split("."):
        task = getattr(task, part, None)
    return task
