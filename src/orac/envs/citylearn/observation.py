"""Observations of CityLearn: named numbers, scaled to their ranges.

The order is CityLearn's for a central agent: calendar, weather, carbon intensity and prices
once, among the first building's own eleven numbers, followed by the other buildings' own
numbers. The ranges are those of CityLearn's observation space. A value may leave its range,
because CityLearn only estimates some of them. All values belong to the hour that has just
ended; only CityLearn's forecasts say anything about later hours.
"""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from orac.config.validation import check_choice
from orac.envs.citylearn.data import load_battery, load_devices, load_month, load_shared

FORECASTS = ("", "_predicted_6h", "_predicted_12h", "_predicted_24h")
SHARED_BEFORE = (
    "day_type",
    "hour",
    *(f"outdoor_dry_bulb_temperature{ahead}" for ahead in FORECASTS),
    *(f"diffuse_solar_irradiance{ahead}" for ahead in FORECASTS),
    *(f"direct_solar_irradiance{ahead}" for ahead in FORECASTS),
    "carbon_intensity",
)
OWN_BEFORE = (
    "indoor_dry_bulb_temperature",
    "non_shiftable_load",
    "solar_generation",
    "dhw_storage_soc",
    "electrical_storage_soc",
    "net_electricity_consumption",
)
SHARED_AFTER = tuple(f"electricity_pricing{ahead}" for ahead in FORECASTS)
OWN_AFTER = (
    "cooling_demand",
    "dhw_demand",
    "occupant_count",
    "indoor_dry_bulb_temperature_set_point",
    "power_outage",
)


class SimulatedValues(NamedTuple):
    """Values that depend on actions or outages, with CityLearn's names."""

    indoor_dry_bulb_temperature: Float[Array, " building"]
    dhw_storage_soc: Float[Array, " building"]
    electrical_storage_soc: Float[Array, " building"]
    net_electricity_consumption: Float[Array, " building"]
    cooling_demand: Float[Array, " building"]
    dhw_demand: Float[Array, " building"]
    power_outage: Float[Array, " building"]


class Layout(NamedTuple):
    """Order and ranges of the numbers of an observation."""

    names: tuple[str, ...]
    """Name of each number; the names of own numbers repeat for each further building."""
    exogenous: np.ndarray
    """Values from the data, `(hour, observation)`; zero where a number is simulated."""
    source: np.ndarray
    """Index of each number in a row of `exogenous` followed by the simulated values."""
    low: np.ndarray
    span: np.ndarray


@cache
def load_layout(buildings: tuple[int, ...]) -> Layout:
    """Return order, data and ranges of the observations of the chosen buildings."""
    first = (*SHARED_BEFORE, *OWN_BEFORE, *SHARED_AFTER, *OWN_AFTER)
    places = [(name, 0) for name in first]
    for other in range(1, len(buildings)):
        places += [(name, other) for name in OWN_BEFORE + OWN_AFTER]
    month = load_month(buildings)
    exogenous = {
        **{name: load_shared(name, buildings) for name in SHARED_BEFORE + SHARED_AFTER},
        "non_shiftable_load": month.plug_load,
        "solar_generation": month.solar,
        "occupant_count": month.occupants,
        "indoor_dry_bulb_temperature_set_point": month.set_point,
    }
    ranges = _simulated_ranges(buildings)
    for name, values in exogenous.items():
        ranges[name] = (values.min(axis=0), values.max(axis=0))
    zero = np.zeros_like(month.set_point)
    source = np.arange(len(places), dtype=np.int32)
    for place, (name, building) in enumerate(places):
        if name in SimulatedValues._fields:
            row = SimulatedValues._fields.index(name)
            source[place] = len(places) + row * len(buildings) + building
    limits = np.array([[limit[i] for limit in ranges[name]] for name, i in places])
    low, high = limits.T.astype(np.float32)
    return Layout(
        names=tuple(name for name, _ in places),
        exogenous=np.stack(
            [exogenous.get(name, zero)[:, i] for name, i in places], axis=1
        ),
        source=source,
        low=low,
        span=high - low,
    )


def _simulated_ranges(
    buildings: tuple[int, ...],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return CityLearn's estimated low and high of the simulated values per building."""
    month, devices = load_month(buildings), load_devices(buildings)
    zero, one = (np.full(len(buildings), value, np.float32) for value in (0, 1))
    margin = np.float32(1.15)
    battery = load_battery(buildings).power.astype(np.float32)
    power = devices.cooling_power + devices.heater_power + battery
    from_grid = month.plug_load - month.solar
    return {
        "indoor_dry_bulb_temperature": (
            month.ideal_temperature.min(axis=0) - 10,
            month.ideal_temperature.max(axis=0) + 10,
        ),
        "dhw_storage_soc": (zero, one),
        "electrical_storage_soc": (zero, one),
        "net_electricity_consumption": (
            np.minimum((from_grid - battery).min(axis=0), 0),
            (from_grid + power).max(axis=0),
        ),
        "cooling_demand": (zero, month.ideal_cooling.max(axis=0) * margin),
        "dhw_demand": (zero, month.hot_water.max(axis=0) * margin),
        "power_outage": (zero, one),
    }


def make_observation(
    layout: Layout, hour: Int[Array, ""], simulated: SimulatedValues
) -> Float[Array, " observation"]:
    """Return the observation at the end of `hour`, each number scaled by its range."""
    values = jnp.concatenate([jnp.asarray(layout.exogenous)[hour], *simulated])
    return (values[layout.source] - layout.low) / layout.span


def read_observation(
    layout: Layout, observation: Float[Array, "*batch observation"], name: str
) -> Float[Array, "*batch place"]:
    """Return the numbers with this name in their own unit: one per building, or a shared one."""
    check_choice("The name of an observation", name, dict.fromkeys(layout.names))
    where = np.flatnonzero(np.array(layout.names) == name).astype(np.int32)
    return observation[..., where] * layout.span[where] + layout.low[where]
