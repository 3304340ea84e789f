"""Energy through a building for one hour: cooling, hot water, plugs, battery.

Follows CityLearn 2.1.2, including its order of events: storage that discharges goes
before the loads and so can serve them, storage that charges goes after. In an outage
the loads share what sun and battery give, cooling first, then hot water, then plugs.
Everything is elementwise over buildings, in single precision; the battery's own rules
are in `citylearn_battery`, the temperature that results in `citylearn_indoor`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from orac.envs.citylearn.battery import Charge, init_charge, run_battery
from orac.envs.citylearn.data import Battery, Devices, Hours

PerBuilding = Float[Array, " building"]


class Storage(NamedTuple):
    """What the devices remember from hour to hour."""

    tank: PerBuilding
    """Filled share of the hot water tank."""
    battery: Charge


class Action(NamedTuple):
    """Shares of tank and battery capacity to charge, and of the cooling power."""

    tank: PerBuilding
    battery: PerBuilding
    cooling: PerBuilding


class Flows(NamedTuple):
    """One hour's energies in kWh."""

    net: PerBuilding
    """Electricity drawn from the grid; negative when fed in, zero in an outage."""
    cooling: PerBuilding
    hot_water: PerBuilding
    requested: PerBuilding
    """Cooling, hot water and plug load asked for."""
    served: PerBuilding


def init_storage(battery: Battery) -> Storage:
    """Empty tank, battery at its floor."""
    charge = init_charge(battery)
    return Storage(tank=jnp.zeros_like(charge.level), battery=charge)


def init_flows(devices: Devices, hour: Hours) -> Flows:
    """The hour before the first action: all loads are met from grid and sun."""
    cooling = hour.ideal_cooling / hour.efficiency
    heating = hour.hot_water / devices.heater_efficiency
    asked = hour.ideal_cooling + hour.hot_water + hour.plug_load
    return Flows(
        net=cooling + heating + hour.plug_load - hour.solar,
        cooling=hour.ideal_cooling,
        hot_water=hour.hot_water,
        requested=asked,
        served=asked,
    )


def run_hour(
    devices: Devices,
    battery: Battery,
    hour: Hours,
    storage: Storage,
    action: Action,
    outage: Bool[Array, ""],
    controlled: Bool[Array, ""],
) -> tuple[Storage, Flows]:
    """Carry out an action; cooling is ideal as long as it is not `controlled`."""

    def left(used: PerBuilding) -> PerBuilding:
        return jnp.where(outage, jnp.maximum(0.0, hour.solar - used), jnp.inf)

    nothing = jnp.zeros_like(hour.solar)
    discharging = action.battery < 0
    _, early = run_battery(battery, storage.battery, action.battery, nothing)
    given = jnp.where(discharging, early, nothing)

    full = action.cooling * devices.cooling_power * hour.efficiency
    cooling_request = jnp.where(controlled, full, hour.ideal_cooling)
    power = jnp.minimum(left(given), devices.cooling_power)
    cooling = jnp.minimum(cooling_request, power * hour.efficiency)
    used = cooling / hour.efficiency

    tank, hot_water, heating = run_hot_water(
        devices,
        hour.hot_water,
        storage.tank,
        action.tank * devices.tank_capacity,
        lambda heating: left(used + heating + given),
    )
    plugs = jnp.minimum(hour.plug_load, left(used + heating + given))
    used = used + heating + plugs
    charge, balance = run_battery(battery, storage.battery, action.battery, left(used))
    return Storage(tank=tank, battery=charge), Flows(
        net=jnp.where(outage, 0.0, used + balance - hour.solar),
        cooling=cooling,
        hot_water=hot_water,
        requested=cooling_request + hour.hot_water + hour.plug_load,
        served=cooling + hot_water + plugs,
    )


def run_hot_water(
    devices: Devices,
    demand: PerBuilding,
    level: PerBuilding,
    request: PerBuilding,
    left: Callable[[PerBuilding], PerBuilding],
) -> tuple[PerBuilding, PerBuilding, PerBuilding]:
    """New tank level, hot water served, electricity used by the heater.

    `left` gives the electricity left when the heater has used its argument.
    """
    capacity, efficiency = devices.tank_capacity, devices.heater_efficiency
    level = level * devices.tank_keep
    stored = level * capacity
    from_tank = jnp.minimum(jnp.minimum(demand, jnp.maximum(-request, 0.0)), stored)
    power = jnp.minimum(left(jnp.zeros_like(demand)), devices.heater_power)
    from_heater = jnp.minimum(demand - from_tank, power * efficiency)
    heating = from_heater / efficiency

    spare = jnp.minimum(left(heating), devices.heater_power - heating) * efficiency
    charge = jnp.minimum(jnp.minimum(spare, request), capacity - stored)
    charge = jnp.maximum(charge, 0.0)
    level = level + (charge - from_tank) / capacity
    return level, from_heater + from_tank, heating + charge / efficiency
