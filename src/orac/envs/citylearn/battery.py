"""The battery of a CityLearn building: limits, losses and wear of one hour.

Numerics: above 80 % a fuller battery gives less power, so an error in its level can grow
fourfold with an hour of discharge, and what single precision rounds away came to 1e-5 of
the capacity within a month. Hence this room computes in double precision and rounds to
single where CityLearn 2.1.2 (under NumPy 2) does. States stay single.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from orac.envs.citylearn.data import Battery

PerBuilding = Float[Array, " building"]


class Charge(NamedTuple):
    """What a battery remembers from hour to hour."""

    level: PerBuilding
    """Charged share of the capacity when new."""
    capacity: PerBuilding
    """What wear has left of it, in kWh."""
    efficiency: PerBuilding
    """Efficiency in the last hour, which limits the next discharge."""


def init_charge(battery: Battery) -> Charge:
    """New and at its floor."""
    values = (battery.floor, battery.capacity, battery.efficiency)
    return Charge(*(jnp.asarray(value, jnp.float32) for value in values))


def single(value: PerBuilding | np.ndarray) -> PerBuilding:
    """A double rounded to single precision."""
    # Numerics: XLA may leave out a conversion to single and back, but never this.
    return jax.lax.reduce_precision(value, exponent_bits=8, mantissa_bits=23)


def run_battery(
    battery: Battery, charge: Charge, share: PerBuilding, limit: PerBuilding
) -> tuple[Charge, PerBuilding]:
    """Charge by a `share` of the capacity, or discharge if it is negative.

    At most `limit` kWh may enter. Returns the electricity that enters (or leaves, as a
    negative number), in kWh, beside the battery's new state.
    """
    with jax.enable_x64(True):
        level, capacity, efficiency, share, limit = (
            value.astype(jnp.float64) for value in (*charge, share, limit)
        )
        full = single(battery.capacity)
        stored = single(single(level * full) * single(1 - battery.leak))
        above = single(single(level - single(battery.floor)) * full)
        above = jnp.maximum(above * jnp.sqrt(efficiency), 0.0)
        power = battery.power * power_limit(single(stored / full))
        request = jnp.minimum(share * battery.capacity, limit)
        into = jnp.minimum(jnp.minimum(power, single(capacity - stored)), request)
        energy = jnp.where(
            request < 0, jnp.maximum(-jnp.minimum(power, above), request), into
        )
        efficiency = power_efficiency(battery, jnp.abs(energy) / battery.power)
        one_way = jnp.sqrt(efficiency)
        moved = jnp.where(energy < 0, energy / one_way, energy * one_way)
        after = jnp.clip(stored + moved, 0.0, battery.capacity)
        moved = after - stored
        balance = single(jnp.where(moved < 0, moved * one_way, moved / one_way))
        worn = single(single(battery.wear) * jnp.abs(balance))
        values = Charge(
            level=after / battery.capacity,
            capacity=capacity - single(worn / (2 * capacity)),
            efficiency=efficiency,
        )
        new = Charge(*(value.astype(jnp.float32) for value in values))
        return new, balance.astype(jnp.float32)


def power_limit(level: PerBuilding) -> PerBuilding:
    """Share of the power that a battery can take or give; less when nearly full."""
    return 1 - 4 * jnp.clip(level - 0.8, 0.0, 0.2)


def power_efficiency(battery: Battery, load: PerBuilding) -> PerBuilding:
    """Round-trip efficiency at a share of the power: the curve between its knots."""
    width = np.diff(battery.loads, axis=0)
    slope = np.diff(battery.efficiencies, axis=0) / width
    efficiency = battery.efficiencies[0]
    for start, length, rise in zip(battery.loads, width, slope, strict=False):
        efficiency = efficiency + rise * jnp.clip(load - start, 0.0, length)
    return efficiency
