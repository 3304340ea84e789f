"""GuardedMaze: a constrained maze whose shortest path is usually cheap and rarely expensive.

This is the maze of Greenberg et al. 2022 (arXiv 2205.05138) as a constrained problem.
Crossing the red cell costs 2, or 20 if a guard is present. Whether there is a guard is
drawn once per episode, and the agent never observes it. The long path avoids the red cell
but crosses a pink cell, which costs 4. `reset` and `step` are pure functions and work for
one maze or for a batch with leading axes. `transition` is a deterministic step that takes
its noise as an argument.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.validation import (
    check_choice,
    check_count,
    check_range,
    freeze,
    is_number,
)
from orac.envs.base import EnvSpec, MetricLabel, MetricSpec, Step
from orac.envs.maze.drawing import draw_state
from orac.envs.maze.maps import (
    BONUS,
    GOAL,
    PINK,
    RED,
    WALL,
    Box,
    Cell,
    MazeMap,
    cell_of,
    load_map,
)

COST_MODES = ("episode", "entry")
RESET_OPTIONS = ("xy", "guard")


class MazeState(NamedTuple):
    """State of an episode. The agent observes only `xy`."""

    xy: Float[Array, "*batch 2"]
    guard: Bool[Array, "*batch"]
    time: Int[Array, "*batch"]
    touched_red: Bool[Array, "*batch"]
    touched_pink: Bool[Array, "*batch"]
    got_bonus: Bool[Array, "*batch"]


@dataclass(frozen=True)
class GuardedMaze:
    """The environment and its parameters."""

    guard_probability: float = 0.15
    """Probability that an episode has a guard."""
    map: str = "8x8"
    """`"8x8"`, `"16x16"`, or a map drawn as text (see `orac.envs.maze.maps`)."""
    pink_cell: Cell | None = None
    """Position of the pink cell. None leaves it where the map has it: (6, 4) on 8x8."""
    red_cost: float = 2.0
    """Cost of the red cell without a guard."""
    guard_cost: float = 20.0
    """Cost of the red cell with a guard."""
    pink_cost: float = 4.0
    cost_mode: str = "episode"
    """`"episode"` charges each colour at most once per episode. `"entry"` charges it each
    time the agent enters it."""
    action_noise: float = 0.2
    """Standard deviation, in cells, of the noise on each coordinate of a move."""
    step_scale: float = 1.0
    """Distance, in cells, that a full action moves the agent along one axis."""
    goal_reward: float | None = None
    """Reward at the goal. None means twice the longer side of the map: 16 on 8x8."""
    step_reward: float = -1.0
    """Reward of each of the first `num_paid_steps` steps. Later steps give 0."""
    num_paid_steps: int | None = None
    """Number of steps that give `step_reward`. None means four times the longer side of
    the map: 32 on 8x8."""
    bonus: float = 1.0
    """Reward of the bonus cell, which is given once per episode."""
    time_limit: int | None = None
    """Maximum number of steps of an episode. None uses the map's limit: 100 on 8x8."""
    start_box: Box | None = None
    """Rectangle in which episodes start, as (x_low, y_low, x_high, y_high). None uses the
    map's rectangle: (0.6, 0.6, 3.6, 3.6) on 8x8."""
    normalize_obs: bool = False
    """Scale observations so that both coordinates are in [-1, 1] inside the walls."""

    METRICS: ClassVar = (
        MetricSpec(
            "path",
            "path to the goal",
            low=-1,
            high=1,
            labels=(
                MetricLabel(1, "long", "took the long path"),
                MetricLabel(-1, "guarded", "took the guarded cell"),
                MetricLabel(0, "none", "never arrived", better="lower"),
            ),
        ),
        MetricSpec("moved", "moved in the last step", low=0, high=1),
        MetricSpec("guard_present", "guard present", low=0, high=1, hidden=True),
    )

    def __post_init__(self) -> None:
        for name, number_type, length in (
            ("pink_cell", int, 2),
            ("start_box", float, 4),
        ):
            if (value := getattr(self, name)) is not None:
                numbers = to_tuple(name, value, number_type, length)
                object.__setattr__(self, name, numbers)
        freeze(self)
        check_maze(self)
        load_map(self.map, self.start_box, self.pink_cell)

    @property
    def layout(self) -> MazeMap:
        """The parsed map."""
        return load_map(self.map, self.start_box, self.pink_cell)

    @property
    def episode_length(self) -> int:
        """Number of steps after which an episode is truncated."""
        return self.layout.time_limit if self.time_limit is None else self.time_limit

    @property
    def reward_at_goal(self) -> float:
        """Reward of the step that ends in the goal."""
        given = self.goal_reward
        return 2.0 * self.layout.side if given is None else given

    @property
    def paid_steps(self) -> int:
        """Number of steps at the start of an episode that give `step_reward`."""
        given = self.num_paid_steps
        return 4 * self.layout.side if given is None else given

    @property
    def spec(self) -> EnvSpec:
        """Sizes, bounds and names of this maze."""
        low, high = self._observe(np.array([[0.0, 0.0], self._upper_corner])).tolist()
        return EnvSpec(
            name="GuardedMaze",
            observation_size=2,
            action_low=(-1.0, -1.0),
            action_high=(1.0, 1.0),
            episode_length=self.episode_length,
            cost_bounds=(self._cost_bound(),),
            metrics=self.METRICS,
            observation_low=tuple(low),
            observation_high=tuple(high),
        )

    def reset(
        self, key: Key[Array, ""], shape: tuple[int, ...] = ()
    ) -> tuple[MazeState, Float[Array, "*batch 2"]]:
        """Start episodes at points drawn uniformly from the start box.

        Whether an episode has a guard is also drawn here. `shape` is the batch shape.
        """
        x_low, y_low, x_high, y_high = self.layout.start_box
        low, high = jnp.array([x_low, y_low]), jnp.array([x_high, y_high])
        uniform = jax.random.uniform(key, (3, *shape))
        xy = low + (high - low) * jnp.moveaxis(uniform[:2], 0, -1)
        no = jnp.zeros(shape, bool)
        state = MazeState(
            xy=xy,
            guard=uniform[2] < self.guard_probability,
            time=jnp.zeros(shape, jnp.int32),
            touched_red=no,
            touched_pink=no,
            got_bonus=no,
        )
        return state, self._observe(xy)

    def reset_many(
        self, key: Key[Array, ""], num_envs: int
    ) -> tuple[MazeState, Float[Array, "batch 2"]]:
        """Start `num_envs` episodes from one key."""
        return self.reset(key, (num_envs,))

    def step(
        self, key: Key[Array, ""], state: MazeState, action: Float[Array, "*batch 2"]
    ) -> tuple[MazeState, Step]:
        """Take one step with fresh noise, in one maze or in each maze of a batch."""
        noise = jax.random.normal(key, (2, *action.shape[:-1]))
        return self.transition(state, action, jnp.moveaxis(noise, 0, -1))

    step_many = step

    def transition(
        self,
        state: MazeState,
        action: Float[Array, "*batch 2"],
        noise: Float[Array, "*batch 2"],
    ) -> tuple[MazeState, Step]:
        """Take one step with the given standard normal noise.

        A move is rejected as a whole if its end or its midpoint lies in a wall. Costs are
        charged for the cells of both points, but the bonus and the goal count only if the
        move ends there.
        """
        before = self._flags_at(state.xy)
        upper = jnp.array(self._upper_corner)
        move = self.step_scale * jnp.clip(action, -1.0, 1.0) + self.action_noise * noise
        proposed = jnp.clip(state.xy + move, 0.0, upper)
        end = self._flags_at(proposed)
        middle = self._flags_at((state.xy + proposed) / 2)
        moved = ~_has(end | middle, WALL)
        xy = jnp.where(moved[..., None], proposed, state.xy)
        end = jnp.where(moved, end, before)
        crossed = end | jnp.where(moved, middle, 0)
        red, pink = _has(crossed, RED), _has(crossed, PINK)
        on_bonus, at_goal = _has(end, BONUS), _has(end, GOAL)

        touched_red, touched_pink = state.touched_red, state.touched_pink
        if self.cost_mode == "entry":
            touched_red, touched_pink = _has(before, RED), _has(before, PINK)
        red_cost = jnp.where(state.guard, self.guard_cost, self.red_cost)
        cost = jnp.where(red & ~touched_red, red_cost, 0.0)
        cost += jnp.where(pink & ~touched_pink, self.pink_cost, 0.0)

        is_paid = state.time < self.paid_steps
        reward = jnp.where(is_paid, self.step_reward, 0.0)
        reward = jnp.where(at_goal, self.reward_at_goal, reward)
        reward += jnp.where(on_bonus & ~state.got_bonus, self.bonus, 0.0)

        after = MazeState(
            xy=xy,
            guard=state.guard,
            time=state.time + 1,
            touched_red=state.touched_red | red,
            touched_pink=state.touched_pink | pink,
            got_bonus=state.got_bonus | on_bonus,
        )
        path = jnp.where(after.touched_red, -1, at_goal.astype(jnp.int32))
        return after, Step(
            observation=self._observe(xy),
            reward=reward,
            cost=cost[..., None],
            terminated=at_goal,
            truncated=~at_goal & (after.time >= self.episode_length),
            metrics={"path": path, "moved": moved, "guard_present": state.guard},
        )

    def place(
        self, state: MazeState, options: Mapping[str, Any]
    ) -> tuple[MazeState, Float[Array, "*batch 2"]]:
        """Move the agent to `options["xy"]` and set the guard to `options["guard"]`.

        Returns the new state and its observation. Both options may be left out. Each is one
        value for the whole batch or one value per maze. This method is meant for
        demonstrations and tests, and cannot be compiled.
        """
        for name in options:
            check_choice("A reset option", name, RESET_OPTIONS)
        if options.get("xy") is not None:
            xy = _read_position(options["xy"], state.xy.shape, self.layout)
            state = state._replace(xy=jnp.asarray(np.broadcast_to(xy, state.xy.shape)))
        if options.get("guard") is not None:
            guard, shape = np.asarray(options["guard"]), state.guard.shape
            if guard.dtype != bool or guard.shape not in ((), shape):
                raise ValueError(
                    "guard must be True or False, or one of them for each maze, got "
                    f"{options['guard']!r}."
                )
            state = state._replace(guard=jnp.asarray(np.broadcast_to(guard, shape)))
        return state, self._observe(state.xy)

    def render(self, state: MazeState) -> np.ndarray:
        """Return an image of one maze with shape (height, width, 3)."""
        return draw_state(state, self.layout)

    def position_of(
        self, observation: Float[Array | np.ndarray, "*batch 2"]
    ) -> Float[Array | np.ndarray, "*batch 2"]:
        """Return the position at which an observation was made."""
        if not self.normalize_obs:
            return observation
        upper = jnp.array(self._upper_corner)
        return observation * (upper - 1) / 2 + upper / 2

    def _observe(self, xy: Any) -> Any:
        """Return the observation at a position, as the same kind of array."""
        if not self.normalize_obs:
            return xy
        upper = np.array(self._upper_corner, np.float32)
        return (xy - upper / 2) / ((upper - 1) / 2)

    @property
    def _upper_corner(self) -> tuple[float, float]:
        """Centre of the upper right cell of the map, which bounds all positions."""
        return self.layout.width - 1.0, self.layout.height - 1.0

    def _flags_at(self, xy: Float[Array, "*batch 2"]) -> Int[Array, "*batch"]:
        """Return the flags of the cell in which each point lies."""
        table = self.layout.flags()
        x, y = jnp.floor(xy[..., 0] + 0.5), jnp.floor(xy[..., 1] + 0.5)
        index = (x * table.shape[1] + y).astype(jnp.int32)
        return jnp.asarray(table.reshape(-1))[index]

    def _cost_bound(self) -> float:
        """Return an upper bound on an episode's cost. It is loose in the mode "entry"."""
        red = max(self.red_cost, self.guard_cost) if self.layout.cells("R") else 0.0
        pink = self.pink_cost if self.layout.cells("P") else 0.0
        charges = 1 if self.cost_mode == "episode" else self.episode_length
        return charges * (red + pink)


