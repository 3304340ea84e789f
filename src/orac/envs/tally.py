"""What an episode adds up to, and which of its numbers may be told when.

Used by the Gymnasium faces; works in NumPy on steps that have left the device.
"""

from typing import Any

import numpy as np

from orac.envs.base import EnvSpec, Step


class Tally:
    """Running return, cost and length of one episode or of a batch of them."""

    def __init__(self, spec: EnvSpec, shape: tuple[int, ...]) -> None:
        self._spec = spec
        self.reward = np.zeros(shape)
        self.cost = np.zeros((*shape, spec.num_costs))
        self.length = np.zeros(shape, np.int32)

    def add(self, step: Step) -> dict[str, Any]:
        """Count a step; its cost and the metrics that may be seen now."""
        self.reward = self.reward + step.reward
        self.cost = self.cost + step.cost
        self.length = self.length + np.int32(1)
        hidden = self._spec.hidden_metric_names
        seen = [name for name in self._spec.metric_names if name not in hidden]
        metrics = {name: np.array(step.metrics[name]) for name in seen}
        return {"cost": self._one_or_several(step.cost)} | metrics

    def last(self, step: Step) -> dict[str, Any]:
        """What is told at the end of an episode only."""
        hidden = self._spec.hidden_metric_names
        return {name: np.array(step.metrics[name]) for name in hidden} | {
            "episode_return": np.array(self.reward),
            "episode_cost": self._one_or_several(self.cost),
            "episode_length": np.array(self.length),
        }

    def restart(self, ended: np.ndarray) -> None:
        self.reward = np.where(ended, 0.0, self.reward)
        self.cost = np.where(ended[:, None], 0.0, self.cost)
        self.length = np.where(ended, np.int32(0), self.length)

    def _one_or_several(self, cost: Any) -> np.ndarray:
        cost = np.array(cost, np.float64)
        return cost[..., 0] if self._spec.num_costs == 1 else cost
