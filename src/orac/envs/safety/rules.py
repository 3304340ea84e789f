"""Rules of the Goal and Button tasks: when a goal is met, the reward, and the costs.

The functions take distances and names of touched objects. They do not need MuJoCo.
"""

import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Rules:
    """Constants of one task; `read_rules` reads them from the package's task object."""

    goal_size: float
    """A goal is met within this distance. A button is met by touch instead."""
    has_buttons: bool
    hazard_size: float | None
    """Hazards cost within this distance; None if there are no hazards."""
    buttons_cost: bool
    gremlins_cost: bool
    vases_cost: bool
    vase_speed: float
    """Vases cost from this speed on, in metres per second, and when touched."""
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
        """Return the progress towards the goal plus the bonus, clipped by the limit."""
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
    """Read the rules of a package task that `fast_path.unsupported_reason` accepts."""
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
