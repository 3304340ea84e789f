"""Step a batch of Gymnasium environments.

Gymnasium's vector environments restart ended episodes in one of three modes. SAME_STEP
returns the first observation of the next episode and moves the last observation and info to
`final_obs` and `final_info`. Under NEXT_STEP, the call after the end of an episode only
resets the environment and takes no step. DISABLED leaves the reset to the caller. In all
three modes, `HostEnv` returns the true last observations and costs. It raises a
`ValueError` if a number is not finite.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorEnv,
    VectorWrapper,
)
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import iterate
from jaxtyping import Bool, Float, Float32

from orac.envs.base import EnvSpec, MetricSpec
from orac.envs.gym_adapter.costs import (
    NOT_REPORTED,
    CostKeys,
    InvalidCost,
    Readings,
    checked_costs,
    info_rows,
    is_storable,
    keep_fractions,
    read_costs,
    read_metric,
    read_value,
    unpack_step,
)
from orac.envs.gym_adapter.metadata import (
    EnvMetadata,
    check_numbers,
    checked_action_space,
    make_flatten,
)
from orac.envs.gym_adapter.wrapper import is_plain
from orac.envs.registry import metrics_of
from orac.envs.user_code import CostFn, call_cost_fn

AnyVector = VectorEnv[Any, Any, Any]
Observations = Float32[np.ndarray, "batch observation"]

FINITE_FIX = {
    "observation": "Bound it, or end the episode before it diverges.",
    "reward": "Guard its formula against division by zero and overflow.",
    "action": "The policy has diverged: lower its learning rate, or scale the rewards.",
}


class VectorSource(NamedTuple):
    """A vector environment, its metadata, and where its costs are found."""

    vector: AnyVector
    metadata: EnvMetadata
    cost_keys: CostKeys
    cost_fn: CostFn | None
    """None if there is no cost function, or if `CostWrapper` calls it."""
    is_wrapped: bool
    """Whether the vector environment consists of `CostWrapper`s."""


class VectorStep(NamedTuple):
    """The values that a vector environment's `step` returned."""

    observation: Any
    reward: Any
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]
    cost: Any
    """The third of six step values; None when there were five."""
    ended: np.ndarray
    restarted: np.ndarray
    """Environments whose next episode has already started (SAME_STEP)."""


class HostStep(NamedTuple):
    """One step of a batch of environments. Arrays may share memory, so do not write to them."""

    observation: Observations
    """Observations to act on next: the first of a new episode where one ended."""
    next_observation: Observations
    """Observations that the actions led to, also at the end of an episode."""
    reward: Float32[np.ndarray, " batch"]
    cost: Float32[np.ndarray, "batch constraint"]
    terminated: Bool[np.ndarray, " batch"]
    truncated: Bool[np.ndarray, " batch"]
    valid: Bool[np.ndarray, " batch"]
    """False where this call only restarted an episode: there is no step to store."""
    metrics: dict[str, Float32[np.ndarray, " batch"]]
    """Metrics of the environments by name; NaN where a metric was not reported."""


