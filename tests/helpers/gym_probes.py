"""Small Gymnasium environments with known observations, rewards and costs."""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

BAIT = 99.0
"""Cost in the info of `reset`, which must not be read, because it belongs to no step."""


class Counter(gymnasium.Env):
    """Observes (episode, time); the reward is time and the cost 10 * episode + time."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 3, truncates: bool = False):
        self.length, self.truncates = length, truncates
        self.episode, self.time = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # A seed restarts the count, so that the same seed starts the same episodes.
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
    """Observes random numbers, and can save its state, except that of its random generator."""

    def observe(self):
        return np.array([self.episode, self.np_random.normal()], np.float32)

    def get_state(self):
        if self.episode < 0:
            raise RuntimeError("There is no state before the first reset.")
        return {"episode": self.episode, "time": np.int64(self.time)}

    def set_state(self, state):
        self.episode, self.time = int(state["episode"]), int(state["time"])


class JaxProbe(Counter):
    """Reports whether its process has imported JAX."""

    def report(self, action):
        return {"cost": 0.0, "has_jax": float("jax" in sys.modules)}


class SixValues(Counter):
    """Returns six values from `step`, with the cost after the reward."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info.pop("cost"), terminated, truncated, info


class Nested(Counter):
    """Has a Dict observation, whose keys Gymnasium sorts, and reports no cost."""

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
        info = {"action": action.copy()}
        action[:] = 0
        return info


class Reusing(Counter):
    """Returns the same array at every step and writes into it."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.buffer = np.zeros(2, np.float32)

    def observe(self):
        self.buffer[:] = self.episode, self.time
        return self.buffer


class Matrix(Counter):
    """Has matrices as actions, with different bounds, and reports costs as an array."""

    action_space = Box(
        np.array([[0, -2], [-1, -1]], np.float64),
        np.array([[1, 2], [1, 3]], np.float64),
        dtype=np.float64,
    )

    def report(self, action):
        return {"cost": action.sum(axis=1)}


class Single(Counter):
    """Has scalar actions. The cost is the action, which must not be negative."""

    action_space = Box(-2.0, 2.0, (), np.float32)

    def report(self, action):
        return {"cost": float(action) if action.shape == () else np.nan}


class Odd(Counter):
    """A counter with attributes, step values or reset values replaced."""

    def __init__(
        self, *, report=None, result=None, reset_result=None, **attributes: Any
    ):
        super().__init__(length=10**6)
        self._report, self._result, self._reset_result = report, result, reset_result
        for name, value in attributes.items():
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
    """A hand-written vector environment of counters that end together. Infos have no masks."""

    def __init__(self, num_envs: int = 2, mode=AutoresetMode.SAME_STEP, **kwargs: Any):
        self.num_envs, self.time, self.episode = num_envs, 0, 0
        self.length = kwargs.get("max_episode_steps", 3)
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
    """Returns the costs after the rewards, and `final_info` as a list."""

    def step(self, actions):
        observation, reward, terminated, truncated, infos = super().step(actions)
        cost = infos.pop("cost")
        if terminated.all():
            infos["final_info"] = [{"speed": row + 0.5} for row in range(self.num_envs)]
        return observation, reward, cost, terminated, truncated, infos


def speed_cost(obs, action, next_obs, info):
    """Return a cost that depends on both observations of a step."""
    return abs(next_obs[1] - obs[1] + 100 * next_obs[0])


def zeros(host):
    """Return zero actions for every environment of a `HostEnv`."""
    return np.zeros((host.num_envs, host.spec.action_size), np.float32)


def walk(host, steps):
    """Take zero actions and return the resulting observations."""
    return [host.step(zeros(host)).next_observation.tolist() for _ in range(steps)]


def transitions(host, calls):
    """Return (observation, reached, reward, costs, terminated, truncated) per environment.

    Closes the host.
    """
    observation = host.reset(seed=0)
    seen = [[] for _ in range(host.num_envs)]
    for _ in range(calls):
        step = host.step(zeros(host))
        for row in np.flatnonzero(step.valid):
            seen[row].append(
                (
                    tuple(observation[row].tolist()),
                    tuple(step.next_observation[row].tolist()),
                    float(step.reward[row]),
                    tuple(step.cost[row].tolist()),
                    bool(step.terminated[row]),
                    bool(step.truncated[row]),
                )
            )
        observation = step.observation
    host.close()
    return seen


def expected_transitions(length, steps, truncates=False):
    """Return the first `steps` transitions of a `Counter`, computed independently."""
    expected = []
    for step in range(steps):
        episode, time = step // length, step % length
        done = time + 1 == length
        ends = (False, done) if truncates else (done, False)
        cost = 10.0 * episode + time + 1
        reached = (episode, time + 1)
        expected.append(((episode, time), reached, time + 1.0, (cost,), *ends))
    return expected
