"""Safety-Gymnasium's tasks as Gymnasium environments, single and vectorised.

A step returns Gymnasium's five values, and the cost is in `info`. This module provides the
spaces, seeds, time limits, saved states and rendering. In this folder, "the package" means
Safety-Gymnasium. The module `fast_path` simulates some tasks faster than the package's own
code, which simulates all other tasks. A test compares the trajectories of both.
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
    """Interface of a simulation of one task.

    `FastSimulation`, `NavigationSimulation` and `VelocitySimulation` implement it.
    """

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

    `info` always contains `cost` (0 or 1), `goal_met` and `goals` (the number of goals met
    in this episode). After a step it also contains the package's entries, such as the
    components of the cost. The unwrapped environment declares `step_cost_bound`,
    `cost_names` and `metric_names`, and, if it ends episodes itself, `episode_length` and
    `cost_bound`.

    Args:
        task: One of the package's ids.
        timestep: Seconds per physics step. None uses the package's value.
        episode_length: Steps per episode. None uses the task's own number.
        time_limit: Steps after which a wrapper, such as Gymnasium's `TimeLimit`, ends an
            episode. The registered ids set it. None means that no wrapper does.
        fast: True requires the fast path, False the package's own code. None uses the
            fast path if it supports the task.
        render_mode: None or "rgb_array".
        width: Width of an image in pixels.
        height: Height of an image in pixels.
        camera: "above", or the name of one of the model's cameras.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    cost_names = ("cost",)
    METRICS = (MetricSpec("goals", "goals", "higher"),)
    metric_names = tuple(metric.name for metric in METRICS)
    step_cost_bound = 1.0
    """Largest cost of a step. The cost of a step is 0 or 1."""

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

        A seed starts a new sequence of layouts. Without a seed, the next layout of the
        current sequence is used.
        """
        super().reset(seed=seed)
        if seed is not None:
            if seed >= 2**32:
                # The package's generators accept 32 bits, so a longer seed is hashed.
                seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
            self._simulation.seed(seed)
        elif not self._seeded:
            self._simulation.seed(int(self.np_random.integers(2**32)))
        self._seeded = True
        return self._begin_episode(), {"cost": 0.0, "goal_met": False, "goals": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step, which is ten physics steps in all tasks but the velocity tasks."""
        action = np.array(action, np.float64)
        if action.shape != self.action_space.shape or not np.isfinite(action.sum()):
            raise ValueError(
                "An action must be an array of finite numbers of shape "
                f"{self.action_space.shape}, got "
                f"{action}."
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
        """Return the state as plain data, from which `set_state` can continue.

        It consists of the random state at the start of the episode and the actions since
        then. On the same machine, repeating these actions restores the whole state bit for
        bit, including the parts that are internal to the package, in every kind of
        simulation.
        """
        if not self._seeded:
            raise RuntimeError("There is no state before the first reset().")
        shape = self.action_space.shape or ()
        actions = np.array(self._actions).reshape(len(self._actions), *shape)
        return {"start": self._initial_random_state, "actions": actions}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from `get_state` by repeating the actions of the episode."""
        self._seeded = True
        self._simulation.set_random_state(state["start"])
        self._begin_episode()
        for action in state["actions"]:
            self.step(action)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an image, or None without a render mode.

        A red ball around the agent marks a step with a cost.
        """
        if self.render_mode is None:
            return None
        # This is imported here, because training needs no graphics.
        from orac.envs.safety.render import Renderer

        simulation = self._simulation
        if self._renderer is None:
            self._renderer = Renderer(simulation.model, **self._renderer_settings)
        # Body 0 is MuJoCo's world body, and body 1 is the agent.
        agent = simulation.data.xpos[1] if self._cost else None
        return self._renderer.render(simulation.model, simulation.data, agent)

    def close(self) -> None:
        """Free the graphics memory and close the simulation."""
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

    The `settings` are arguments of `SafetyEnv`. `max_episode_steps` means the same as
    `episode_length`, unless it is the id's own limit. `num_processes` is ignored. Ended
    episodes restart within the same step. Unlike Gymnasium's
    `SyncVectorEnv`, this class declares its metadata and can save its state.
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
                "actions must be an array of finite numbers of shape "
                f"{self.action_space.shape}, got "
                f"{actions} of shape {actions.shape}."
            )
        return super().step(actions)

    def get_state(self) -> dict[str, Any]:
        """Return the states of all environments as plain data for `set_state`."""
        return {"environments": [env.get_state() for env in self.envs]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the states that `get_state` returned."""
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
    """Return the episode length for the environments of a vector environment.

    Gymnasium always passes `max_episode_steps` from its registry, so this argument counts
    as a request only if it differs from the `time_limit` of the id.
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
    """Return after how many steps `SafetyEnv` truncates episodes; None if a wrapper does."""
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
    """Check an argument and return it as a plain Python value, or None if it was left out."""
    value = frozen_value(value)
    if name in ("width", "height"):
        check_count(name, value, advice="Leave it out for 480 pixels.")
    elif value is None:
        return None
    elif name == "timestep":
        advice = (
            "It is in seconds: 0.006 for Point and 0.01 for Car in the paper. Leave it "
            "out to use the package's value."
        )
        check_range(name, value, 0, open_low=True, advice=advice)
    elif name == "fast" and not isinstance(value, bool):
        raise ValueError(
            f"fast must be True, False or None, got {value!r}. True requires the fast "
            "path, False requires the package's own code, and None uses the fast path if it "
            "supports the task."
        )
    elif name != "fast":
        check_count(name, value, advice="Leave it out for the task's own limit.")
    return value


def _open(
    task: Task, timestep: float | None, fast: bool | None
) -> tuple[Any, Simulation, bool]:
    """Return the package's environment, the simulation, and whether it is the fast path."""
    import_compat.load()
    # These are imported here, so that ids can be listed without MuJoCo.
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
