"""Which tasks there are, by the package's ids, and the variants this project adds.

An id reads `Safety` + agent + task + level + `-v0`, or `Safety` + robot + `Velocity-v0`.
Pure data: nothing here imports the package, so ids can be listed without it.
"""

import difflib
import functools
import itertools
import re
from dataclasses import dataclass, field
from typing import Any

from orac.envs.safety.import_compat import AGENTS

STEPS = {
    **{
        f"{task}{level}": 1000
        for task in ("Goal", "Button", "Push")
        for level in range(3)
    },
    **{f"Fading{kind}{level}": 1000 for kind in ("Easy", "Hard") for level in range(3)},
    **{f"Circle{level}": 500 for level in range(3)},
    "Run0": 500,
}
"""Steps an episode takes in the package, by task.

The Race tasks are left out: the published package lacks the pictures they are made of.
"""

ROBOTS = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d", "Ant", "Humanoid")

TIMESTEPS = {"Point": 0.006, "Car": 0.01}
"""Seconds of a physics step in the paper's variant; the package has 0.002 and 0.004."""

PAPER_STEPS = 400
PAPER_TASKS = tuple(
    f"Safety{agent}{task}{level}-v0"
    for agent in TIMESTEPS
    for task in ("Goal", "Button")
    for level in range(3)
)


@dataclass(frozen=True)
class Task:
    """One of the package's ids, taken apart."""

    name: str
    """The id of the task itself, without `Vision`."""
    agent: str | None
    """Name of the agent; None for a velocity task, which is a robot of its own."""
    robot: str | None
    release: str
    episode_length: int
    settings: dict[str, Any] = field(default_factory=dict)
    """What the package's configuration needs besides the agent."""


@functools.cache
def stock_ids() -> tuple[str, ...]:
    """Every id of the package that the adapter can make."""
    navigation = (
        f"Safety{agent}{task}{view}-v0"
        for agent, task, view in itertools.product(AGENTS, STEPS, ("", "Vision"))
    )
    velocity = (
        f"Safety{robot}Velocity-{release}"
        for robot, release in itertools.product(ROBOTS, ("v0", "v1"))
    )
    return (*navigation, *velocity)


def parse(name: str) -> Task:
    """Take an id apart; an unknown one gets the nearest that is known."""
    if name not in stock_ids():
        near = difflib.get_close_matches(name, stock_ids(), n=1, cutoff=0.0)[0]
        raise ValueError(
            f"{name!r} is not a task of Safety-Gymnasium. Did you mean {near!r}?"
        )
    velocity = re.fullmatch(r"Safety(\w+)Velocity-(v\d)", name)
    if velocity:
        return Task(name, None, velocity[1], velocity[2], 1000)
    agent, task, view = re.fullmatch(
        rf"Safety({'|'.join(AGENTS)})({'|'.join(STEPS)})(Vision)?-v0", name
    ).groups()  # pyright: ignore[reportOptionalMemberAccess]
    settings: dict[str, Any] = {}
    if view:
        settings = {"observe_vision": True, "observation_flatten": False}
    plain = f"Safety{agent}{task}-v0"
    return Task(plain, agent, None, "v0", STEPS[task], settings)
