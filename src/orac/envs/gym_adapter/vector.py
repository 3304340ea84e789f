"""One batch of Gymnasium environments, stepped: what was reached and what it cost.

True last observations and costs leave here whichever way episodes are restarted, and
numbers a learner must not see are refused: the error names the environment and the step.
NumPy only; knows nothing of agents or training.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper
from jaxtyping import Bool, Float, Float32

from orac.envs.base import EnvSpec
from orac.envs.gym_adapter.autoreset import (
    Outcome,
    autoreset_mode,
    make_flattener,
    reset_seeds,
    restart,
    unpack,
)
from orac.envs.gym_adapter.cost_reader import CostMeter, checked_costs
from orac.envs.gym_adapter.env_state import is_plain
from orac.envs.gym_adapter.infos import Readings, read_metric
from orac.envs.gym_adapter.numeric import is_storable
from orac.envs.gym_adapter.sources import Source
from orac.envs.gym_adapter.spaces import checked_action_space
from orac.envs.metrics import MetricSpec
from orac.envs.registry import metrics_of

FINITE_FIX = {
    "observation": "Bound it, or end the episode before it diverges.",
    "reward": "Guard its formula against division by zero and overflow.",
    "action": "The policy has diverged: lower its learning rate, or scale the rewards.",
}


class HostStep(NamedTuple):
    """One step of a batch of environments. Arrays may share memory: do not write."""

    observation: Float32[np.ndarray, "batch observation"]
    """What to act on next: the new episode's first one where an episode ended."""
    next_observation: Float32[np.ndarray, "batch observation"]
    """What the action led to, also at an episode's end."""
    reward: Float32[np.ndarray, " batch"]
    cost: Float32[np.ndarray, "batch constraint"]
    terminated: Bool[np.ndarray, " batch"]
    truncated: Bool[np.ndarray, " batch"]
    valid: Bool[np.ndarray, " batch"]
    """False where this call only restarted an episode: there is no step to store."""
    metrics: dict[str, Float32[np.ndarray, " batch"]]
    """The environment's own numbers by name; NaN where none was reported."""


