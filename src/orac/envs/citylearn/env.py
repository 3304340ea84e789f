"""CityLearn: cool a building, import little electricity, and cope with power outages.

An episode simulates a month in hourly steps. There are one to three buildings, each with a
heat pump, a hot water tank, solar panels and a battery. The reward is minus the electricity
imported from the grid. The cost is the distance between the indoor temperature and its set
point. The environment is pure JAX and simulates the same numbers as CityLearn 2.1.2
(Vázquez-Canteli et al., arXiv:2012.10504), hour by hour and up to rounding, if the outages
are the same. CityLearn's data set has the same outages in every episode, but here every
reset draws new ones, and all buildings share them.

Observations have the names, order and ranges that CityLearn uses for a central agent. For
each building there are eleven numbers that describe only this building. Those of the first
building come first, together with the shared ones: calendar, weather, carbon intensity and
prices. The numbers of the other buildings follow. A value may leave its range, because
CityLearn only estimates some of the ranges. All values belong to the hour that has just
ended, except for CityLearn's forecasts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.validation import check_choice, check_range
from orac.envs.base import EnvSpec, MetricSpec, Step
from orac.envs.citylearn.building import (
    Action,
    Flows,
    PerBuilding,
    Storage,
    init_flows,
    init_storage,
    run_hour,
)
from orac.envs.citylearn.data import (
    NUM_BUILDINGS,
    NUM_HOURS,
    HourlyData,
    load_battery,
    load_devices,
    load_month,
    load_shared,
)
from orac.envs.citylearn.temperature import (
    WARM_UP,
    IndoorState,
    init_indoor,
    load_model,
    next_temperature,
)

HOURS_PER_DAY = 24
MINUTES_PER_YEAR = 60 * HOURS_PER_DAY * 365

Buildings = tuple[int, ...] | Any
"""The buildings to simulate, by number. A single number or a list is turned into a tuple."""

REWARDS: dict[str, Callable[[PerBuilding, HourlyData], PerBuilding]] = {
    "import": lambda net, hour: -jnp.maximum(net, 0.0),
    "net": lambda net, hour: -net,
    "price": lambda net, hour: -jnp.maximum(net, 0.0) * hour.price,
    "carbon": lambda net, hour: -jnp.maximum(net, 0.0) * hour.carbon,
}
"""Functions that return the reward of an hour, by name: minus the imported kWh, the net
kWh, the dollars or the kilograms of CO2."""


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
    """Name of each number. All buildings have the same names for their own numbers."""
    exogenous: np.ndarray
    """Values from the data, `(hour, observation)`; zero where a number is simulated."""
    source: np.ndarray
    """Index of each number in the concatenation of a row of `exogenous` and the simulated
    values."""
    low: np.ndarray
    span: np.ndarray


class Outcome(NamedTuple):
    """Sums over the outage hours of an episode so far.

    `requested` and `unserved` are in kWh. `occupied` and `violated` are numbers of hours.
    """

    requested: PerBuilding
    unserved: PerBuilding
    occupied: PerBuilding
    violated: PerBuilding


class CityLearnState(NamedTuple):
    """State of an episode at the end of `hour`."""

    hour: Int[Array, ""]
    outage: Bool[Array, " hour"]
    storage: Storage
    indoor: IndoorState
    outcome: Outcome


@dataclass(frozen=True)
class CityLearn:
    """The environment. Rewards, costs and metrics are means over its buildings.

    An action has three numbers in [-1, 1] per building: charge of the hot water tank (as a
    fraction of its capacity), charge of the battery (as a fraction of its power), and
    cooling (-1 is off, 1 is full power). Cooling has no effect in the first 13 hours.
    """

    buildings: Buildings = (1,)
    """Which of the buildings 1 to 3 to simulate; one number or a list."""
    saifi: float = 183.0
    """Outages per year. With the default, about 10 % of the hours have no grid power."""
    caidi: float = 331.2
    """Mean duration of an outage, in minutes."""
    comfort_band: float = 1.0
    """Degrees from the set point beyond which an outage hour counts as a violation."""
    max_deviation: float = 20.0
    """Degrees from the set point at which the cost of an hour stops growing.

    Without such a maximum, there is no useful bound on the cost of an episode, which
    certificates need. The distance stays below 20 degrees even if the building is never
    cooled or always cooled at full power.
    """
    reward: str = "import"
    """One of the names in `REWARDS`."""

    METRICS: ClassVar = (
        MetricSpec("unserved_energy", "unserved energy", "lower", low=0, high=1),
        MetricSpec("outage_violations", "outage violations", "lower", low=0, high=1),
    )

    def __post_init__(self) -> None:
        # The environment is frozen and hashed under jit, so lists become tuples here.
        object.__setattr__(self, "buildings", _checked_buildings(self.buildings))
        check_range("saifi", self.saifi, 0, 365, advice="It is outages per year.")
        check_range(
            "caidi", self.caidi, 0, MINUTES_PER_YEAR, advice="It is in minutes."
        )
        check_range(
            "comfort_band", self.comfort_band, 0, 100, advice="It is in degrees C."
        )
        check_range(
            "max_deviation", self.max_deviation, 1, 100, advice="It is in degrees C."
        )
        check_choice("reward", self.reward, REWARDS)

    @property
    def spec(self) -> EnvSpec:
        """Sizes, bounds and names, which depend on the buildings."""
        size = 3 * len(self.buildings)
        return EnvSpec(
            name="CityLearn",
            observation_size=len(self.layout.names),
            action_low=(-1.0,) * size,
            action_high=(1.0,) * size,
            episode_length=NUM_HOURS - 1,
            # Numerics: the factor leaves a margin for sums in single precision.
            cost_bounds=(self.max_deviation * (NUM_HOURS - 1) * 1.001,),
            metrics=self.METRICS,
        )

    @property
    def layout(self) -> Layout:
        """Names and ranges of the observations."""
        return load_layout(self.buildings)

    def reset(
        self, key: Key[Array, ""]
    ) -> tuple[CityLearnState, Float[Array, " observation"]]:
        """Start the month with newly drawn outages."""
        state = CityLearnState(
            hour=jnp.int32(0),
            outage=draw_outages(key, self.saifi, self.caidi),
            storage=init_storage(load_battery(self.buildings)),
            indoor=init_indoor(len(self.buildings)),
            outcome=Outcome(*[jnp.zeros(len(self.buildings), jnp.float32)] * 4),
        )
        first = self._data_of(state.hour)
        flows = init_flows(load_devices(self.buildings), first)
        return state, self._observe(state, flows, first.ideal_temperature)

    def step(
        self,
        key: Key[Array, ""],
        state: CityLearnState,
        action: Float[Array, " action"],
    ) -> tuple[CityLearnState, Step]:
        """Simulate one hour. This is deterministic, because `reset` drew the outages."""
        hour = state.hour + 1
        now, outage = self._data_of(hour), state.outage[hour]
        storage, flows = run_hour(
            load_devices(self.buildings),
            load_battery(self.buildings),
            now,
            state.storage,
            self.scale(action),
            outage,
            hour > WARM_UP,
        )
        indoor, temperature = next_temperature(
            load_model(self.buildings),
            state.indoor,
            hour,
            flows.cooling,
            now.ideal_temperature,
        )
        gap = jnp.abs(temperature - now.set_point)
        outcome = _count_hour(
            state.outcome, outage, flows, now.occupants > 0, gap > self.comfort_band
        )
        after = CityLearnState(hour, state.outage, storage, indoor, outcome)
        return after, Step(
            observation=self._observe(after, flows, temperature),
            reward=REWARDS[self.reward](flows.net, now).mean(),
            cost=jnp.minimum(gap, self.max_deviation).mean(keepdims=True),
            terminated=jnp.bool_(False),
            truncated=hour >= NUM_HOURS - 1,
            metrics={
                "unserved_energy": _mean_ratio(outcome.unserved, outcome.requested),
                "outage_violations": _mean_ratio(outcome.violated, outcome.occupied),
            },
        )

    def scale(self, action: Float[Array, " action"]) -> Action:
        """Scale an action from [-1, 1] to the fractions that CityLearn expects."""
        battery = load_battery(self.buildings)
        tank, charge, cooling = jnp.clip(action, -1.0, 1.0).reshape(-1, 3).T
        max_charge = (battery.power / battery.capacity).astype(np.float32)
        return Action(tank=tank, battery=charge * max_charge, cooling=(cooling + 1) / 2)

    def read(
        self, observation: Float[Array, "*batch observation"], name: str
    ) -> Float[Array, "*batch place"]:
        """Return the entries with this name, converted back to their units.

        There is one entry per building, or a single one if all buildings share it.
        """
        layout = self.layout
        check_choice("The name of an observation", name, dict.fromkeys(layout.names))
        where = np.flatnonzero(np.array(layout.names) == name).astype(np.int32)
        return observation[..., where] * layout.span[where] + layout.low[where]

    def _data_of(self, hour: Int[Array, ""]) -> HourlyData:
        month = load_month(self.buildings)
        return HourlyData(*(jnp.asarray(rows)[hour] for rows in month))

    def _observe(
        self, state: CityLearnState, flows: Flows, temperature: PerBuilding
    ) -> Float[Array, " observation"]:
        """Return the observation at the end of an hour, each number scaled by its range."""
        outage = state.outage[state.hour]
        simulated = SimulatedValues(
            indoor_dry_bulb_temperature=temperature,
            dhw_storage_soc=state.storage.tank,
            electrical_storage_soc=state.storage.battery.level,
            net_electricity_consumption=flows.net,
            cooling_demand=flows.cooling,
            dhw_demand=flows.hot_water,
            power_outage=jnp.full_like(temperature, outage),
        )
        layout = self.layout
        exogenous = jnp.asarray(layout.exogenous)[state.hour]
        values = jnp.concatenate([exogenous, *simulated])
        return (values[layout.source] - layout.low) / layout.span


@cache
def load_layout(buildings: tuple[int, ...]) -> Layout:
    """Return the order, data and ranges of the observations of the chosen buildings."""
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
    """Return CityLearn's estimates of the minimum and maximum of the simulated values."""
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


