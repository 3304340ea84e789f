"""Safety-Gymnasium's tasks as Gymnasium environments, single and vectorised.

A step returns Gymnasium's five values, and the cost is in `info`. This module provides the
spaces, seeds, time limits, saved states and rendering. Tasks for which the fast path was
verified to give the package's trajectories are simulated by the fast path, and all other
tasks by the package's own code.
"""

import warnings
from functools import partial
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from jaxtyping import UInt8

from orac.config.validation import check_count, check_range, frozen_value
from orac.envs.base import MetricSpec
from orac.envs.safety import import_compat
from orac.envs.safety.tasks import Task, parse_id


@runtime_checkable
class Simulation(Protocol):
    """A simulated task: `FastSimulation` or one of the package's own."""

    @property
    def model(self) -> Any: ...
    @property
    def data(self) -> Any: ...
    def seed(self, seed: int) -> None: ...
    def random_state(self) -> dict[str, Any]: ...
    def set_random_state(self, state: dict[str, Any]) -> None: ...
    def reset(self) -> Any: ...
    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]: ...
    def close(self) -> None: ...


class SafetyEnv(gymnasium.Env[Any, np.ndarray]):
    """One environment, for example `SafetyEnv("SafetyPointGoal1-v0")`.

    `info` always contains `cost` (0 or 1), `goal_met` and `goals` (goals met in this
    episode), and the components of the cost under the package's names. The unwrapped
    environment declares `step_cost_bound`, `cost_names` and `metric_names`, and, if it ends
    episodes itself, `episode_length` and `cost_bound`.

    Arguments: `timestep`, seconds per physics step (None keeps the package's);
    `episode_length`, steps per episode (None keeps the package's); `fast`, True to require
    the fast path, False to require the package's own code; `camera`, "above" or one of the
    model's cameras. The registered ids add `time_limit`, the steps after which Gymnasium's
    wrapper, or another one, ends an episode; `max_episode_steps` changes it.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    cost_names = ("cost",)
    METRICS = (MetricSpec("goals", "goals", "higher"),)
    metric_names = tuple(metric.name for metric in METRICS)
    step_cost_bound = 1.0
    """Largest cost of a step: costs are 0 or 1."""

    def __init__(
        self,
        task: str,
        *,
        timestep: float | None = None,
        episode_length: int | None = None,
        time_limit: int | None = None,
        fast: bool | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera: str = "above",
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"render_mode must be None or 'rgb_array', got {render_mode!r}."
            )
        parsed = parse_id(task)
        self.render_mode = render_mode
        self._renderer_settings = {
            "width": checked_setting("width", width),
            "height": checked_setting("height", height),
            "camera": camera,
        }
        self.episode_length = _own_episode_length(parsed, episode_length, time_limit)
        """Steps after which this object truncates episodes; None if a wrapper does it."""
        length = self.episode_length
        self.cost_bound = None if length is None else length * self.step_cost_bound
        env, self._simulation, self.is_fast = _open(
            parsed, checked_setting("timestep", timestep), checked_setting("fast", fast)
        )
        self.action_space = env.action_space
        self.observation_space = env.observation_space
        self._renderer: Any = None
        self._seeded = False
        self._ended = True
        self._cost, self._goals = 0.0, 0
        self._initial_random_state: dict[str, Any] = {}
        self._actions: list[np.ndarray] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in a new layout.

        A seed starts a new sequence of layouts; without one, the next layout of the
        present sequence is used.
        """
        super().reset(seed=seed)
        if seed is not None:
            if seed >= 2**32:
                # The package's generators take 32 bits; a longer seed is hashed.
                seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
            self._simulation.seed(seed)
        elif not self._seeded:
            self._simulation.seed(int(self.np_random.integers(2**32)))
        self._seeded = True
        return self._begin_episode(), {"cost": 0.0, "goal_met": False, "goals": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step of the task, which is ten steps of the physics."""
        action = np.array(action, np.float64)
        if action.shape != self.action_space.shape or not np.isfinite(action.sum()):
            raise ValueError(
                f"An action must be {self.action_space.shape} finite numbers, got {action}."
            )
        if self._ended:
            raise RuntimeError(
                "The episode has ended or has not started. Call reset() first."
            )
        self._actions.append(action)
        observation, reward, terminated, info = self._simulation.step(action)
        self._cost = info["cost"] = float(info["cost_sum"])
        self._goals += info.setdefault("goal_met", False)
        info["goals"] = float(self._goals)
        truncated = len(self._actions) >= (self.episode_length or np.inf)
        self._ended = terminated or truncated
        return observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Return plain data from which `set_state` continues.

        The state is the random state at the start of the episode and the actions since
        then. Repeating them gives the same bits in both simulations, and no part of the
        package's internal state can be missed.
        """
        if not self._seeded:
            raise RuntimeError("There is no state before the first reset().")
        shape = self.action_space.shape or ()
        actions = np.array(self._actions).reshape(len(self._actions), *shape)
        return {"start": self._initial_random_state, "actions": actions}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to the point where `get_state` was called by repeating its actions."""
        self._seeded = True
        self._simulation.set_random_state(state["start"])
        self._begin_episode()
        for action in state["actions"]:
            self.step(action)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an image; a red ball around the agent marks a step with a cost."""
        if self.render_mode is None:
            return None
        # Imported here because training needs no graphics.
        from orac.envs.safety.render import Renderer

        simulation = self._simulation
        if self._renderer is None:
            self._renderer = Renderer(simulation.model, **self._renderer_settings)
        # Body 0 is MuJoCo's world body and body 1 the agent.
        agent = simulation.data.xpos[1] if self._cost else None
        return self._renderer.render(simulation.model, simulation.data, agent)

    def close(self) -> None:
        """Free the graphics memory."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._simulation.close()

    def _begin_episode(self) -> Any:
        self._initial_random_state = self._simulation.random_state()
        self._actions, self._cost, self._goals, self._ended = [], 0.0, 0, False
        return self._simulation.reset()


class SafetyVectorEnv(SyncVectorEnv):
    """`num_envs` environments of one task, stepped one after another in this process.

    Other arguments are those of `SafetyEnv`; `max_episode_steps` is another name of
    `episode_length`. Ended episodes restart within the same step. Unlike
    Gymnasium's class, it declares its metadata and can save its state.
    """

    cost_names, metric_names = SafetyEnv.cost_names, SafetyEnv.metric_names
    step_cost_bound = SafetyEnv.step_cost_bound
    envs: list[Any]

    def __init__(
        self,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        num_processes: int | None = None,
        **settings: Any,
    ) -> None:
        check_count("num_envs", num_envs)
        if num_processes is not None:
            warnings.warn(
                "num_processes is ignored: environments are stepped in one process, with "
                "the same results. Remove it.",
                stacklevel=2,
            )
        settings["episode_length"] = episode_limit(
            settings.get("episode_length"),
            max_episode_steps,
            settings.pop("time_limit", None),
        )
        make = partial(SafetyEnv, **settings)
        super().__init__([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.episode_length = self.envs[0].episode_length
        self.cost_bound = self.envs[0].cost_bound

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every environment, after checking all actions."""
        actions = np.asarray(actions, np.float64)
        if actions.shape != self.action_space.shape or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be finite numbers of shape {self.action_space.shape}, got "
                f"{actions} of shape {actions.shape}."
            )
        return super().step(actions)

    def get_state(self) -> dict[str, Any]:
        """Return plain data from which `set_state` continues."""
        return {"environments": [env.get_state() for env in self.envs]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to the point where `get_state` was called."""
        states = state["environments"]
        if len(states) != self.num_envs:
            raise ValueError(
                f"The state belongs to {len(states)} environments, but there are "
                f"{self.num_envs}. Make the same number of environments."
            )
        for env, one in zip(self.envs, states, strict=True):
            env.set_state(one)


def episode_limit(
    episode_length: int | None, max_episode_steps: int | None, time_limit: int | None
) -> int | None:
    """Return the episode length that the environments of a vector environment get.

    Gymnasium always passes `max_episode_steps` from its registry, so it counts as a
    request only where it differs from the id's own `time_limit`.
    """
    length = checked_setting("episode_length", episode_length)
    limit = checked_setting("time_limit", time_limit)
    requested = checked_setting("max_episode_steps", max_episode_steps)
    if requested == limit:
        requested = None
    if None not in (length, requested) and length != requested:
        raise ValueError(
            f"episode_length is {length}, but max_episode_steps is {requested}. Both are "
            "the number of steps per episode: leave one of them out."
        )
    return length or requested or limit


def _own_episode_length(
    task: Task, episode_length: int | None, time_limit: int | None
) -> int | None:
    """Return after how many steps to truncate; None if the id's time limit does it."""
    length = checked_setting("episode_length", episode_length)
    limit = checked_setting("time_limit", time_limit)
    if limit is None:
        return length or task.episode_length
    if length is not None and length > limit:
        # This environment cannot see whether the outer limit was raised as well.
        raise ValueError(
            f"episode_length is {length}, but episodes of this id end after {limit} steps "
            f"in any case. Raise that limit instead: max_episode_steps={length} in "
            f"gymnasium.make, episode_length={length} in orac (env.episode_length in a "
            "config)."
        )
    return length


def checked_setting(name: str, value: Any) -> Any:
    """Return an argument of `SafetyEnv` as a plain Python value, or None if left out."""
    value = frozen_value(value)
    if name in ("width", "height"):
        check_count(name, value, advice="Leave it out for 480 pixels.")
    elif value is None:
        return None
    elif name == "timestep":
        advice = (
            "It is in seconds: 0.006 for Point and 0.01 for Car in the paper. Leave it "
            "out for the package's own."
        )
        check_range(name, value, 0, open_low=True, advice=advice)
    elif name == "fast" and not isinstance(value, bool):
        raise ValueError(
            f"fast must be True, False or None, got {value!r}. True requires the fast "
            "path, False the package's own code, None uses the fast path if supported."
        )
    elif name != "fast":
        check_count(name, value, advice="Leave it out for the task's own limit.")
    return value


def _open(
    task: Task, timestep: float | None, fast: bool | None
) -> tuple[Any, Simulation, bool]:
    """Return the package's environment, the simulation, and whether it is the fast path."""
    import_compat.load()
    # Imported here, so that the ids exist without MuJoCo and an error says what to install.
    from orac.envs.safety import package_backend
    from orac.envs.safety.fast_path import FastSimulation, unsupported_reason

    env = package_backend.build(task)
    velocity = "velocity tasks are not supported"
    reason = velocity if task.robot else unsupported_reason(env.task)
    if fast and reason:
        raise ValueError(
            f"fast=True, but the fast path does not run {task.name}: {reason}. Leave "
            "fast out to use the package's own code."
        )
    if reason is None and fast is not False:
        return env, FastSimulation(env.task, timestep), True
    if task.robot:
        return env, package_backend.VelocitySimulation(env, timestep), False
    return env, package_backend.NavigationSimulation(env, timestep), False
