"""Hand-coded baseline policies for GuardedMaze and CityLearn.

A baseline maps one observation or a batch of them to actions within the environment's
bounds. It needs no training. It gets the same observations as an agent, so learned policies
can be compared with it. `BASELINES` lists the baselines of each environment by
name, and `make_baseline` makes one.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from orac.config.validation import check_choice
from orac.envs.citylearn.env import CityLearn
from orac.envs.maze.env import GuardedMaze
from orac.envs.maze.maps import Cell

Observations = Float[Array, "*batch observation"]
Actions = Float[Array, "*batch action"]
Baseline = Callable[[Observations], Actions]


def short_path(maze: GuardedMaze) -> Baseline:
    """Return a policy that takes the shortest path without pink cells.

    On the named maps, this path crosses the red cells, where the guard may be.
    """
    return _make_follower(maze, avoid="P")


def long_path(maze: GuardedMaze) -> Baseline:
    """Return a policy that takes the shortest path without red cells."""
    return _make_follower(maze, avoid="R")


def _make_follower(maze: GuardedMaze, avoid: str) -> Baseline:
    """Return a policy that follows the shortest path to the goal without `avoid` cells.

    The policy aims at the centre of the cell that is two cells ahead on its path. If the end
    or the midpoint of a step without noise would then be in a wall or in an `avoid` cell, the
    policy aims at the next cell instead.
    """
    layout = maze.layout
    blocked = np.zeros((layout.width, layout.height), bool)
    for cell in layout.cells("#") + layout.cells(avoid):
        blocked[cell] = True
    table = _next_cells(layout.cells("G"), blocked)
    next_cell = jnp.asarray(table)
    cell_after = jnp.asarray(table[table[..., 0], table[..., 1]])

    def cell_at(xy: Float[Array, "*batch 2"]) -> tuple[Array, Array]:
        cell = jnp.floor(xy + 0.5).astype(jnp.int32)
        return cell[..., 0], cell[..., 1]

    def follow(observation: Float[Array, "*batch 2"]) -> Float[Array, "*batch 2"]:
        xy = jnp.asarray(maze.position_of(observation))
        x, y = cell_at(xy)
        near, far = (
            jnp.clip((centre[x, y] - xy) / maze.step_scale, -1.0, 1.0)
            for centre in (next_cell, cell_after)
        )
        step = maze.step_scale * far
        barred = jnp.asarray(blocked)
        in_the_way = barred[cell_at(xy + step)] | barred[cell_at(xy + step / 2)]
        return jnp.where(in_the_way[..., None], near, far)

    return follow


def _next_cells(goals: tuple[Cell, ...], blocked: np.ndarray) -> np.ndarray:
    """Return for each cell the next cell on the shortest path to a goal.

    Goals, and cells from which no goal can be reached, are their own next cells. A diagonal
    move must not cut the corner of a blocked cell.
    """
    towards = np.moveaxis(np.indices(blocked.shape), 0, -1)
    # Paths are compared by their number of moves, then by their length.
    cheapest = {goal: (0, 0.0) for goal in goals}
    queue = [(0, 0.0, goal) for goal in goals]
    while queue:
        steps, length, cell = heapq.heappop(queue)
        x, y = cell
        for dx, dy in itertools.product((-1, 0, 1), repeat=2):
            other = x + dx, y + dy
            if other == cell:
                continue
            if blocked[other] or blocked[x + dx, y] or blocked[x, y + dy]:
                continue
            price = steps + 1, length + np.hypot(dx, dy)
            if price < cheapest.get(other, (np.inf, 0.0)):
                cheapest[other] = price
                towards[other] = cell
                heapq.heappush(queue, (*price, other))
    return towards


# The default parameters of the CityLearn baselines were calibrated on Building 1 with the
# default outages. Each docstring gives the resulting mean reward and cost of an episode.


@dataclass(frozen=True)
class UniformRandom:
    """Controls all devices at random, uniformly: reward -1649, cost 5665."""

    env: CityLearn
    seed: int = 0

    def __call__(self, observation: Observations) -> Actions:
        # A baseline gets no random key and must be a pure function under jit, so the key is
        # made from a hash of the observation. The index in the batch is added, so that equal
        # observations get different actions.
        flat = observation.reshape(-1, observation.shape[-1])
        bits = jax.lax.bitcast_convert_type(flat.astype(jnp.float32), jnp.uint32)
        odd = np.arange(1, 2 * flat.shape[1], 2, dtype=np.uint32)
        number = (bits * odd).sum(axis=-1, dtype=jnp.uint32)
        place = jnp.arange(flat.shape[0], dtype=jnp.uint32)
        size = self.env.spec.action_size

        def draw(number, place):
            key = jax.random.fold_in(jax.random.key(self.seed), place)
            key = jax.random.fold_in(key, number)
            return jax.random.uniform(key, (size,), jnp.float32, -1.0, 1.0)

        return jax.vmap(draw)(number, place).reshape(*observation.shape[:-1], size)


@dataclass(frozen=True)
class NoCooling:
    """Never cools and does not use the storage: reward -368, cost 6928."""

    env: CityLearn

    def __call__(self, observation: Observations) -> Actions:
        off = jnp.zeros_like(self.env.read(observation, "power_outage"))
        return _join_actions(tank=off, battery=off, cooling=off)


@dataclass(frozen=True)
class Thermostat:
    """Cools more the further the indoor and outdoor temperatures are above the set point.

    The mean reward is -699 and the mean cost is 777.
    """

    env: CityLearn
    base: float = 0.05
    """Fraction of the cooling power when all temperatures are at the set point."""
    gain: float = 0.08
    """Fraction added per degree that the indoor temperature is above the set point."""
    outdoor_gain: float = 0.013
    """Fraction added per degree that the outdoor temperature is above the set point."""

    def __call__(self, observation: Observations) -> Actions:
        cooling = self.cooling(observation)
        idle = jnp.zeros_like(cooling)
        return _join_actions(tank=idle, battery=idle, cooling=cooling)

    def cooling(self, observation: Observations) -> Float[Array, "*batch building"]:
        """Return the fraction of the cooling power to use in each building."""
        set_point = self.env.read(observation, "indoor_dry_bulb_temperature_set_point")
        indoor = self.env.read(observation, "indoor_dry_bulb_temperature")
        outdoor = self.env.read(observation, "outdoor_dry_bulb_temperature")
        fraction = (
            self.base
            + self.gain * (indoor - set_point)
            + self.outdoor_gain * (outdoor - set_point)
        )
        return jnp.clip(fraction, 0.0, 1.0)


@dataclass(frozen=True)
class BatteryReserve:
    """A thermostat that keeps the battery full for outages: reward -751, cost 587."""

    env: CityLearn
    base: float = 0.08
    gain: float = 0.06
    outdoor_gain: float = 0.014
    """`base`, `gain` and `outdoor_gain` have the same meaning as in `Thermostat`."""
    charge: float = 1.0
    """Fraction of its power with which the battery charges while the grid works."""
    discharge: float = 0.06
    """Fraction of its power with which the battery discharges in an outage. The fraction is
    small, so that the battery lasts for hours."""

    def __call__(self, observation: Observations) -> Actions:
        thermostat = Thermostat(self.env, self.base, self.gain, self.outdoor_gain)
        cooling = thermostat.cooling(observation)
        outage = self.env.read(observation, "power_outage") > 0.5
        battery = jnp.where(outage, -self.discharge, self.charge)
        idle = jnp.zeros_like(cooling)
        return _join_actions(tank=idle, battery=battery, cooling=cooling)


def _join_actions(
    tank: Float[Array, "*batch building"],
    battery: Float[Array, "*batch building"],
    cooling: Float[Array, "*batch building"],
) -> Actions:
    """Return the actions of all buildings; `cooling` is a fraction of the power in [0, 1]."""
    parts = jnp.stack([tank, battery, 2 * cooling - 1], axis=-1)
    return parts.reshape(*parts.shape[:-2], -1)


BASELINES: dict[str, dict[str, Callable[[Any], Baseline]]] = {
    "orac/GuardedMaze-v0": {"short_path": short_path, "long_path": long_path},
    "orac/CityLearn-v0": {
        "uniform_random": UniformRandom,
        "no_cooling": NoCooling,
        "thermostat": Thermostat,
        "battery_reserve": BatteryReserve,
    },
}
"""Functions that make the baselines of an environment, by environment id and name."""


def check_baseline(env_id: str, name: str) -> None:
    """Raise a `ValueError` if the environment has no baseline of this name."""
    check_choice("An environment with baselines", env_id, BASELINES)
    check_choice(f"A baseline for {env_id}", name, BASELINES[env_id])


def make_baseline(env_id: str, name: str, env: Any) -> Baseline:
    """Make the baseline `name` for `env`, which is the JAX environment with id `env_id`."""
    check_baseline(env_id, name)
    return BASELINES[env_id][name](env)
