"""Data of CityLearn's buildings: hourly rows and device constants.

This module reads the file that `tools/extract_citylearn.py` wrote from CityLearn 2.1.2
(data set of the 2023 challenge, phase 2, local evaluation), and computes the values that do
not depend on actions. The loaded records contain NumPy arrays whose last axis is the
building. They are rounded to single precision where CityLearn rounds them.
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

NUM_HOURS = 720
NUM_BUILDINGS = 3

Values = Any
"""NumPy arrays `(hour, building)` for a month, or JAX arrays `(building,)` for an hour."""


class HourlyData(NamedTuple):
    """Rows of the data set: energies in kWh, temperatures in degrees C."""

    ideal_cooling: Values
    """Cooling that is needed to hold `ideal_temperature`. It is delivered while the
    temperature model warms up."""
    ideal_temperature: Values
    hot_water: Values
    plug_load: Values
    solar: Values
    efficiency: Values
    """Heat that the cooling device moves per unit of electricity."""
    set_point: Values
    occupants: Values
    price: Values
    carbon: Values


class BatteryConstants(NamedTuple):
    """Constants per building, in double precision, which `run_battery` needs."""

    capacity: np.ndarray
    power: np.ndarray
    leak: np.ndarray
    """Fraction of the stored energy that is lost in an hour."""
    wear: np.ndarray
    """Capacity lost over a full charge and discharge, in kWh."""
    floor: np.ndarray
    """Minimum state of charge, which is also the initial one."""
    efficiency: np.ndarray
    """Efficiency before the first hour; later it depends on the load."""
    loads: np.ndarray
    """Knots of the efficiency curve, `(knot, building)`, as fractions of the power."""
    efficiencies: np.ndarray


class DeviceConstants(NamedTuple):
    """Constants per building: powers in kW, capacities in kWh, all others fractions."""

    cooling_power: np.ndarray
    heater_power: np.ndarray
    heater_efficiency: np.ndarray
    tank_capacity: np.ndarray
    tank_keep: np.ndarray
    """Fraction of the stored heat that is left after an hour."""


@cache
def load_arrays() -> dict[str, np.ndarray]:
    """Return all arrays of the data file by name."""
    path = files("orac.envs.citylearn") / "data_files" / "citylearn.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def load_hourly(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """Return hourly rows of the chosen buildings, which are numbered from 1."""
    return load_arrays()[f"hourly/{name}"][np.array(buildings) - 1].T


def load_shared(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """Return hourly rows that all buildings share, repeated for each of them."""
    return np.repeat(load_arrays()[f"shared/{name}"][:, None], len(buildings), axis=1)


def load_constant(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """Return a constant of the chosen buildings, with the building as the first axis."""
    return load_arrays()[name][np.array(buildings) - 1]


@cache
def load_month(buildings: tuple[int, ...]) -> HourlyData:
    """Return the hourly rows of the chosen buildings."""

    def own(name: str) -> np.ndarray:
        return load_hourly(name, buildings)

    panels = load_constant("pv/nominal_power", buildings).astype(np.float32)
    return HourlyData(
        ideal_cooling=own("cooling_demand"),
        ideal_temperature=own("indoor_dry_bulb_temperature"),
        hot_water=own("dhw_demand"),
        plug_load=own("non_shiftable_load"),
        solar=own("solar_generation_per_kw") * panels / np.float32(1000),
        efficiency=_cooling_efficiency(buildings),
        set_point=own("indoor_dry_bulb_temperature_set_point"),
        occupants=own("occupant_count"),
        price=load_shared("electricity_pricing", buildings),
        carbon=load_shared("carbon_intensity", buildings),
    )


def _cooling_efficiency(buildings: tuple[int, ...]) -> np.ndarray:
    """Return the coefficient of performance of the cooling device in each hour.

    It is a fixed fraction of Carnot's coefficient for the supply and outdoor temperatures.
    It is 20 where it would be higher, or where the outdoor air is colder than the supply.
    """
    fraction = load_constant("cooling_device/efficiency", buildings)
    supply = load_constant("cooling_device/target_cooling_temperature", buildings)
    lift = load_shared("outdoor_dry_bulb_temperature", buildings) - supply.astype(
        np.float32
    )
    carnot = (fraction * (supply + 273.15)).astype(np.float32) / lift
    return np.where((carnot < 0) | (carnot > 20), np.float32(20), carnot)


@cache
def load_devices(buildings: tuple[int, ...]) -> DeviceConstants:
    """Return the constants of all devices of the chosen buildings except the battery."""
    devices = DeviceConstants(
        cooling_power=load_constant("cooling_device/nominal_power", buildings),
        heater_power=load_constant("dhw_device/nominal_power", buildings),
        heater_efficiency=load_constant("dhw_device/efficiency", buildings),
        tank_capacity=load_constant("dhw_storage/capacity", buildings),
        tank_keep=1 - load_constant("dhw_storage/loss_coefficient", buildings),
    )
    return DeviceConstants(*(values.astype(np.float32) for values in devices))


@cache
def load_battery(buildings: tuple[int, ...]) -> BatteryConstants:
    """Return the constants of the batteries of the chosen buildings."""

    def constant(name: str) -> np.ndarray:
        return load_constant(f"electrical_storage/{name}", buildings)

    curve = constant("power_efficiency_curve")
    return BatteryConstants(
        capacity=constant("capacity"),
        power=constant("nominal_power"),
        leak=constant("loss_coefficient"),
        wear=constant("capacity_loss_coefficient") * constant("capacity"),
        floor=1 - constant("depth_of_discharge"),
        efficiency=constant("efficiency"),
        loads=curve[:, :, 0].T,
        efficiencies=curve[:, :, 1].T,
    )
