"""Which tasks the fast path may run: those whose every setting it was compared with."""

from typing import Any

from orac.envs.safety import package

AGENTS = ("Point", "Car")
TASKS = tuple(
    f"{task}Level{level}" for task in ("Goal", "Button") for level in range(3)
)

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
    "goal.is_comp_observed": False,
    "vases.displace_cost": 0.0,
}
"""The package's own values; a task that has others is left to the package."""


def unknown(task: Any) -> str | None:
    """Why the fast path does not know a task; None when it does."""
    if package.version() != package.VERSION:
        return (
            f"it was compared with version {package.VERSION}, not {package.version()}"
        )
    kind, agent = type(task).__name__, type(task.agent).__name__
    if kind not in TASKS or agent not in AGENTS:
        return f"it knows {', '.join(TASKS)} with {' or '.join(AGENTS)}, not {kind}, {agent}"
    for name, value in SETTINGS.items():
        found = _setting(task, name)
        if found is not None and found != value:
            return f"{name} is {found!r}, and it knows {value!r}"
    if task.lidar_conf.max_dist is None:
        return "the lidar has no greatest distance"
    for thing in (task.agent, *task._obstacles):
        if thing.placements is not None or thing.locations:
            return "something has a place of its own"
    return None


def _setting(task: Any, name: str) -> Any:
    """A setting, or None when the task has nothing of that name."""
    for part in name.split("."):
        task = getattr(task, part, None)
    return task
