"""What the agent sees of CityLearn: thirty named numbers, scaled to their ranges.

The order is CityLearn's for a central agent: calendar, weather, carbon intensity and
prices once, among the first building's own eleven numbers, then the other buildings'
own. The ranges are those of CityLearn's observation space; a value may leave its range,
because CityLearn only estimates some of them. All values are those of the hour that has
just ended: nothing here tells of the next one but CityLearn's own forecasts.
"""

import difflib
from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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


class Caused(NamedTuple):
    """Numbers of a building that depend on actions or outages, by CityLearn's names."""

    indoor_dry_bulb_temperature: Float[Array, " building"]
    dhw_storage_soc: Float[Array, " building"]
    electrical_storage_soc: Float[Array, " building"]
    net_electricity_consumption: Float[Array, " building"]
    cooling_demand: Float[Array, " building"]
    dhw_demand: Float[Array, " building"]
    power_outage: Float[Array, " building"]


class Layout(NamedTuple):
    """Where each number stands, and its range."""

    names: tuple[str, ...]
    """One a number, repeated for each further building."""
    known: np.ndarray
    """What the data tell, `(hour, observation)`; zero where a number is caused."""
    source: np.ndarray
    """Place of each number in a row of `known` followed by the caused ones."""
    low: np.ndarray
    span: np.ndarray


@cache
def load_layout(buildings: tuple[int, ...]) -> Layout:
    """Order, data and ranges of the observations of the chosen buildings."""
    first = (*SHARED_BEFORE, *OWN_BEFORE, *SHARED_AFTER, *OWN_AFTER)
    places = [(name, 0) for name in first]
    for other in range(1, len(buildings)):
        places += [(name, other) for name in OWN_BEFORE + OWN_AFTER]
    known, ranges = known_values(buildings), caused_ranges(buildings)
    for name, values in known.items():
        ranges[name] = (values.min(axis=0), values.max(axis=0))
    nothing = np.zeros_like(known["hour"])
    source = np.arange(len(places), dtype=np.int32)
    for place, (name, building) in enumerate(places):
        if name in Caused._fields:
            row = Caused._fields.index(name)
            source[place] = len(places) + row * len(buildings) + building
    limits = np.array([[r[i] for r in ranges[name]] for name, i in places])
    low, high = limits.T.astype(np.float32)
    return Layout(
        names=tuple(name for name, _ in places),
        known=np.stack([known.get(name, nothing)[:, i] for name, i in places], axis=1),
        source=source,
        low=low,
        span=high - low,
    )


def known_values(buildings: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Numbers that the data tell for the whole month, `(hour, building)` by name."""
    month = load_month(buildings)
    shared = {
        name: np.repeat(load_shared(name)[:, None], len(buildings), axis=1)
        for name in SHARED_BEFORE + SHARED_AFTER
    }
    return {
        **shared,
        "non_shiftable_load": month.plug_load,
        "solar_generation": month.solar,
        "occupant_count": month.occupants,
        "indoor_dry_bulb_temperature_set_point": month.set_point,
    }


def caused_ranges(
    buildings: tuple[int, ...],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Low and high of the caused numbers, per building, as CityLearn estimates them."""
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


def observe(
    layout: Layout, hour: Int[Array, ""], caused: Caused
) -> Float[Array, " observation"]:
    """Everything seen after `hour`, each number scaled by its range."""
    values = jnp.concatenate([jnp.asarray(layout.known)[hour], *caused])
    return (values[layout.source] - layout.low) / layout.span


def read(
    layout: Layout, observation: Float[Array, "*batch observation"], name: str
) -> Float[Array, "*batch place"]:
    """A number in its own unit, by name; one place a building, or one if shared."""
    places = [i for i, known in enumerate(layout.names) if known == name]
    if not places:
        near = difflib.get_close_matches(name, layout.names, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"expected the name of an observation, got {name!r}.{hint} "
            f"Known: {', '.join(dict.fromkeys(layout.names))}."
        )
    where = np.array(places, np.int32)
    return observation[..., where] * layout.span[where] + layout.low[where]
