"""Ids of Safety-Gymnasium's tasks, their meaning, and their registration in Gymnasium.

`orac/Safety{Point,Car}{Goal,Button}{0,1,2}-v0` are the paper's variants. They have a
physics step of 6 ms for Point and 10 ms for Car, ten physics steps per environment step,
and 400 environment steps per episode. The package's own ids are `Safety` + agent + task +
level + `-v0`, with `Vision` before `-v0` for camera images, and `Safety` + robot +
`Velocity-v0` or `Velocity-v1`. They have the package's timestep and episode length. This
module does not import the package, so the ids can be listed without it.
"""

import functools
import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from orac.config.presets import SAFETY_GYM_VARIANTS
from orac.config.validation import did_you_mean
from orac.envs.safety.import_compat import AGENTS

ENTRY_POINT = "orac.envs.safety.env:SafetyEnv"
VECTOR_ENTRY_POINT = "orac.envs.safety.env:SafetyVectorEnv"

_LONG_TASKS = ("Goal", "Button", "Push", "FadingEasy", "FadingHard")
STEPS = {
    **{f"{name}{level}": 1000 for name in _LONG_TASKS for level in range(3)},
    **{f"Circle{level}": 500 for level in range(3)},
    "Run0": 500,
}
"""Steps per episode in the package, by task.

The Race tasks are missing because the published package lacks their texture files.
"""

ROBOTS = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d", "Ant", "Humanoid")

TIMESTEPS = {"Point": 0.006, "Car": 0.01}
"""Seconds per physics step in the paper's variants; the package has 0.002 and 0.004."""

PAPER_STEPS = 400
PAPER_TASKS = tuple(name.removeprefix("orac/") for name in SAFETY_GYM_VARIANTS)


@dataclass(frozen=True)
class Task:
    """One of the package's ids, split into its parts."""

    name: str
    """Id of the task without `Vision`."""
    agent: str | None
    """Name of the agent; None for a velocity task, which has a robot instead."""
    robot: str | None
    version: str
    episode_length: int
    config: dict[str, Any] = field(default_factory=dict)
    """Entries of the package's configuration in addition to the agent."""


@functools.cache
def package_ids() -> tuple[str, ...]:
    """Return every id of the package that `SafetyEnv` can make."""
    navigation = (
        f"Safety{agent}{task}{view}-v0"
        for agent, task, view in itertools.product(AGENTS, STEPS, ("", "Vision"))
    )
    velocity = (
        f"Safety{robot}Velocity-{version}"
        for robot, version in itertools.product(ROBOTS, ("v0", "v1"))
    )
    return (*navigation, *velocity)


def parse_id(name: str) -> Task:
    """Split one of the package's ids into its parts; raise a ValueError if unknown."""
    if name not in package_ids():
        raise ValueError(
            f"{name!r} is not a task of Safety-Gymnasium."
            f"{did_you_mean(name, package_ids())}"
        )
    velocity = re.fullmatch(r"Safety(\w+)Velocity-(v\d)", name)
    if velocity:
        return Task(name, None, velocity[1], velocity[2], 1000)
    agent, task, view = re.fullmatch(
        rf"Safety({'|'.join(AGENTS)})({'|'.join(STEPS)})(Vision)?-v0", name
    ).groups()  # pyright: ignore[reportOptionalMemberAccess]
    config = {"observe_vision": True, "observation_flatten": False} if view else {}
    return Task(f"Safety{agent}{task}-v0", agent, None, "v0", STEPS[task], config)


def register() -> None:
    """Add the ids to Gymnasium's registry; ids that are already there stay unchanged."""
    ids: dict[str, tuple[str, int, dict[str, float]]] = {}
    for name in PAPER_TASKS:
        settings = {"timestep": TIMESTEPS[str(parse_id(name).agent)]}
        ids[f"orac/{name}"] = (name, PAPER_STEPS, settings)
    for name in package_ids():
        ids[name] = (name, parse_id(name).episode_length, {})
    for id, (task, steps, settings) in ids.items():
        if id not in gymnasium.registry:
            gymnasium.register(
                id,
                entry_point=ENTRY_POINT,
                vector_entry_point=VECTOR_ENTRY_POINT,
                max_episode_steps=steps,
                kwargs={"task": task, "time_limit": steps, **settings},
            )