class HostEnv:
    """A batch of Gymnasium environments; `make_host` makes one."""

    def __init__(self, source: Source) -> None:
        self.vector, self.num_envs = source.vector, source.vector.num_envs
        self.steps = 0
        """Calls of `step` so far; error messages name it."""
        name = source.facts.name
        self.kind = source.facts.kind
        """What a factory made: a class of the user's own, else its registered name."""
        self._mode = autoreset_mode(self.vector, name)
        self._box = checked_action_space(self.vector.single_action_space, name)
        self._low, self._high = self._box.low.reshape(-1), self._box.high.reshape(-1)
        self._action_shape = (self.num_envs, *self._box.shape)
        self._flattener = make_flattener(self.vector, name)
        self._meter = CostMeter(
            self.vector, self._mode, source.cost_keys, source.cost_fn
        )
        self._viewed = source.viewed
        self._resetting = np.zeros(self.num_envs, bool)
        self._elapsed = np.zeros(self.num_envs, int)
        declared = {metric.name: metric for metric in metrics_of(name)}
        self.spec = EnvSpec(
            name=name,
            observation_size=self._flattener.size,
            action_low=tuple(float(bound) for bound in self._low),
            action_high=tuple(float(bound) for bound in self._high),
            episode_length=source.facts.episode_length,
            metrics=tuple(
                declared.get(key, MetricSpec(key)) for key in source.facts.metric_names
            ),
        )

    def reset(self, seed: int) -> Float32[np.ndarray, "batch observation"]:
        """Start new episodes; the same seed starts the same ones."""
        raw, _ = self.vector.reset(seed=reset_seeds(self.vector, seed))
        self._resetting = np.zeros(self.num_envs, bool)
        self._elapsed = np.zeros(self.num_envs, int)
        self._meter.remember(raw)
        return self._finite(self._flattener.batch(raw), "observation")

    def step(self, action: Float[np.ndarray, "batch action"]) -> HostStep:
        """Take one action, in the environment's own box, in every environment."""
        outcome, readings, valid = self.advance(action)
        spec, mode = self.spec, self._mode
        cost = checked_costs(readings, valid, spec.num_costs, spec.name, self.steps)
        metrics = {key: read_metric(outcome, key, mode) for key in spec.metric_names}
        raw, observation, reached = restart(self.vector, mode, outcome, self._flattener)
        self._meter.remember(raw)
        if mode is AutoresetMode.NEXT_STEP:
            self._resetting = outcome.ended
        if not self._viewed:
            self._check_length(valid, outcome.ended)
        if observation is not reached:
            self._finite(observation, "observation")
        return HostStep(
            observation=observation,
            next_observation=self._finite(reached, "observation"),
            reward=self._rewards(outcome.reward, valid),
            cost=cost,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            valid=valid,
            metrics=metrics,
        )

    def advance(
        self, action: Float[np.ndarray, "batch action"]
    ) -> tuple[Outcome, Readings, Bool[np.ndarray, " batch"]]:
        """Step without looking at what came back: the outcome, its costs, which count."""
        taken = self._own_action(action)
        # A copy, because an environment may write into the action that it is given.
        outcome = unpack(self.vector.step(taken.copy()), self.spec.name)
        self.steps += 1
        valid = ~self._resetting
        return outcome, self._meter.read(outcome, taken, valid), valid

    def flatten(self, observation: Any) -> Float32[np.ndarray, " observation"]:
        """One observation as a single environment returns it, a dict say, as a vector."""
        if self._viewed:
            return self.vector.call("flatten", observation)[0]  # pyright: ignore[reportAttributeAccessIssue]
        return self._flattener.one(observation)

    def close(self) -> None:
        self.vector.close()

    def get_state(self) -> dict[str, Any] | None:
        """Everything `set_state` needs as plain data, or None where it cannot be had."""
        if self._viewed:
            inside: Any = list(self.vector.get_attr("snapshot"))  # pyright: ignore[reportAttributeAccessIssue]
            known = all(state is not None for state in inside)
        else:
            # A wrapper may hold state of its own, and none of Gymnasium's tells.
            known = not isinstance(self.vector, VectorWrapper) and all(
                hasattr(self.vector, name) for name in ("get_state", "set_state")
            )
            inside = self.vector.get_state() if known else None  # pyright: ignore[reportAttributeAccessIssue]
        state = {
            "steps": self.steps,
            "resetting": self._resetting,
            "elapsed": self._elapsed,
            "before": self._meter.before,
            "environments": inside,
        }
        return state if known and is_plain(state) else None

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was called; no `reset` is needed."""
        self.steps = int(state["steps"])
        self._resetting = np.asarray(state["resetting"], bool)
        self._elapsed = np.asarray(state["elapsed"], int)
        self._meter.before = state["before"]
        if self._viewed:
            self.vector.set_attr("snapshot", state["environments"])  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self.vector.set_state(state["environments"])  # pyright: ignore[reportAttributeAccessIssue]

    def _own_action(self, action: np.ndarray) -> np.ndarray:
        expected = (self.num_envs, self._low.size)
        if action.shape != expected:
            raise ValueError(
                f"{self.spec.name} takes actions of shape {expected} (environments, "
                f"actions), got {action.shape}."
            )
        self._finite(action, "action")
        # Numerics: scaling to the box may leave it by a rounding error.
        inside = np.minimum(np.maximum(action, self._low), self._high)
        return inside.astype(self._box.dtype, copy=False).reshape(self._action_shape)

    def _rewards(self, reward: Any, valid: np.ndarray) -> np.ndarray:
        array = np.asarray(reward)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "buif":
            raise ValueError(
                f"{self.spec.name} returned rewards of shape {array.shape} and type "
                f"{array.dtype}, but one number per environment was expected."
            )
        rewards = self._finite(array, "reward").astype(np.float32)
        return rewards if self._mode is not AutoresetMode.NEXT_STEP else rewards * valid

    def _finite(self, array: np.ndarray, what: str) -> np.ndarray:
        if is_storable(array):
            return array
        rows = array.reshape(self.num_envs, -1)
        row = next(row for row in range(len(rows)) if not is_storable(rows[row]))
        raise ValueError(
            f"{self.spec.name}: the {what} of environment {row} is not finite at step "
            f"{self.steps:,}. {FINITE_FIX[what]}"
        )

    def _check_length(self, valid: np.ndarray, ended: np.ndarray) -> None:
        """A vector environment ends its own episodes; one that does not is an error."""
        self._elapsed = (self._elapsed + 1) * valid
        limit = self.spec.episode_length
        if limit is not None and np.count_nonzero(self._elapsed > limit):
            row = int(np.argmax(self._elapsed))
            raise ValueError(
                f"{self.spec.name}: environment {row} has gone on for {limit + 1} steps, "
                f"but episode_length is {limit}. Correct episode_length, or truncate "
                "episodes in the vector environment."
            )
        self._elapsed[ended] = 0
