"""Some environments stepped one after another, their results in one block of memory.

A block is what one process of a vector environment hands over: rows of plain numbers that
travel as bytes. Ended episodes restart at once, and the last observation stays beside.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from orac.envs.safety.adapter import SafetyEnv


def row_type(observation_size: int) -> np.dtype[Any]:
    """One environment's step. `reached` is `observation`, except where an episode ended."""
    return np.dtype(
        [
            ("observation", np.float64, (observation_size,)),
            ("reached", np.float64, (observation_size,)),
            ("reward", np.float64),
            ("cost", np.float64),
            ("goals", np.float64),
            ("goal_met", np.bool_),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
        ]
    )


class Chunk:
    """`num_envs` environments of one task; `settings` are those of `SafetyEnv`."""

    def __init__(self, num_envs: int, settings: dict[str, Any]) -> None:
        self.envs = [SafetyEnv(**settings) for _ in range(num_envs)]
        space = self.envs[0].observation_space
        if not isinstance(space, Box):
            raise ValueError(
                f"{settings['task']} observes {space}, and only vectors of numbers are "
                "stepped side by side here. Use gymnasium.make_vec with "
                "vectorization_mode='sync'."
            )
        self.rows = np.zeros(num_envs, row_type(space.shape[0]))

    def reset(self, seeds: Sequence[int | None]) -> np.ndarray:
        """Start episodes; None goes on with an environment's own sequence of layouts."""
        for env, row, seed in zip(self.envs, self.rows, seeds, strict=True):
            row["observation"], _ = env.reset(seed=seed)
        return self.rows

    def step(self, actions: np.ndarray) -> np.ndarray:
        for env, row, action in zip(self.envs, self.rows, actions, strict=True):
            reached, reward, terminated, truncated, info = env.step(action)
            row["reached"], row["reward"] = reached, reward
            row["terminated"], row["truncated"] = terminated, truncated
            row["cost"], row["goals"] = info["cost"], info["goals"]
            row["goal_met"] = info["goal_met"]
            if terminated or truncated:
                reached, _ = env.reset()
            row["observation"] = reached
        return self.rows

    def get_state(self) -> list[dict[str, Any]]:
        return [env.get_state() for env in self.envs]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        for env, state in zip(self.envs, states, strict=True):
            env.set_state(state)

    def close(self) -> None:
        for env in self.envs:
            env.close()
