"""GuardedMaze: a short way past a guard who may be there, a long way that always costs.

The maze of Greenberg et al. 2022 (arXiv 2205.05138) as a constrained problem: crossing the
red cell costs 2, or 20 when a guard is present, which is drawn once an episode and never
seen; the long way crosses a pink cell that costs 4. Everything is a pure function of
(key, state, action, params), for one maze or for a batch with leading axes, and given the
noise a step is deterministic (`transition`). Knows nothing of Gymnasium or of drawing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.envs.base import EnvSpec, Step
from orac.envs.maze.checks import (
    as_tuple,
    check_options,
    check_parameters,
    read_guard,
    read_place,
)
from orac.envs.maze.maps import (
    BONUS,
    GOAL,
    PINK,
    RED,
    WALL,
    Box,
    Cell,
    MazeMap,
    load_map,
)
from orac.envs.maze.pixels import draw_state
from orac.envs.metrics import MetricLabel, MetricSpec


@dataclass(frozen=True)
class GuardedMaze:
    """The maze's parameters, which are also the environment: `GuardedMaze().step(...)`."""

    guard_probability: float = 0.15
    """Chance that an episode has a guard."""
    map: str = "8x8"
    """`"8x8"`, `"16x16"`, or a drawing of several lines (see `maze_maps`)."""
    pink_cell: Cell | None = None
    """Where the pink cell is; None leaves it where the map has it: (6, 4) on 8x8."""
    red_cost: float = 2.0
    """Cost of the red cell without a guard."""
    guard_cost: float = 20.0
    """Cost of the red cell with a guard."""
    pink_cost: float = 4.0
    cost_mode: str = "episode"
    """`"episode"` charges a colour once an episode, `"entry"` each time it is entered."""
    action_noise: float = 0.2
    """Standard deviation of the noise on each coordinate of a move."""
    step_scale: float = 1.0
    """Distance, in cells, of a full action along one axis."""
    goal_reward: float | None = None
    """None: twice the map's side, 16 on 8x8."""
    step_reward: float = -1.0
    """Reward of each of the first `num_paid_steps` steps; later ones give 0."""
    num_paid_steps: int | None = None
    """None: four times the map's side, 32 on 8x8."""
    bonus: float = 1.0
    """Reward of the bonus cell, once an episode."""
    time_limit: int | None = None
    """None: the map's own, 100 on 8x8."""
    start_box: Box | None = None
    """(x_low, y_low, x_high, y_high); None: the map's own, (0.6, 0.6, 3.6, 3.6) on 8x8."""
    normalize_obs: bool = False
    """Scale the observation so that the inside of the walls is [-1, 1]."""

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
        for name, kind, length in (("pink_cell", int, 2), ("start_box", float, 4)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_tuple(name, value, kind, length))
        check_parameters(self)
        _ = self.layout

    @property
    def layout(self) -> MazeMap:
        """The map, read and checked."""
        return load_map(self.map, self.start_box, self.pink_cell)

    @property
    def episode_length(self) -> int:
        """Steps after which an episode is truncated."""
        return self.layout.time_limit if self.time_limit is None else self.time_limit

    @property
    def spec(self) -> EnvSpec:
        """Sizes, boxes, names and bounds of this maze."""
        low, high = _observe(np.array([[0.0, 0.0], _farthest(self)]), self).tolist()
        return EnvSpec(
            name="GuardedMaze",
            observation_size=2,
            action_low=(-1.0, -1.0),
            action_high=(1.0, 1.0),
            episode_length=self.episode_length,
            cost_bounds=(_most_cost(self),),
            metrics=self.METRICS,
            observation_low=tuple(low),
            observation_high=tuple(high),
        )

    def reset(self, key: Key[Array, ""]) -> tuple["MazeState", Float[Array, "2"]]:
        """Start one episode; whether a guard is there is drawn here."""
        return reset(key, self)

    def step(
        self, key: Key[Array, ""], state: "MazeState", action: Float[Array, "2"]
    ) -> tuple["MazeState", Step]:
        """Take one step of one episode."""
        return step(key, state, action, self)

    def reset_many(
        self, key: Key[Array, ""], num_envs: int
    ) -> tuple["MazeState", Float[Array, "batch 2"]]:
        """Start many episodes from one key."""
        return reset(key, self, (num_envs,))

    def step_many(
        self, key: Key[Array, ""], state: "MazeState", action: Float[Array, "batch 2"]
    ) -> tuple["MazeState", Step]:
        """Take one step of many episodes with one key."""
        return step(key, state, action, self)

    def place(
        self, state: "MazeState", options: Mapping[str, Any]
    ) -> tuple["MazeState", Float[Array, "*batch 2"]]:
        """The state and observation after putting agent or guard where `options` say."""
        return place(state, options, self)

    def render(self, state: "MazeState") -> np.ndarray:
        """One maze as an image of height, width and RGB."""
        return draw_state(state, self.layout)


