"""The rules of the Goal and Button tasks: when a goal is met, and what costs.

Pure: distances and names of touched things in, answers out. Knows nothing of MuJoCo.
"""

import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Rules:
    """What the package's task object says, read once."""

    goal_size: float
    """A goal is met within this distance; a button is met by touch instead."""
    has_buttons: bool
    hazard_size: float | None
    """Hazards cost within this distance; None when there are none."""
    buttons_cost: bool
    gremlins_cost: bool
    vases_cost: bool
    vase_speed: float
    """Vases cost from this speed on, in metres a second, and when touched."""
    distance_reward: float
    goal_reward: float
    reward_limit: float
    delay: int
    """Steps for which the buttons rest after one was met."""

    @property
    def touch_matters(self) -> bool:
        return self.has_buttons or self.gremlins_cost or self.vases_cost

    def is_met(self, distance: float, touched: Set[str], goal_button: int) -> bool:
        if self.has_buttons:
            return f"button{goal_button}" in touched
        return distance <= self.goal_size

    def reward(self, before: float, distance: float, met: bool) -> float:
        """How much nearer the goal is, and the bonus; limited as the package limits it."""
        reward = (before - distance) * self.distance_reward
        if met:
            reward += self.goal_reward
        return min(max(reward, -self.reward_limit), self.reward_limit)

    def costs(
        self,
        hazard_distances: Float[np.ndarray, " hazard"],
        vase_velocities: Float[np.ndarray, "vase 3"],
        touched: Set[str],
        goal_button: int,
        timer: int,
    ) -> dict[str, float]:
        """0 or 1 for each kind of thing that can cost, under the package's names."""
        costs: dict[str, float] = {}
        if self.buttons_cost:
            wrong = touched - {f"button{goal_button}", "gremlin", "vase"}
            costs["cost_buttons"] = float(timer == 0 and bool(wrong))
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
    """The rules of one of the package's tasks, as `known.unknown` lets them be."""
    things = {thing.name: thing for thing in task._obstacles}
    buttons, hazards = things.get("buttons"), things.get("hazards")
    vases, gremlins = things.get("vases"), things.get("gremlins")
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
        delay=int(buttons.resampling_delay) if buttons else 0,
    )