class HostEnv:
    """A batch of Gymnasium environments; call `make_host` to make one."""

    def __init__(self, source: VectorSource) -> None:
        self.vector, metadata = source.vector, source.metadata
        self.num_envs, name = self.vector.num_envs, metadata.name
        self.steps = 0
        """Number of calls of `step`, for error messages."""
        self.class_name = metadata.class_name
        """Class of the user's environment, or its registered name."""
        self.description = dict(metadata.description or {})
        """Description of the environment that another one is compared with."""
        self._mode = _autoreset_mode(self.vector, name)
        self._box = checked_action_space(self.vector.single_action_space, name)
        self._low, self._high = self._box.low.reshape(-1), self._box.high.reshape(-1)
        self._action_shape = (self.num_envs, *self._box.shape)
        space = self.vector.single_observation_space
        size, self._flatten_one = make_flatten(space, name)
        is_box = isinstance(space, Box)
        self._box_shape = (self.num_envs, *space.shape) if is_box else None
        """Shape of a batch of observations if they are boxes, else None."""
        self._cost_keys = source.cost_keys
        self._cost_fn = source.cost_fn
        self._before: list[Any] = []
        """Observations on which the next actions are chosen; only set for a `cost_fn`."""
        self._is_wrapped = source.is_wrapped
        if not source.is_wrapped:
            keep_fractions(self.vector.unwrapped)
        self.seeds_episodes = isinstance(self.vector, SyncVectorEnv | AsyncVectorEnv)
        """Whether every episode, and not only the first, can start from a given seed."""
        self._resetting = np.zeros(self.num_envs, bool)
        """Environments that the next call of `step` only resets (NEXT_STEP)."""
        self._elapsed = np.zeros(self.num_envs, int)
        known = {metric.name: metric for metric in metrics_of(name)}
        self.spec = EnvSpec(
            name=name,
            observation_size=size,
            action_low=tuple(float(bound) for bound in self._low),
            action_high=tuple(float(bound) for bound in self._high),
            episode_length=metadata.episode_length,
            metrics=tuple(known.get(x, MetricSpec(x)) for x in metadata.metric_names),
            observation_structure=metadata.observation_structure,
        )

    def reset(self, seed: int | Sequence[int]) -> Observations:
        """Start new episodes; the same seed starts the same episodes.

        If `seeds_episodes`, `seed` may also be a sequence with one seed per environment.
        """
        # Choice: every sub-environment gets an unrelated seed. Gymnasium would give
        # sub-environment i the seed `seed + i`, and runs with the seeds 0 and 1 would then
        # share all but one of their environments' seeds. A vector environment of another
        # class gets a list of seeds only if its attribute `takes_seeds` is True.
        bare = self.vector.unwrapped
        takes_seeds = getattr(bare, "takes_seeds", False) is True
        takes_seeds |= isinstance(bare, SyncVectorEnv | AsyncVectorEnv)
        given: Any = seed
        if takes_seeds:
            several = isinstance(seed, Sequence)
            many = seed if several else derive_seeds(seed, self.num_envs)
            given = list(many)
        with self._explained("reset"):
            raw, _ = self.vector.reset(seed=given)
        self._resetting = np.zeros(self.num_envs, bool)
        self._elapsed = np.zeros(self.num_envs, int)
        self._remember(raw)
        return self._finite(self._flatten_batch(raw), "observation")

    def step(
        self,
        action: Float[np.ndarray, "batch action"],
        seeds: Sequence[int] | None = None,
    ) -> HostStep:
        """Step every environment with its action, which is within the bounds of `spec`.

        If `seeds_episodes`, `seeds` may have one seed per environment. An environment whose
        episode ends with this step then starts the next episode from its seed.
        """
        step, readings, valid = self.advance(action)
        spec, restarted = self.spec, step.restarted
        cost = checked_costs(readings, valid, spec.num_costs, spec.name, self.steps)
        metrics = {k: read_metric(step.infos, k, restarted) for k in spec.metric_names}
        raw, observation, reached = self._restart(step, seeds)
        self._remember(raw)
        if self._mode is AutoresetMode.NEXT_STEP and seeds is None:
            self._resetting = step.ended
        if not self._is_wrapped:
            self._check_length(valid, step.ended)
        if observation is not reached:
            self._finite(observation, "observation")
        self._finite(reached, "observation")
        rewards = np.asarray(step.reward)
        if rewards.shape != (self.num_envs,) or rewards.dtype.kind not in "buif":
            raise ValueError(
                f"{spec.name} returned rewards of shape {rewards.shape} and type "
                f"{rewards.dtype}, but one number per environment was expected."
            )
        rewards = self._finite(rewards, "reward").astype(np.float32)
        return HostStep(
            observation=observation,
            next_observation=reached,
            reward=rewards * valid,
            cost=cost,
            terminated=step.terminated,
            truncated=step.truncated,
            valid=valid,
            metrics=metrics,
        )

    def advance(
        self, action: Float[np.ndarray, "batch action"]
    ) -> tuple[VectorStep, Readings, Bool[np.ndarray, " batch"]]:
        """Step without checking the results.

        Returns the step, its unchecked costs, and which rows are valid: a row is not valid
        if the call only reset this environment.
        """
        taken = self._to_env_action(action)
        # The action is copied, because an environment may write into its argument.
        with self._explained("step"):
            result = self.vector.step(taken.copy())
        values = unpack_step(result, self.spec.name)
        observation, reward, cost, *ends, infos = values
        terminated, truncated = (np.array(end, bool) for end in ends)
        ended = terminated | truncated
        is_same_step = self._mode is AutoresetMode.SAME_STEP
        restarted = ended if is_same_step else np.zeros_like(ended)
        cost, ends = None if cost is NOT_REPORTED else cost, (terminated, truncated)
        step = VectorStep(observation, reward, *ends, infos, cost, ended, restarted)
        self.steps += 1
        valid = ~self._resetting
        if self._cost_fn is None:
            readings = read_costs(step.cost, infos, restarted, self._cost_keys)
            return step, readings, valid
        reached = self._split(step.observation)
        if np.count_nonzero(restarted):
            for row, final in _final_observations(step).items():
                reached[row] = final
        rows = info_rows(infos, restarted)
        steps = zip(self._before, taken, reached, rows, valid, strict=True)
        readings = [
            read_value(call_cost_fn(self._cost_fn, *values))
            if is_step
            else InvalidCost("a restart")
            for *values, is_step in steps
        ]
        return step, readings, valid

    @contextmanager
    def _explained(self, call: str) -> Iterator[None]:
        """Raise a clear error if an environment calls `sys.exit` or its process ends."""
        place = f"{self.spec.name}.{call}, after {self.steps:,} steps"
        try:
            yield
        except (EOFError, ConnectionError) as error:
            vector: Any = self.vector.unwrapped
            if not isinstance(vector, AsyncVectorEnv):
                raise  # It is an error of the environment itself.
            # Without this, closing would wait for an answer that never comes.
            vector._state = AsyncState.DEFAULT
            vector.close(terminate=True)
            raise ValueError(
                f"The process of an environment ended in {place}: it was killed, ran "
                "out of memory or called exit. Train with vectorization='sync' to see why."
            ) from error
        except SystemExit as error:
            raise ValueError(
                f"The environment called sys.exit in {place}. Raise an error there, or "
                "end the episode."
            ) from error

    def flatten(self, observation: Any) -> Float32[np.ndarray, " observation"]:
        """Flatten one observation, for example a dict, of a single environment."""
        if self._is_wrapped:
            return self.vector.call("flatten", observation)[0]  # pyright: ignore[reportAttributeAccessIssue]
        return self._flatten_one(observation)

    def close(self) -> None:
        self.vector.close()

    def get_state(self) -> dict[str, Any] | None:
        """Return the state for `set_state` as plain data; None if it is not available."""
        vector: Any = self.vector
        if self._is_wrapped:
            inside = list(vector.get_attr("env_state"))
            known = all(state is not None for state in inside)
        else:
            # A vector wrapper may have further state, to which Gymnasium gives no access.
            known = hasattr(vector, "get_state") and hasattr(vector, "set_state")
            known = known and not isinstance(self.vector, VectorWrapper)
            inside = vector.get_state() if known else None
        own = {"steps": self.steps, "resetting": self._resetting}
        own |= {"elapsed": self._elapsed, "before": self._before}
        state = {**own, "environments": inside}
        return state if known and is_plain(state) else None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state that `get_state` returned; no `reset` is needed."""
        self.steps = int(state["steps"])
        self._resetting = np.asarray(state["resetting"], bool)
        self._elapsed = np.asarray(state["elapsed"], int)
        self._before, inside = state["before"], state["environments"]
        if self._is_wrapped:
            self.vector.set_attr("env_state", inside)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self.vector.set_state(inside)  # pyright: ignore[reportAttributeAccessIssue]

    def _restart(
        self, step: VectorStep, seeds: Sequence[int] | None
    ) -> tuple[Any, Observations, Observations]:
        """Restart ended episodes if `seeds` are given or the mode is DISABLED.

        Returns the observations for the next action, raw and flat, and the true next
        observations.
        """
        raw, ended = step.observation, step.ended
        flat = self._flatten_batch(raw)
        # Counting is several times faster than `any` on arrays this small.
        if not np.count_nonzero(ended):
            return raw, flat, flat
        # Under NEXT_STEP, the next call of `step` restarts the ended episodes.
        if self._mode is AutoresetMode.NEXT_STEP and seeds is None:
            return raw, flat, flat
        reached = flat
        if self._mode is AutoresetMode.SAME_STEP:
            reached = flat.copy()
            for row, observation in _final_observations(step).items():
                reached[row] = self._flatten_one(observation)
            if seeds is None:
                return raw, flat, reached
        given: Any = None if seeds is None else list(seeds)
        with self._explained("reset"):
            raw, _ = self.vector.reset(seed=given, options={"reset_mask": ended.copy()})
        first = self._flatten_batch(raw)
        return raw, np.where(ended[:, None], first, flat), reached

    def _flatten_batch(self, observation: Any) -> Observations:
        """Flatten a batch of observations: boxes all at once, other spaces row by row."""
        if self._box_shape is None:
            return np.stack([*map(self._flatten_one, self._split(observation))])
        array = np.asarray(observation)
        if array.shape != self._box_shape:
            raise ValueError(
                f"{self.spec.name} returned observations of shape {array.shape}, but its "
                f"spaces have the shape {self._box_shape}. Make the two agree."
            )
        check_numbers(array, self.spec.name)
        # This is always a copy, because a vector environment may write its next batch into
        # the same array.
        return array.astype(np.float32).reshape(self.num_envs, -1)

    def _remember(self, observation: Any) -> None:
        # This is a copy, because environments may reuse the array.
        if self._cost_fn is not None:
            self._before = deepcopy(self._split(observation))

    def _split(self, observation: Any) -> list[Any]:
        """Split a batch into observations as single environments return them."""
        return list(iterate(self.vector.observation_space, observation))

    def _to_env_action(self, action: np.ndarray) -> np.ndarray:
        """Check a batch of actions; return it in the dtype and shape of the environment."""
        expected = (self.num_envs, self._low.size)
        if action.shape != expected:
            raise ValueError(
                f"{self.spec.name} takes actions of shape {expected} (environments, "
                f"actions), got {action.shape}."
            )
        self._finite(action, "action")
        # Numerics: a rounding error may move a scaled action out of the box.
        inside = np.minimum(np.maximum(action, self._low), self._high)
        return inside.astype(self._box.dtype, copy=False).reshape(self._action_shape)

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
        """Raise an error if a vector environment does not end its episodes in time."""
        self._elapsed = (self._elapsed + 1) * valid
        limit = self.spec.episode_length
        if limit is not None and np.count_nonzero(self._elapsed > limit):
            row = int(np.argmax(self._elapsed))
            raise ValueError(
                f"{self.spec.name}: an episode of environment {row} has {limit + 1} steps, "
                f"but episode_length is {limit}. Correct episode_length, or truncate "
                "episodes in the vector environment."
            )
        self._elapsed[ended] = 0


def derive_seeds(seed: int | Sequence[int], count: int) -> list[int]:
    """Return `count` seeds made from `seed`; a longer list starts with the same seeds."""
    return [int(one) for one in np.random.SeedSequence(seed).generate_state(count)]


def _autoreset_mode(vector: AnyVector, name: str) -> AutoresetMode:
    """Return the autoreset mode that a vector environment declares.

    If it declares none, an error is raised: a guess could give wrong last observations.
    """
    mode = vector.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(getattr(mode, "value", mode))
    except ValueError:
        raise ValueError(
            f"{name} does not declare how it restarts ended episodes "
            f"(metadata['autoreset_mode'] is {mode!r}). Set it to one of "
            "gymnasium.vector.AutoresetMode, as Gymnasium's own vector environments do."
        ) from None


def _final_observations(step: VectorStep) -> dict[int, Any]:
    """Return the last observations of the episodes that ended under SAME_STEP, by row."""
    final = step.infos.get("final_obs")
    rows = [] if final is None else np.flatnonzero(step.ended)
    found = {int(row): _take_row(final, int(row)) for row in rows}
    if final is None or any(observation is None for observation in found.values()):
        raise ValueError(
            "The vector environment ended an episode without infos['final_obs'], which "
            "SAME_STEP autoreset requires. Correct its metadata['autoreset_mode'] or its "
            "infos."
        )
    return found


def _take_row(column: Any, row: int) -> Any:
    """Return one environment's observation from a batch or an array of observations."""
    if isinstance(column, dict):
        return {key: _take_row(part, row) for key, part in column.items()}
    if isinstance(column, tuple):
        return tuple(_take_row(part, row) for part in column)
    return column[row]