class MazeState(NamedTuple):
    """Everything about an episode; an agent sees `xy` only."""

    xy: Float[Array, "*batch 2"]
    guard: Bool[Array, "*batch"]
    time: Int[Array, "*batch"]
    touched_red: Bool[Array, "*batch"]
    touched_pink: Bool[Array, "*batch"]
    got_bonus: Bool[Array, "*batch"]


def reset(
    key: Key[Array, ""], params: GuardedMaze, shape: tuple[int, ...] = ()
) -> tuple[MazeState, Float[Array, "*batch 2"]]:
    """A start drawn uniformly from the start box, and a guard who is there or not."""
    x_low, y_low, x_high, y_high = params.layout.start_box
    low, high = jnp.array([x_low, y_low]), jnp.array([x_high, y_high])
    uniform = jax.random.uniform(key, (3, *shape))
    xy = low + (high - low) * jnp.moveaxis(uniform[:2], 0, -1)
    no = jnp.zeros(shape, bool)
    state = MazeState(
        xy=xy,
        guard=uniform[2] < params.guard_probability,
        time=jnp.zeros(shape, jnp.int32),
        touched_red=no,
        touched_pink=no,
        got_bonus=no,
    )
    return state, _observe(xy, params)


def step(
    key: Key[Array, ""],
    state: MazeState,
    action: Float[Array, "*batch 2"],
    params: GuardedMaze,
) -> tuple[MazeState, Step]:
    """One step under fresh noise."""
    noise = jax.random.normal(key, (2, *action.shape[:-1]))
    return transition(state, action, jnp.moveaxis(noise, 0, -1), params)


def transition(
    state: MazeState,
    action: Float[Array, "*batch 2"],
    noise: Float[Array, "*batch 2"],
    params: GuardedMaze,
) -> tuple[MazeState, Step]:
    """One step, given its standard normal noise."""
    before = _flags(state.xy, params)
    xy, moved, end, middle = _move(state.xy, action, noise, before, params)
    crossed = end | jnp.where(moved, middle, 0)
    red, pink = _has(crossed, RED), _has(crossed, PINK)
    on_bonus, at_goal = _has(end, BONUS), _has(end, GOAL)

    touched_red, touched_pink = state.touched_red, state.touched_pink
    if params.cost_mode == "entry":
        touched_red, touched_pink = _has(before, RED), _has(before, PINK)
    red_cost = jnp.where(state.guard, params.guard_cost, params.red_cost)
    cost = jnp.where(red & ~touched_red, red_cost, 0.0)
    cost += jnp.where(pink & ~touched_pink, params.pink_cost, 0.0)

    is_paid = state.time < num_paid_steps(params)
    reward = jnp.where(is_paid, params.step_reward, 0.0)
    reward = jnp.where(at_goal, goal_reward(params), reward)
    reward += jnp.where(on_bonus & ~state.got_bonus, params.bonus, 0.0)

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
        observation=_observe(xy, params),
        reward=reward,
        cost=cost[..., None],
        terminated=at_goal,
        truncated=~at_goal & (after.time >= params.episode_length),
        metrics={"path": path, "moved": moved, "guard_present": state.guard},
    )