def check_maze(maze: Any) -> None:
    """Raise a `ValueError` for a parameter of the wrong type or out of range."""
    check_range("guard_probability", maze.guard_probability, 0.0, 1.0)
    for name in ("red_cost", "guard_cost", "pink_cost"):
        advice = "Express a gain as a reward, not as a negative cost."
        check_range(name, getattr(maze, name), 0.0, advice=advice)
    advice = "It is a standard deviation, in cells."
    check_range("action_noise", maze.action_noise, 0.0, advice=advice)
    advice = "The agent could not move at 0, and could jump over a wall above 1.99."
    check_range("step_scale", maze.step_scale, 0.0, 1.99, open_low=True, advice=advice)
    for name in ("step_reward", "bonus"):
        check_range(name, getattr(maze, name))
    if maze.goal_reward is not None:
        check_range("goal_reward", maze.goal_reward)
    for name, low in (("num_paid_steps", 0), ("time_limit", 1)):
        if (value := getattr(maze, name)) is not None:
            check_count(name, value, low, "None uses the default of the map.")
    if not isinstance(maze.map, str):
        raise ValueError(
            f"map must be the name of a map or a map drawn as text, got {maze.map!r}."
        )
    check_choice("cost_mode", maze.cost_mode, COST_MODES)


def to_tuple(
    name: str, value: Any, number_type: type, length: int
) -> tuple[int | float, ...]:
    """Return `length` numbers as a tuple of `number_type`, or raise a `ValueError`."""
    numbers = list(value) if isinstance(value, Iterable) else []
    if len(numbers) != length or not all(map(is_number, numbers)):
        raise ValueError(f"{name} must be {length} numbers, got {value!r}.")
    if any(number != number_type(number) for number in numbers):
        raise ValueError(f"{name} must be {length} whole numbers, got {value!r}.")
    return tuple(number_type(number) for number in numbers)


