"""Waypoint followers for GuardedMaze: the short way past the guard, and the long one.

They need no training, so tests, demonstrations and evaluations have two policies whose
costs are known by hand. A follower aims at the centre of the next cell of its path, or of
the one after when, noise apart, nothing is in the way of the step there.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from orac.envs.maze.drawing import Trajectory
from orac.envs.maze.env import GuardedMaze, place, position_of, reset, step
from orac.envs.maze.maps import Cell

Controller = Callable[[Float[Array, "*batch 2"]], Float[Array, "*batch 2"]]
"""Observations to actions."""


def short_path(params: GuardedMaze) -> Controller:
    """Follow the shortest path that keeps out of the pink cells: past the guard."""
    return _make_follower(params, avoid="P")


def long_path(params: GuardedMaze) -> Controller:
    """Follow the shortest path that keeps out of the red cells."""
    return _make_follower(params, avoid="R")


def record_episode(
    key: Key[Array, ""],
    params: GuardedMaze,
    controller: Controller,
    label: str,
    options: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Play one episode and keep it for a picture; `options` place agent and guard."""
    reset_key, step_key = jax.random.split(key)
    state, observation = reset(reset_key, params)
    if options:
        state, observation = place(state, options, params)
    advance = jax.jit(partial(step, params=params))
    positions, rewards, costs, is_over = [np.asarray(state.xy)], [], [], False
    while not is_over:
        noise_key = jax.random.fold_in(step_key, len(rewards))
        state, result = advance(noise_key, state, controller(observation))
        observation, is_over = result.observation, bool(result.done)
        positions.append(np.asarray(state.xy))
        rewards.append(float(result.reward))
        costs.append(float(result.cost[0]))
    guard = bool(state.guard)
    return Trajectory(
        label, np.array(positions), np.array(rewards), np.array(costs), guard
    )


def _make_follower(params: GuardedMaze, avoid: str) -> Controller:
    blocked = _blocked(params, avoid)
    table = _next_cells(params.layout.cells("G"), blocked)
    table_after = table[table[..., 0], table[..., 1]]
    next_cell, cell_after = jnp.asarray(table), jnp.asarray(table_after)

    def follow(observation: Float[Array, "*batch 2"]) -> Float[Array, "*batch 2"]:
        xy = position_of(observation, params)
        x, y = _cell(xy)
        near, far = (
            jnp.clip((centre[x, y] - xy) / params.step_scale, -1.0, 1.0)
            for centre in (next_cell, cell_after)
        )
        step = params.step_scale * far
        barred = jnp.asarray(blocked)
        in_the_way = barred[_cell(xy + step)] | barred[_cell(xy + step / 2)]
        return jnp.where(in_the_way[..., None], near, far)

    return follow


def _blocked(params: GuardedMaze, avoid: str) -> np.ndarray:
    layout = params.layout
    blocked = np.zeros((layout.width, layout.height), bool)
    for cell in layout.cells("#") + layout.cells(avoid):
        blocked[cell] = True
    return blocked


def _next_cells(goals: tuple[Cell, ...], blocked: np.ndarray) -> np.ndarray:
    """For each cell the next one on its path to the goal; a cell without one stays put."""
    towards = np.moveaxis(np.indices(blocked.shape), 0, -1)
    # A diagonal move is one step but a longer way, so of equal paths the straighter wins.
    cheapest = {goal: (0, 0.0) for goal in goals}
    queue = [(0, 0.0, goal) for goal in goals]
    while queue:
        steps, length, cell = heapq.heappop(queue)
        for other in _open_neighbours(cell, blocked):
            price = steps + 1, length + np.hypot(*np.subtract(cell, other))
            if price < cheapest.get(other, (np.inf, 0.0)):
                cheapest[other] = price
                towards[other] = cell
                heapq.heappush(queue, (*price, other))
    return towards


def _open_neighbours(cell: Cell, blocked: np.ndarray) -> list[Cell]:
    """Cells one step away, diagonals included where neither corner is blocked."""
    x, y = cell
    return [
        (x + dx, y + dy)
        for dx, dy in itertools.product((-1, 0, 1), repeat=2)
        if (dx or dy)
        and not (blocked[x + dx, y + dy] or blocked[x + dx, y] or blocked[x, y + dy])
    ]


def _cell(xy: Float[Array, "*batch 2"]) -> tuple[Array, Array]:
    cell = jnp.floor(xy + 0.5).astype(jnp.int32)
    return cell[..., 0], cell[..., 1]
