"""The package's own environments, stepped by the package: what the fast path falls back on.

Two things are done for the package: its worlds are compiled without the photographs of a
sky, and the agent's camera sees through our renderer, because its own viewer does not fit
gymnasium 1. Both are set on one environment object; the package stays as it is.
"""

import warnings
from typing import Any

import numpy as np

from orac.envs.safety import import_compat as package
from orac.envs.safety.render import Renderer
from orac.envs.safety.scene import PaintedWorld
from orac.envs.safety.tasks import Task


def build(task: Task) -> Any:
    """The package's environment object for an id."""
    builder = package.load()
    # The package seeds itself from NumPy's global generator, which is not ours to move.
    state = np.random.get_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if task.robot is not None:
            env = package.velocity_class(task.robot, task.release)()
        else:
            agent = package.repaired_name(str(task.agent))
            config = {"agent_name": agent, **task.settings}
            env = builder.Builder(task_id=task.name, config=config)
    np.random.set_state(state)
    return env


class StockNavigation:
    """A navigation task (Goal, Button, Push, ...) as the package runs it."""

    def __init__(self, env: Any, timestep: float | None) -> None:
        self.env, self.task = env, env.task
        self.task.world = PaintedWorld(self.task, timestep)
        self._eye: Renderer | None = None
        # Whoever uses this world counts the steps.
        self.task.num_steps = np.inf
        if self.task.observe_vision:
            self.task._obs_vision = self._see

    @property
    def model(self) -> Any:
        return self.task.model

    @property
    def data(self) -> Any:
        return self.task.data

    def seed(self, seed: int) -> None:
        self.env.set_seed(seed)

    def random_state(self) -> dict[str, Any]:
        return self.task.random_generator.random_generator.get_state(legacy=False)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.task.random_generator.random_generator.set_state(state)

    def reset(self) -> Any:
        observation, _ = self.env.reset()
        return observation

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, _, terminated, _, info = self.env.step(action)
        return observation, float(reward), terminated, info

    def close(self) -> None:
        if self._eye is not None:
            self._eye.close()

    def _see(self) -> np.ndarray:
        if self._eye is None:
            height, width = self.task.vision_env_conf.vision_size
            self._eye = Renderer(self.model, width, height, "vision")
        return self._eye.picture(self.model, self.data)


class StockVelocity:
    """A velocity task: one of Gymnasium's robots with a speed limit."""

    def __init__(self, env: Any, timestep: float | None) -> None:
        if timestep is not None:
            raise ValueError(
                f"timestep={timestep} cannot be set for a velocity task, whose robot "
                "brings its own. Leave it out."
            )
        self.env = env

    @property
    def model(self) -> Any:
        return self.env.model

    @property
    def data(self) -> Any:
        return self.env.data

    def seed(self, seed: int) -> None:
        self.env.np_random = np.random.default_rng(seed)

    def random_state(self) -> dict[str, Any]:
        return dict(self.env.np_random.bit_generator.state)

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.env.np_random.bit_generator.state = state

    def reset(self) -> Any:
        observation, _ = self.env.reset()
        return observation

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, cost, terminated, _, info = self.env.step(action)
        return observation, float(reward), bool(terminated), {**info, "cost_sum": cost}

    def close(self) -> None:
        self.env.close()
