"""What is fixed about CityLearn's buildings: hourly rows and device constants.

Reads the file that `tools/extract_citylearn.py` wrote from CityLearn 2.1.2 (data set of
the 2023 challenge, phase 2, local evaluation) and computes from it what never depends on
an action. Everything here is NumPy, rounded to single precision where CityLearn does;
the building is the last axis. Knows nothing of steps.
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

NUM_HOURS = 720
NUM_BUILDINGS = 3

Values = Any
"""NumPy arrays `(hour, building)` for a month, JAX ones `(building,)` for an hour."""


class Hours(NamedTuple):
    """What the data tell of some hours: energies in kWh, temperatures in degrees C."""

    ideal_cooling: Values
    """Cooling that keeps `ideal_temperature`; delivered while the model warms up."""
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


class Battery(NamedTuple):
    """Constants per building in double precision; see `citylearn_battery` for why."""

    capacity: np.ndarray
    power: np.ndarray
    leak: np.ndarray
    """Share lost in an hour."""
    wear: np.ndarray
    """Capacity lost over a full charge and discharge, in kWh."""
    floor: np.ndarray
    """Least state of charge, also the one an episode starts with."""
    efficiency: np.ndarray
    """Efficiency before the first hour; afterwards it follows the load."""
    loads: np.ndarray
    """Knots of the efficiency curve, `(knot, building)`, as shares of the power."""
    efficiencies: np.ndarray


class Devices(NamedTuple):
    """Constants per building; powers in kW, capacities in kWh, the rest fractions."""

    cooling_power: np.ndarray
    heater_power: np.ndarray
    heater_efficiency: np.ndarray
    tank_capacity: np.ndarray
    tank_keep: np.ndarray
    """Share that is still there after an hour."""


@cache
def load_arrays() -> dict[str, np.ndarray]:
    """All arrays of the data file by name, three buildings each."""
    path = files("orac.envs.citylearn") / "data_files" / "citylearn.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def load_hourly(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """A building's own rows for the chosen buildings, numbered from 1."""
    return load_arrays()[f"hourly/{name}"][np.array(buildings) - 1].T


def load_shared(name: str) -> np.ndarray:
    """Rows that all buildings share."""
    return load_arrays()[f"shared/{name}"]


def load_constant(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """Constants of the chosen buildings, the building first."""
    return load_arrays()[name][np.array(buildings) - 1]


@cache
def load_month(buildings: tuple[int, ...]) -> Hours:
    """Hourly rows of the chosen buildings."""

    def own(name: str) -> np.ndarray:
        return load_hourly(name, buildings)

    def everyone(name: str) -> np.ndarray:
        return np.repeat(load_shared(name)[:, None], len(buildings), axis=1)

    panels = load_constant("pv/nominal_power", buildings).astype(np.float32)
    return Hours(
        ideal_cooling=own("cooling_demand"),
        ideal_temperature=own("indoor_dry_bulb_temperature"),
        hot_water=own("dhw_demand"),
        plug_load=own("non_shiftable_load"),
        solar=own("solar_generation_per_kw") * panels / np.float32(1000),
        efficiency=cooling_efficiency(buildings),
        set_point=own("indoor_dry_bulb_temperature_set_point"),
        occupants=own("occupant_count"),
        price=everyone("electricity_pricing"),
        carbon=everyone("carbon_intensity"),
    )


def cooling_efficiency(buildings: tuple[int, ...]) -> np.ndarray:
    """A share of Carnot's efficiency between supply and outdoor air, at most 20."""
    share = load_constant("cooling_device/efficiency", buildings)
    supply = load_constant("cooling_device/target_cooling_temperature", buildings)
    outdoor = load_shared("outdoor_dry_bulb_temperature")[:, None]
    lift = outdoor - supply.astype(np.float32)
    carnot = (share * (supply + 273.15)).astype(np.float32) / lift
    return np.where((carnot < 0) | (carnot > 20), np.float32(20), carnot)


@cache
def load_devices(buildings: tuple[int, ...]) -> Devices:
    """Device constants of the chosen buildings but for the battery's."""
    devices = Devices(
        cooling_power=load_constant("cooling_device/nominal_power", buildings),
        heater_power=load_constant("dhw_device/nominal_power", buildings),
        heater_efficiency=load_constant("dhw_device/efficiency", buildings),
        tank_capacity=load_constant("dhw_storage/capacity", buildings),
        tank_keep=1 - load_constant("dhw_storage/loss_coefficient", buildings),
    )
    return Devices(*(values.astype(np.float32) for values in devices))


@cache
def load_battery(buildings: tuple[int, ...]) -> Battery:
    """Constants of the chosen buildings' batteries."""

    def constant(name: str) -> np.ndarray:
        return load_constant(f"electrical_storage/{name}", buildings)

    curve = constant("power_efficiency_curve")
    return Battery(
        capacity=constant("capacity"),
        power=constant("nominal_power"),
        leak=constant("loss_coefficient"),
        wear=constant("capacity_loss_coefficient") * constant("capacity"),
        floor=1 - constant("depth_of_discharge"),
        efficiency=constant("efficiency"),
        loads=curve[:, :, 0].T,
        efficiencies=curve[:, :, 1].T,
    )
