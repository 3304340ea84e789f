"""Some environments stepped one after another, their results in one block of numbers.

A block is what one process of a vector environment hands over: rows of plain numbers that
travel as bytes. Ended episodes restart at once, and the last observation stays beside.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float

from orac.envs.safety.adapter import SafetyEnv

SCALARS = ("reward", "cost", "goal_met", "goals", "terminated", "truncated")
"""What a row holds after two observations: the one to act on, and the one reached."""


class Block:
    """Reads the parts of a block by name."""

    def __init__(self, rows: Float[np.ndarray, "env number"]) -> None:
        self._rows = rows
        self._size = (rows.shape[1] - len(SCALARS)) // 2

    @property
    def observation(self) -> Float[np.ndarray, "env observation"]:
        return self._rows[:, : self._size].copy()

    @property
    def reached(self) -> Float[np.ndarray, "env observation"]:
        """The last observation of an episode, in the rows where one ended."""
        return self._rows[:, self._size : 2 * self._size].copy()

    def number(self, name: str) -> Float[np.ndarray, " env"]:
        return self._rows[:, 2 * self._size + SCALARS.index(name)].copy()

    def flag(self, name: str) -> Bool[np.ndarray, " env"]:
        return self.number(name) != 0.0


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
        self._size = space.shape[0]
        self.rows = np.zeros((num_envs, 2 * self._size + len(SCALARS)))

    def reset(self, seeds: Sequence[int | None]) -> np.ndarray:
        """Start episodes; None goes on with an environment's own sequence of layouts."""
        for env, row, seed in zip(self.envs, self.rows, seeds, strict=True):
            row[: self._size], _ = env.reset(seed=seed)
        return self.rows

    def step(self, actions: np.ndarray) -> np.ndarray:
        """One step in every environment; the block is overwritten by the next."""
        size = self._size
        for env, row, action in zip(self.envs, self.rows, actions, strict=True):
            observation, reward, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                row[size : 2 * size] = observation
                observation, _ = env.reset()
            row[:size] = observation
            row[2 * size :] = (
                reward,
                info["cost"],
                info["goal_met"],
                info["goals"],
                terminated,
                truncated,
            )
        return self.rows

    def get_state(self) -> list[dict[str, Any]]:
        return [env.get_state() for env in self.envs]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        for env, state in zip(self.envs, states, strict=True):
            env.set_state(state)

    def close(self) -> None:
        for env in self.envs:
            env.close()
