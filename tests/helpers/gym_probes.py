"""Small Gymnasium environments whose every number is known beforehand."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

BAIT = 99.0
"""A cost in the info of `reset`; it belongs to no step and must never be read."""


class Counter(gymnasium.Env):
    """Observes (episode, time); time is the reward, and 10 * episode + time the cost."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 3, truncates: bool = False):
        self.length, self.truncates = length, truncates
        self.episode, self.time = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # A seed starts the count anew: the same seed starts the same episodes.
        self.episode, self.time = 0 if seed is not None else self.episode + 1, 0
        return self.observe(), {"cost": BAIT, "time": BAIT}

    def step(self, action):
        self.time += 1
        done = self.time >= self.length
        ends = (False, done) if self.truncates else (done, False)
        return (self.observe(), float(self.time), *ends, self.report(action))

    def observe(self) -> Any:
        return np.array([self.episode, self.time], np.float32)

    def report(self, action) -> dict[str, Any]:
        return {"cost": 10.0 * self.episode + self.time, "time": self.time}


class Stateful(Counter):
    """A random walk whose state can be had; the generator is not part of it."""

    def observe(self):
        return np.array([self.episode, self.np_random.normal()], np.float32)

    def get_state(self):
        if self.episode < 0:
            raise RuntimeError("There is no state before the first reset.")
        return {"episode": self.episode, "time": np.int64(self.time)}

    def set_state(self, state):
        self.episode, self.time = int(state["episode"]), int(state["time"])


class SixValues(Counter):
    """Steps as safety-gymnasium does, with the cost after the reward."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info.pop("cost"), terminated, truncated, info


class Nested(Counter):
    """A Dict observation, whose keys Gymnasium sorts, and no cost of its own."""

    observation_space = Dict(
        {
            "time": Box(0, 100, (1,), np.int64),
            "odd": Discrete(2),
            "at": Box(0, 9, (1, 2)),
        }
    )

    def observe(self):
        at = np.array([[self.episode, self.time]], np.float32)
        return {"time": np.array([self.time]), "odd": self.time % 2, "at": at}

    def report(self, action):
        told = {"action": action.copy()}
        action[:] = 0
        return told


class Reusing(Counter):
    """Hands out one and the same array and writes into it at every step."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.buffer = np.zeros(2, np.float32)

    def observe(self):
        self.buffer[:] = self.episode, self.time
        return self.buffer


class Matrix(Counter):
    """Actions of rank two with uneven bounds, costs as an array."""

    action_space = Box(
        np.array([[0, -2], [-1, -1]], np.float64),
        np.array([[1, 2], [1, 3]], np.float64),
        dtype=np.float64,
    )

    def report(self, action):
        return {"cost": action.sum(axis=1)}


class Single(Counter):
    """One action without any axis; the cost is the action, which must not be negative."""

    action_space = Box(-2.0, 2.0, (), np.float32)

    def report(self, action):
        return {"cost": float(action) if action.shape == () else np.nan}


class Odd(Counter):
    """A counter with anything replaced: spaces by name, step values by function."""

    def __init__(self, *, report=None, result=None, reset_result=None, **spaces: Any):
        super().__init__(length=10**6)
        self._report, self._result, self._reset_result = report, result, reset_result
        for name, value in spaces.items():
            setattr(self, name, value)

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        return result if self._reset_result is None else self._reset_result(*result)

    def step(self, action):
        result = super().step(action)
        return result if self._result is None else self._result(*result)

    def report(self, action):
        if self._report is None:
            return super().report(action)
        return self._report(self.time)


class CounterBatch(VectorEnv):
    """Counters vectorised by hand, all ending together; infos without masks."""

    def __init__(self, num_envs: int = 2, mode=AutoresetMode.SAME_STEP, **made: Any):
        self.num_envs, self.time, self.episode = num_envs, 0, 0
        self.length = made.get("max_episode_steps", 3)
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = Counter.observation_space
        self.single_action_space = Counter.action_space
        self.observation_space = Box(-np.inf, np.inf, (num_envs, 2), np.float32)
        self.action_space = Box(-1.0, 1.0, (num_envs, 1), np.float32)

    def observe(self):
        return np.full((self.num_envs, 2), (self.episode, self.time), np.float32)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.observe(), {}

    def step(self, actions):
        self.time += 1
        done = np.full(self.num_envs, self.time >= self.length)
        reward = np.full(self.num_envs, float(self.time))
        infos: dict[str, Any] = {"cost": 10.0 * self.episode + reward}
        observation = self.observe()
        if done.all():
            infos.update(final_obs=observation, final_info=dict(infos))
            self.episode, self.time = self.episode + 1, 0
            observation = self.observe()
        return observation, reward, done, np.zeros_like(done), infos

    def get_state(self):
        return {"time": self.time, "episode": self.episode}

    def set_state(self, state):
        self.time, self.episode = state["time"], state["episode"]


class SixBatch(CounterBatch):
    """A vector environment with the costs after the rewards, and infos as a list."""

    def step(self, actions):
        observation, reward, terminated, truncated, infos = super().step(actions)
        cost = infos.pop("cost")
        if terminated.all():
            infos["final_info"] = [{"speed": row + 0.5} for row in range(self.num_envs)]
        return observation, reward, cost, terminated, truncated, infos
