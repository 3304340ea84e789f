"""Energy flows of a building during one hour: cooling, hot water, plug load and battery.

This module follows CityLearn 2.1.2, including its order of events: a tank or battery that
discharges acts before the loads that it serves, and one that charges acts after them.
In an outage, the loads share the energy of the sun and the battery: cooling comes first,
then hot water, then plugs. All computations are elementwise over buildings. The module
`temperature` computes the resulting temperature.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from orac.envs.citylearn.data import BatteryConstants, DeviceConstants, HourlyData

PerBuilding = Float[Array, " building"]


class BatteryState(NamedTuple):
    """State of the batteries at the end of an hour."""

    level: PerBuilding
    """State of charge, as a fraction of the capacity of a new battery."""
    capacity: PerBuilding
    """Capacity after wear, in kWh."""
    efficiency: PerBuilding
    """Efficiency in the last hour, which limits the next discharge."""


class Storage(NamedTuple):
    """State of the tanks and batteries at the end of an hour."""

    tank: PerBuilding
    """Filled fraction of the hot water tank."""
    battery: BatteryState


class Action(NamedTuple):
    """Fractions of tank and battery capacity to charge, and of the cooling power to use."""

    tank: PerBuilding
    battery: PerBuilding
    cooling: PerBuilding


class Flows(NamedTuple):
    """Energies of one hour, in kWh."""

    net: PerBuilding
    """Electricity imported from the grid; negative if exported, zero in an outage."""
    cooling: PerBuilding
    hot_water: PerBuilding
    requested: PerBuilding
    """Sum of the requested cooling, hot water and plug load."""
    served: PerBuilding
    """Part of `requested` that was delivered."""


def init_storage(battery: BatteryConstants) -> Storage:
    """Return empty tanks and new batteries at their minimum charge."""
    values = (battery.floor, battery.capacity, battery.efficiency)
    state = BatteryState(*(jnp.asarray(value, jnp.float32) for value in values))
    return Storage(tank=jnp.zeros_like(state.level), battery=state)


def init_flows(devices: DeviceConstants, hour: HourlyData) -> Flows:
    """Return the flows before the first action, when grid and sun meet all loads."""
    cooling = hour.ideal_cooling / hour.efficiency
    heating = hour.hot_water / devices.heater_efficiency
    requested = hour.ideal_cooling + hour.hot_water + hour.plug_load
    return Flows(
        net=cooling + heating + hour.plug_load - hour.solar,
        cooling=hour.ideal_cooling,
        hot_water=hour.hot_water,
        requested=requested,
        served=requested,
    )


def run_hour(
    devices: DeviceConstants,
    battery: BatteryConstants,
    hour: HourlyData,
    storage: Storage,
    action: Action,
    outage: Bool[Array, ""],
    controlled: Bool[Array, ""],
) -> tuple[Storage, Flows]:
    """Apply an action for one hour; return the new storage and the energy flows.

    If `controlled` is False, the recorded cooling is used instead of the action's cooling.
    """

    def available(used: PerBuilding) -> PerBuilding:
        return jnp.where(outage, jnp.maximum(0.0, hour.solar - used), jnp.inf)

    zero = jnp.zeros_like(hour.solar)
    discharging = action.battery < 0
    _, early = run_battery(battery, storage.battery, action.battery, zero)
    discharged = jnp.where(discharging, early, zero)

    full = action.cooling * devices.cooling_power * hour.efficiency
    cooling_request = jnp.where(controlled, full, hour.ideal_cooling)
    power = jnp.minimum(available(discharged), devices.cooling_power)
    cooling = jnp.minimum(cooling_request, power * hour.efficiency)
    used = cooling / hour.efficiency

    tank, hot_water, heating = run_hot_water(
        devices,
        hour.hot_water,
        storage.tank,
        action.tank * devices.tank_capacity,
        lambda heating: available(used + heating + discharged),
    )
    plugs = jnp.minimum(hour.plug_load, available(used + heating + discharged))
    used = used + heating + plugs
    state, balance = run_battery(
        battery, storage.battery, action.battery, available(used)
    )
    return Storage(tank=tank, battery=state), Flows(
        net=jnp.where(outage, 0.0, used + balance - hour.solar),
        cooling=cooling,
        hot_water=hot_water,
        requested=cooling_request + hour.hot_water + hour.plug_load,
        served=cooling + hot_water + plugs,
    )


def run_hot_water(
    devices: DeviceConstants,
    demand: PerBuilding,
    level: PerBuilding,
    request: PerBuilding,
    available: Callable[[PerBuilding], PerBuilding],
) -> tuple[PerBuilding, PerBuilding, PerBuilding]:
    """Return the new tank level, the hot water served and the heater's electricity.

    `available(used)` returns the electricity that is left after the heater has used `used`.
    """
    capacity, efficiency = devices.tank_capacity, devices.heater_efficiency
    level = level * devices.tank_keep
    stored = level * capacity
    from_tank = jnp.minimum(jnp.minimum(demand, jnp.maximum(-request, 0.0)), stored)
    power = jnp.minimum(available(jnp.zeros_like(demand)), devices.heater_power)
    from_heater = jnp.minimum(demand - from_tank, power * efficiency)
    heating = from_heater / efficiency

    spare = jnp.minimum(available(heating), devices.heater_power - heating) * efficiency
    charge = jnp.minimum(jnp.minimum(spare, request), capacity - stored)
    charge = jnp.maximum(charge, 0.0)
    level = level + (charge - from_tank) / capacity
    return level, from_heater + from_tank, heating + charge / efficiency


def run_battery(
    battery: BatteryConstants,
    state: BatteryState,
    request: PerBuilding,
    limit: PerBuilding,
) -> tuple[BatteryState, PerBuilding]:
    """Charge batteries by `request`, or discharge them if it is negative.

    `request` is a fraction of the capacity. At most `limit` kWh may enter a battery.
    Returns the new state, and the electricity in kWh that entered, which is negative for a
    discharge.
    """
    # Numerics: above 80 % charge, a fuller battery has less power, so an error in its level
    # can grow fourfold in an hour of discharge. In single precision, the rounding errors
    # reached 1e-5 of the capacity within a month. So this function computes in float64, and
    # rounds to float32 where CityLearn 2.1.2 (with NumPy 2) does. The states are float32.
    with jax.enable_x64(True):
        level, capacity, efficiency, request, limit = (
            value.astype(jnp.float64) for value in (*state, request, limit)
        )
        full = _round_to_single(battery.capacity)
        stored = _round_to_single(
            _round_to_single(level * full) * _round_to_single(1 - battery.leak)
        )
        above_floor = _round_to_single(
            _round_to_single(level - _round_to_single(battery.floor)) * full
        )
        above_floor = jnp.maximum(above_floor * jnp.sqrt(efficiency), 0.0)
        power = battery.power * power_limit(_round_to_single(stored / full))
        request = jnp.minimum(request * battery.capacity, limit)
        free = _round_to_single(capacity - stored)
        charge = jnp.minimum(jnp.minimum(power, free), request)
        energy = jnp.where(
            request < 0, jnp.maximum(-jnp.minimum(power, above_floor), request), charge
        )
        efficiency = power_efficiency(battery, jnp.abs(energy) / battery.power)
        one_way = jnp.sqrt(efficiency)
        moved = jnp.where(energy < 0, energy / one_way, energy * one_way)
        after = jnp.clip(stored + moved, 0.0, battery.capacity)
        moved = after - stored
        balance = _round_to_single(
            jnp.where(moved < 0, moved * one_way, moved / one_way)
        )
        worn = _round_to_single(_round_to_single(battery.wear) * jnp.abs(balance))
        values = BatteryState(
            level=after / battery.capacity,
            capacity=capacity - _round_to_single(worn / (2 * capacity)),
            efficiency=efficiency,
        )
        new = BatteryState(*(value.astype(jnp.float32) for value in values))
        return new, balance.astype(jnp.float32)


def power_limit(level: PerBuilding) -> PerBuilding:
    """Return the usable fraction of the power, which falls when a battery is nearly full."""
    return 1 - 4 * jnp.clip(level - 0.8, 0.0, 0.2)


def power_efficiency(battery: BatteryConstants, load: PerBuilding) -> PerBuilding:
    """Return the round-trip efficiency at `load`, which is a fraction of the power.

    The efficiency is linear between the knots of its curve.
    """
    width = np.diff(battery.loads, axis=0)
    slope = np.diff(battery.efficiencies, axis=0) / width
    efficiency = battery.efficiencies[0]
    for start, length, rise in zip(battery.loads, width, slope, strict=False):
        efficiency = efficiency + rise * jnp.clip(load - start, 0.0, length)
    return efficiency


def _round_to_single(value: PerBuilding | np.ndarray) -> PerBuilding:
    # Numerics: XLA may remove a conversion to single precision and back, but it does not
    # remove this operation.
    return jax.lax.reduce_precision(value, exponent_bits=8, mantissa_bits=23)