def place(
    state: MazeState, options: Mapping[str, Any], params: GuardedMaze
) -> tuple[MazeState, Float[Array, "*batch 2"]]:
    """Put the agent at `options["xy"]` and say with `options["guard"]` who is there.

    For demonstrations and tests, outside of jit; one value serves a whole batch.
    """
    check_options(options)
    if options.get("xy") is not None:
        xy = read_place(options["xy"], state.xy.shape, params.layout)
        state = state._replace(xy=jnp.asarray(np.broadcast_to(xy, state.xy.shape)))
    if options.get("guard") is not None:
        guard = read_guard(options["guard"], state.guard.shape)
        state = state._replace(guard=jnp.asarray(guard))
    return state, _observe(state.xy, params)


def _move(
    xy: Float[Array, "*batch 2"],
    action: Float[Array, "*batch 2"],
    noise: Float[Array, "*batch 2"],
    before: Int[Array, "*batch"],
    params: GuardedMaze,
) -> tuple[Array, Array, Array, Array]:
    """The new place, whether it is one, and the flags of its cell and of the way's middle.

    A move is rejected as a whole when its end or its middle lies in a wall.
    """
    far = jnp.array(_farthest(params))
    move = params.step_scale * jnp.clip(action, -1.0, 1.0) + params.action_noise * noise
    proposed = jnp.clip(xy + move, 0.0, far)
    end, middle = _flags(proposed, params), _flags((xy + proposed) / 2, params)
    moved = ~_has(end | middle, WALL)
    xy = jnp.where(moved[..., None], proposed, xy)
    return xy, moved, jnp.where(moved, end, before), middle


def _flags(xy: Float[Array, "*batch 2"], params: GuardedMaze) -> Int[Array, "*batch"]:
    """What is drawn in the cell of each point."""
    table = params.layout.flags()
    x, y = jnp.floor(xy[..., 0] + 0.5), jnp.floor(xy[..., 1] + 0.5)
    index = (x * table.shape[1] + y).astype(jnp.int32)
    return jnp.asarray(table.reshape(-1))[index]


def _has(flags: Int[Array, "*batch"], flag: int) -> Bool[Array, "*batch"]:
    return (flags & flag) != 0


def position_of(
    observation: Float[Array, "*batch 2"], params: GuardedMaze
) -> Float[Array, "*batch 2"]:
    """Where an observation was made."""
    if not params.normalize_obs:
        return observation
    far = jnp.array(_farthest(params))
    return observation * (far - 1) / 2 + far / 2


def _observe(xy: Any, params: GuardedMaze) -> Any:
    """What the agent sees of a place; NumPy in, NumPy out."""
    if not params.normalize_obs:
        return xy
    far = np.array(_farthest(params), np.float32)
    return (xy - far / 2) / ((far - 1) / 2)


def _farthest(params: GuardedMaze) -> tuple[float, float]:
    """The centre of the map's upper right cell: nobody goes beyond."""
    return params.layout.width - 1.0, params.layout.height - 1.0


def goal_reward(params: GuardedMaze) -> float:
    """Reward of the step that ends in the goal."""
    given = params.goal_reward
    return 2.0 * params.layout.side if given is None else given


def num_paid_steps(params: GuardedMaze) -> int:
    """How many steps of an episode give `step_reward`."""
    given = params.num_paid_steps
    return 4 * params.layout.side if given is None else given


def _most_cost(params: GuardedMaze) -> float:
    """Most that an episode can cost; loose but sound when every entry is charged."""
    red = max(params.red_cost, params.guard_cost) if params.layout.cells("R") else 0.0
    pink = params.pink_cost if params.layout.cells("P") else 0.0
    most_charges = 1 if params.cost_mode == "episode" else params.episode_length
    return most_charges * (red + pink)