def _read_position(value: Any, shape: tuple[int, ...], layout: MazeMap) -> np.ndarray:
    """Return one position, or one per maze, after checking that each is in a free cell."""
    xy = np.asarray(value)
    if xy.dtype.kind not in "iuf":
        raise ValueError(f"xy must be two numbers, x and y, got {value!r}.")
    xy = xy.astype(np.float32)
    if xy.shape not in ((2,), shape):
        raise ValueError(
            f"xy must be one point (x, y), or one for each maze, got shape {xy.shape}."
        )
    flags = layout.flags()
    for x, y in xy.reshape(-1, 2):
        where = "outside the map"
        if 0 <= x <= layout.width - 1 and 0 <= y <= layout.height - 1:
            cell = cell_of(float(x)), cell_of(float(y))
            if not flags[cell] & (WALL | GOAL):
                continue
            where = f"in the {'wall' if flags[cell] & WALL else 'goal'} cell {cell}"
        raise ValueError(
            f"xy must lie in a free cell, got ({x:g}, {y:g}), which is {where}. The "
            f"map is {layout.width} by {layout.height} cells centred on whole numbers."
        )
    return xy


def _has(flags: Int[Array, "*batch"], flag: int) -> Bool[Array, "*batch"]:
    return (flags & flag) != 0
