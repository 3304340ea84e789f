"""Safety-Gymnasium's tasks as Gymnasium environments: five values a step, cost in the info.

The adapter owns what is Gymnasium's: spaces, seeds, the time limit, pictures. The world
behind it is the fast one where that is known to give the package's own trajectories,
and the package itself elsewhere.
"""

from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import UInt8

from orac.envs.metrics import MetricSpec
from orac.envs.safety import import_compat as package
from orac.envs.safety.settings import checked, pixels
from orac.envs.safety.tasks import Task, parse


@runtime_checkable
class World(Protocol):
    """What the adapter needs of a simulated world, fast or not."""

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
    """One task, `SafetyEnv("SafetyPointGoal1-v0")`.

    `info` always holds `cost` (0 or 1), `goal_met` and `goals` (met in this episode), and
    the package's parts of the cost by its names. Learners may read `step_cost_bound` (the
    most a step can cost), `cost_names` and `metric_names` from the unwrapped environment,
    and, where it ends episodes itself, `episode_length` and `cost_bound`.

    Arguments: `timestep`, seconds of a physics step (the package's own when None);
    `episode_length`, steps (the package's own when None); `fast`, True to insist on the
    fast path, False to insist on the package's own step; `camera`, one of the world's
    cameras or "above". The ids add `time_limit`, the steps after which Gymnasium's own
    wrapper, or whoever else counts them, ends an episode: `max_episode_steps` changes that.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    cost_names = ("cost",)
    METRICS = (MetricSpec("goals", "goals", "higher"),)
    metric_names = tuple(metric.name for metric in METRICS)
    step_cost_bound = 1.0
    """Costs are 0 or 1."""

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
        described = parse(task)
        self.render_mode = render_mode
        self._picture = {
            "width": pixels("width", width),
            "height": pixels("height", height),
            "camera": camera,
        }
        self.episode_length = _length(described, episode_length, time_limit)
        """Steps after which it ends episodes itself; None where others do."""
        length = self.episode_length
        self.cost_bound = None if length is None else length * self.step_cost_bound
        env, self._world, self.is_fast = _open(
            described, checked("timestep", timestep), checked("fast", fast)
        )
        self.action_space = env.action_space
        self.observation_space = env.observation_space
        self._renderer: Any = None
        self._seeded = False
        self._ended = True
        self._cost, self._goals = 0.0, 0
        self._start: dict[str, Any] = {}
        self._actions: list[np.ndarray] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in a new layout: the seed's first, or the one after the last."""
        super().reset(seed=seed)
        if seed is not None:
            self._world.seed(_fold(seed))
        elif not self._seeded:
            self._world.seed(int(self.np_random.integers(2**32)))
        self._seeded = True
        return self._begin(), {"cost": 0.0, "goal_met": False, "goals": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the task, which is ten of the physics."""
        action = self._checked(action)
        if self._ended:
            raise RuntimeError(
                "The episode has ended or not begun. Call reset() first."
            )
        self._actions.append(action)
        observation, reward, terminated, info = self._world.step(action)
        self._cost = info["cost"] = float(info["cost_sum"])
        self._goals += info.setdefault("goal_met", False)
        info["goals"] = float(self._goals)
        truncated = len(self._actions) >= (self.episode_length or np.inf)
        self._ended = terminated or truncated
        return observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to go on from here, as plain data.

        An episode is its layout's random numbers and the actions since: both worlds give
        the same bits for them, and no part of the package's state can be forgotten.
        """
        if not self._seeded:
            raise RuntimeError("There is no state before the first reset().")
        shape = self.action_space.shape or ()
        actions = np.array(self._actions).reshape(len(self._actions), *shape)
        return {"start": self._start, "actions": actions}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to where `get_state` was called, by taking the same actions again."""
        self._seeded = True
        self._world.set_random_state(state["start"])
        self._begin()
        for action in state["actions"]:
            self.step(action)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture of the world; a red ball marks a step that cost."""
        if self.render_mode is None:
            return None
        from orac.envs.safety.render import Renderer

        if self._renderer is None:
            self._renderer = Renderer(self._world.model, **self._picture)
        # The first body after the world is the agent's.
        agent = self._world.data.xpos[1] if self._cost else None
        return self._renderer.picture(self._world.model, self._world.data, agent)

    def close(self) -> None:
        """Give the graphics memory back."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._world.close()

    def _begin(self) -> Any:
        self._start = self._world.random_state()
        self._actions, self._cost, self._goals, self._ended = [], 0.0, 0, False
        return self._world.reset()

    def _checked(self, action: Any) -> np.ndarray:
        action = np.array(action, np.float64)
        if action.shape != self.action_space.shape or not np.isfinite(action.sum()):
            raise ValueError(
                f"An action must be {self.action_space.shape} finite numbers, got {action}."
            )
        return action


def _length(
    task: Task, episode_length: int | None, time_limit: int | None
) -> int | None:
    """The steps to end episodes after; None to leave that to the limit of an id."""
    asked = checked("episode_length", episode_length)
    limit = checked("time_limit", time_limit)
    if limit is None:
        return asked or task.episode_length
    if asked is not None and asked > limit:
        # Whether the limit was lifted as well cannot be seen from within.
        raise ValueError(
            f"episode_length is {asked}, but episodes of this id are ended after {limit} "
            f"steps from outside. Set that limit instead: max_episode_steps={asked} in "
            f"gymnasium.make, episode_length={asked} in orac (env.episode_length in a "
            "config)."
        )
    return asked


def _open(
    task: Task, timestep: float | None, fast: bool | None
) -> tuple[Any, World, bool]:
    """The package's environment, the world to step, and whether that is the fast one."""
    # Imported here: the ids exist, and say what to install, where MuJoCo does not.
    package.load()
    from orac.envs.safety.fast import FastWorld
    from orac.envs.safety.fast_path_support import unknown
    from orac.envs.safety.package_backend import StockNavigation, StockVelocity, build

    env = build(task)
    reason = "it has no navigation task" if task.robot else unknown(env.task)
    if fast and reason:
        raise ValueError(
            f"fast=True, but the fast path does not run {task.name}: {reason}. Leave "
            "fast out to step it with the package's own code."
        )
    if reason is None and fast is not False:
        return env, FastWorld(env.task, timestep), True
    stock = StockVelocity if task.robot else StockNavigation
    return env, stock(env, timestep), False


def _fold(seed: int) -> int:
    """The package's generators take 32 bits; a longer seed is hashed into them."""
    if seed < 2**32:
        return seed
    return int(np.random.SeedSequence(seed).generate_state(1)[0])
