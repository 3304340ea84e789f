"""Several environments of one task stepped side by side, on every core there is.

The first chunk of environments is stepped here, the others by worker processes meanwhile.
Processes, because half of a step is Python: threads wait for each other's turn, and are
slower than one of them where gremlins interrupt the physics. See benchmarks/safety_gym.py.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool

from orac.envs.safety.env_batch import Block, Chunk
from orac.envs.safety.settings import CHECKS, checked, episode_limit, whole
from orac.envs.safety.worker import Worker


class SafetyVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` environments of one task; keywords are those of `SafetyEnv`.

    Ended episodes restart in the same step: their last observations and infos are in
    `final_obs` and `final_info`, as Gymnasium has it, and one seed for all gives
    environment i the seed `seed + i`. `episode_length` and `max_episode_steps` are the same;
    `num_processes` counts this process too.
    """

    takes_seeds = True
    """A learner may give every environment a seed of its own."""

    def __init__(
        self,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        num_processes: int | None = None,
        **settings: Any,
    ) -> None:
        num_envs = whole("num_envs", num_envs, "", "It counts the environments.")
        if settings.pop("render_mode", None) is not None:
            raise ValueError(
                "render_mode cannot be set for environments in several processes. Make a "
                "single one with gymnasium.make to see pictures."
            )
        for name in CHECKS.keys() & settings.keys():
            settings[name] = checked(name, settings[name])
        settings["episode_length"] = episode_limit(
            settings.get("episode_length"),
            checked("max_episode_steps", max_episode_steps),
            settings.pop("time_limit", None),
        )
        # Waking a process takes as long as a step: one environment does not pay for it.
        usual = min(_cores(), num_envs // 2) or 1
        processes = min(num_envs, checked("num_processes", num_processes) or usual)
        sizes = [len(part) for part in np.array_split(np.arange(num_envs), processes)]
        self._ends = np.cumsum(sizes)[:-1].tolist()
        self._workers: list[Worker] = []
        try:
            for size in sizes[1:]:
                self._workers.append(Worker(size, settings))
            self._local = Chunk(sizes[0], settings)
            for worker in self._workers:
                worker.opened()
        except BaseException:
            for worker in self._workers:
                worker.close()
            raise
        self._declare(num_envs)

    def _declare(self, num_envs: int) -> None:
        first = self._local.envs[0]
        self.num_envs = num_envs
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.episode_length, self.cost_bound = first.episode_length, first.cost_bound
        self.cost_names, self.metric_names = first.cost_names, first.metric_names
        self.step_cost_bound = first.step_cost_bound
        self.single_action_space = first.action_space
        self.single_observation_space = first.observation_space
        self.action_space = batch_space(first.action_space, num_envs)
        self.observation_space = batch_space(first.observation_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in every environment."""
        seeds = self._seeds(seed)
        for worker, part in zip(self._workers, self._split(seeds)[1:], strict=True):
            worker.start_reset(part)
        block = self._gather(self._local.reset, self._split(seeds)[0])
        return block.observation, _fresh_infos(np.ones(self.num_envs, np.bool_))

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step in every environment."""
        actions = np.asarray(actions, np.float64)
        if actions.shape != self.action_space.shape or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be finite numbers of shape {self.action_space.shape}, got "
                f"{actions} of shape {actions.shape}."
            )
        parts = self._split(actions)
        for worker, part in zip(self._workers, parts[1:], strict=True):
            worker.start_step(part)
        block = self._gather(self._local.step, parts[0])
        terminated, truncated = block.flag("terminated"), block.flag("truncated")
        infos = _infos(block, terminated | truncated)
        return block.observation, block.number("reward"), terminated, truncated, infos

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to go on from here, as plain data."""
        states = self._local.get_state()
        for worker in self._workers:
            states += worker.get_state()
        return {"environments": states}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to where `get_state` was called, on any number of processes."""
        states = state["environments"]
        if len(states) != self.num_envs:
            raise ValueError(
                f"The state is that of {len(states)} environments, but there are "
                f"{self.num_envs}. Make as many as there were."
            )
        parts = self._split(states)
        self._local.set_state(parts[0])
        for worker, part in zip(self._workers, parts[1:], strict=True):
            worker.set_state(part)

    def close_extras(self, **kwargs: Any) -> None:
        """End the worker processes."""
        for chunk in (self._local, *self._workers):
            chunk.close()

    def __del__(self) -> None:
        # Half-made objects and a closing interpreter lack what closing needs.
        with contextlib.suppress(Exception):
            self.close()

    def _split(self, values: Any) -> list[Any]:
        starts, ends = [0, *self._ends], [*self._ends, self.num_envs]
        return [values[start:end] for start, end in zip(starts, ends, strict=True)]

    def _gather(self, local: Callable[[Any], np.ndarray], part: Any) -> Block:
        """Every environment's row, in memory that the next step leaves alone.

        Every answer is read, whatever fails: one left over would be taken for the next.
        """
        rows, failures = [], []
        for answer in (partial(local, part), *(one.rows for one in self._workers)):
            try:
                rows.append(answer())
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return Block(np.concatenate(rows))

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"Expected {self.num_envs} seeds, got {len(seed)}.")
        return [one if one is None else int(one) for one in seed]


def _cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fresh_infos(present: Bool[np.ndarray, " env"]) -> dict[str, Any]:
    """The infos of a reset, for the environments that had one."""
    zero = np.zeros(len(present))
    return _named(zero, zero.astype(np.bool_), zero.copy(), present)


def _infos(block: Block, ended: Bool[np.ndarray, " env"]) -> dict[str, Any]:
    """Gymnasium's form: what ended is under `final_*`, with a reset's infos in its place."""
    cost, met, goals = (
        block.number("cost"),
        block.flag("goal_met"),
        block.number("goals"),
    )
    everywhere = np.ones(len(ended), np.bool_)
    if not ended.any():
        return _named(cost, met, goals, everywhere)
    infos = _named(cost * ~ended, met & ~ended, goals * ~ended, everywhere)
    last = np.full(len(ended), None, object)
    for index in np.flatnonzero(ended):
        last[index] = block.reached[index]
    final = _named(cost * ended, met & ended, goals * ended, ended)
    return {
        **infos,
        **{"final_obs": last, "_final_obs": ended.copy()},
        **{"final_info": final, "_final_info": ended.copy()},
    }


def _named(
    cost: np.ndarray, goal_met: np.ndarray, goals: np.ndarray, present: np.ndarray
) -> dict[str, Any]:
    infos: dict[str, Any] = {"cost": cost, "goal_met": goal_met, "goals": goals}
    return {**infos, **{f"_{name}": present.copy() for name in infos}}