def draw_outages(
    key: Key[Array, ""], saifi: float, caidi: float
) -> Bool[Array, " hour"]:
    """Return which hours of a month have no grid power; all buildings share the same grid.

    This is CityLearn's reliability-metrics model. On each day except the first, an outage
    starts with probability `saifi / 365` at a uniformly drawn hour. Its duration is
    exponential with a mean of `caidi` minutes and is rounded down to whole hours, so some
    outages last zero hours. Overlapping outages merge, and the end of the month cuts the
    last one short.
    """
    # CityLearn never starts an outage on day 0, because it leaves out the index 0.
    days = jnp.arange(1, NUM_HOURS // HOURS_PER_DAY)
    happen_key, start_key, length_key = jax.random.split(key, 3)
    happens = jax.random.bernoulli(happen_key, saifi / 365, days.shape)
    start = days * HOURS_PER_DAY
    start += jax.random.randint(start_key, days.shape, 0, HOURS_PER_DAY)
    minutes = caidi * jax.random.exponential(length_key, days.shape, jnp.float32)
    # Numerics: without this limit, an outage could exceed the largest integer, 2**31 - 1.
    hours = jnp.minimum(jnp.floor(minutes / 60), NUM_HOURS)
    end = start + hours.astype(start.dtype)
    hour = jnp.arange(NUM_HOURS)[:, None]
    return (happens & (start <= hour) & (hour < end)).any(axis=1)


def _count_hour(
    outcome: Outcome,
    outage: Bool[Array, ""],
    flows: Flows,
    occupied: Bool[Array, " building"],
    violated: Bool[Array, " building"],
) -> Outcome:
    """Add an hour to the sums if it is an outage hour.

    Unserved energy is the energy that was requested in outages but not delivered. An agent
    can lower it by requesting less cooling, so violations are counted too. These are the
    occupied outage hours in which the temperature left the comfort band.
    """
    missing = flows.requested - flows.served
    return Outcome(
        requested=outcome.requested + jnp.where(outage, flows.requested, 0.0),
        unserved=outcome.unserved + jnp.where(outage, missing, 0.0),
        occupied=outcome.occupied + (outage & occupied),
        violated=outcome.violated + (outage & occupied & violated),
    )


def _mean_ratio(part: PerBuilding, whole: PerBuilding) -> Float[Array, ""]:
    """Return the mean of part / whole over buildings; zero where `whole` is zero."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), 0.0).mean()


def _checked_buildings(buildings: Any) -> tuple[int, ...]:
    """Return the numbers of the buildings as a tuple, or raise a `ValueError`."""
    listed = isinstance(buildings, tuple | list | np.ndarray)
    given = tuple(buildings) if listed else (buildings,)
    numbers = [
        int(number)
        for number in given
        if isinstance(number, int | np.integer) and not isinstance(number, bool)
    ]
    known = set(range(1, NUM_BUILDINGS + 1))
    if not given or len(set(numbers) & known) < len(given):
        raise ValueError(
            f"buildings must be different whole numbers from 1 to {NUM_BUILDINGS}, got "
            f"{buildings!r}. Write (1,) for only the first building."
        )
    return tuple(numbers)
