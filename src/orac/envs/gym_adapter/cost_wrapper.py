"""One Gymnasium environment as a learner sees it: flat observations, and its cost.

The view is what Gymnasium's vector environments are built from. It passes actions
through, flattens observations, ends episodes at the time limit, and leaves in `info` the
cost and the asked-for metrics alone: Gymnasium batches infos by the type of the first
value it meets, and a cost of 0.7 beside another environment's integer 0 would become 0.
"""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from orac.envs.gym_adapter.costs import CostFn, CostKeys, Reading, read_info, read_value
from orac.envs.gym_adapter.env_state import restore, snapshot
from orac.envs.gym_adapter.metadata import Facts, read_facts
from orac.envs.gym_adapter.numeric import as_number
from orac.envs.gym_adapter.spaces import checked_action_space, make_flatten

COST = "orac/cost"
"""The only info key that a view reports besides metrics; its value is a `Reading`."""

_ABSENT = object()


class LearnerView(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper, so that rendering and attributes are those of the environment inside."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        cost_keys: CostKeys,
        cost_fn: CostFn | None = None,
        metric_names: tuple[str, ...] = (),
        episode_length: int | None = None,
    ) -> None:
        super().__init__(env)
        facts = read_facts(env)
        self.facts: Facts = facts._replace(
            episode_length=_shorter(facts.episode_length, episode_length),
            metric_names=metric_names or facts.metric_names,
        )
        # Gymnasium only declares the two; an environment may lack them.
        checked_action_space(getattr(env, "action_space", None), facts.name)
        space = getattr(env, "observation_space", None)
        size, self._flatten = make_flatten(space, facts.name)
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self._cost_keys, self._cost_fn = cost_keys, cost_fn
        self._limit = self.facts.episode_length or np.inf
        self._elapsed: int | None = None
        """Steps of the running episode; None before the first."""
        self._observation: Any = None

    def flatten(self, observation: Any) -> np.ndarray:
        """One observation of the environment inside, as the learner sees it."""
        return self._flatten(observation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        # A masked reset arrives with emptied options; environments expect None.
        result = _reset(self.env, self.facts.name, seed, options or None)
        self._elapsed = 0
        self._remember(result[0])
        return self._flatten(result[0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        # Vector environments hand out an action without axes as a bare scalar.
        action = np.asarray(action)
        taken = action if self._cost_fn is None else action.copy()
        result = self.env.step(action)
        if len(result) == 5:
            observation, reward, terminated, truncated, info = result
            cost = _ABSENT
        else:
            observation, reward, cost, terminated, truncated, info = _six(
                result, self.facts.name
            )
        self._elapsed = (self._elapsed or 0) + 1
        reported: dict[str, Any] = {COST: self._read(cost, taken, observation, info)}
        for name in self.facts.metric_names:
            if name in info:
                reported[name] = _metric(info[name], name, self.facts.name)
        return (
            self._flatten(observation),
            _reward(reward, self.facts.name),
            bool(terminated),
            bool(truncated) or self._elapsed >= self._limit,
            reported,
        )

    def _read(self, cost: Any, action: Any, observation: Any, info: Any) -> Reading:
        """The user's function first, then a six-value step's own cost, then the info."""
        if self._cost_fn is not None:
            value = self._cost_fn(self._observation, action, observation, info)
            self._remember(observation)
            return read_value(value)
        return read_info(info, self._cost_keys) if cost is _ABSENT else read_value(cost)

    def _remember(self, observation: Any) -> None:
        """A copy, because an environment may write its next observation into this one."""
        if self._cost_fn is not None:
            self._observation = deepcopy(observation)

    @property
    def snapshot(self) -> dict[str, Any] | None:
        """The environment's state as plain data; None where it cannot be had."""
        inside = None if self._elapsed is None else snapshot(self.env)
        if inside is None:
            return None
        return {
            "environment": inside,
            "elapsed": self._elapsed,
            "observation": self._observation,
        }

    @snapshot.setter
    def snapshot(self, state: dict[str, Any]) -> None:
        restore(self.env, state["environment"])
        self._elapsed = int(state["elapsed"])
        self._observation = state["observation"]


def _shorter(known: int | None, asked: int | None) -> int | None:
    return min((length for length in (known, asked) if length), default=None)


def _reset(
    env: gymnasium.Env[Any, Any], name: str, seed: int | None, options: Any
) -> tuple[Any, Any]:
    try:
        result = env.reset(seed=seed, options=options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ValueError(
            f"{name}: {error}. Gymnasium environments are reset with "
            "reset(*, seed=None, options=None)."
        ) from error
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ValueError(
            f"{name}.reset returned a {type(result).__name__}, but Gymnasium's reset "
            "returns (observation, info)."
        )
    return result


def _six(result: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if len(result) == 6:
        return result
    raise ValueError(
        f"{name}.step returned {len(result)} values, but 5 (observation, reward, "
        "terminated, truncated, info) or 6 (with cost after reward) were expected. "
        "Environments of the old gym package need a wrapper that splits done in two."
    )


def _reward(reward: Any, name: str) -> float:
    number = as_number(reward)
    if number is None:
        raise ValueError(
            f"{name} returned the reward {reward!r}, which is not a number. Return "
            "float(reward)."
        )
    return number


def _metric(value: Any, key: str, name: str) -> float:
    number = as_number(value)
    if number is None:
        raise ValueError(
            f"{name} reported {value!r} under info[{key!r}], which is not a number. Leave "
            f"{key!r} out of metric_names."
        )
    return number
