"""CityLearn: keep a building cool and draw little from a grid that sometimes fails.

One month of hours in one to three buildings with a heat pump, a hot water tank, solar
panels and a battery. The reward is minus the electricity drawn from the grid, the cost
how far the indoor temperature is from its set point. Pure JAX and the same numbers as
CityLearn 2.1.2 (Vázquez-Canteli et al., arXiv:2012.10504), hour by hour, except that the
outages are drawn afresh at every reset: CityLearn's data set repeats one month of them.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.envs.base import EnvSpec, Step
from orac.envs.citylearn import observation as seen
from orac.envs.citylearn.building import (
    Action,
    Flows,
    Storage,
    init_flows,
    init_storage,
    run_hour,
)
from orac.envs.citylearn.data import (
    NUM_BUILDINGS,
    NUM_HOURS,
    Hours,
    load_battery,
    load_devices,
    load_month,
)
from orac.envs.citylearn.indoor import (
    WARM_UP,
    Indoor,
    init_indoor,
    load_model,
    next_temperature,
    temperature_range,
)
from orac.envs.citylearn.outages import (
    MOST_MINUTES,
    Outcome,
    count_hour,
    draw_outages,
    init_outcome,
    outage_metrics,
)
from orac.envs.metrics import MetricSpec

PerBuilding = Float[Array, " building"]
Buildings = tuple[int, ...] | Any
"""A tuple once the environment is made; users may write one number or a list."""

REWARDS: dict[str, Callable[[PerBuilding, Hours], PerBuilding]] = {
    "import": lambda net, hour: -jnp.maximum(net, 0.0),
    "net": lambda net, hour: -net,
    "price": lambda net, hour: -jnp.maximum(net, 0.0) * hour.price,
    "carbon": lambda net, hour: -jnp.maximum(net, 0.0) * hour.carbon,
}
"""An hour's reward by name: minus kWh drawn, kWh net, dollars or kg of CO2 for kWh."""


class State(NamedTuple):
    """One episode, at the end of `hour`."""

    hour: Int[Array, ""]
    outage: Bool[Array, " hour"]
    storage: Storage
    indoor: Indoor
    outcome: Outcome


@dataclass(frozen=True)
class CityLearn:
    """The environment; rewards, costs and metrics are means over its buildings.

    An action has three numbers in [-1, 1] a building: charge of the hot water tank (as
    a share of its capacity), charge of the battery (as a share of its power), and
    cooling (-1 is off, 1 full power). Cooling has no effect in the first 13 hours.
    """

    buildings: Buildings = (1,)
    """Which of the three buildings, numbered from 1; one number or a list will do."""
    saifi: float = 183.0
    """Interruptions a year; the default leaves a tenth of all hours without grid."""
    caidi: float = 331.2
    """Mean length of an interruption, in minutes."""
    comfort_band: float = 1.0
    """Degrees from the set point beyond which an outage hour counts as a violation."""
    reward: str = "import"
    """A name in `REWARDS`."""

    METRICS: ClassVar = (
        MetricSpec("unserved_energy", "unserved energy", "lower", low=0, high=1),
        MetricSpec("outage_violations", "outage violations", "lower", low=0, high=1),
    )

    def __post_init__(self) -> None:
        # Frozen, and hashed under jit: what the user wrote becomes a tuple once, here.
        object.__setattr__(self, "buildings", checked_buildings(self.buildings))
        check_number("saifi", self.saifi, 365, "It counts interruptions a year.")
        check_number("caidi", self.caidi, MOST_MINUTES, "It is a mean of minutes.")
        check_number("comfort_band", self.comfort_band, 100, "It is in degrees C.")
        if self.reward not in REWARDS:
            near = difflib.get_close_matches(self.reward, REWARDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"reward must be one of {', '.join(REWARDS)}, got {self.reward!r}.{hint}"
            )

    @property
    def spec(self) -> EnvSpec:
        """Sizes, boxes, names and bounds, which depend on the buildings."""
        size = 3 * len(self.buildings)
        return EnvSpec(
            name="CityLearn",
            observation_size=len(self.layout.names),
            action_low=(-1.0,) * size,
            action_high=(1.0,) * size,
            episode_length=NUM_HOURS - 1,
            cost_bounds=(most_discomfort(self.buildings),),
            metrics=self.METRICS,
        )

    @property
    def layout(self) -> seen.Layout:
        """Names and ranges of the observations."""
        return seen.load_layout(self.buildings)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Float[Array, " observation"]]:
        """Start the month, with outages of its own."""
        state = State(
            hour=jnp.int32(0),
            outage=draw_outages(key, self.saifi, self.caidi),
            storage=init_storage(load_battery(self.buildings)),
            indoor=init_indoor(len(self.buildings)),
            outcome=init_outcome(len(self.buildings)),
        )
        first = self.rows(state.hour)
        flows = init_flows(load_devices(self.buildings), first)
        return state, self.observe(state, flows, first.ideal_temperature)

    def step(
        self, key: Key[Array, ""], state: State, action: Float[Array, " action"]
    ) -> tuple[State, Step]:
        """One hour. Nothing is random here: the month's outages are in the state."""
        hour = state.hour + 1
        now, outage = self.rows(hour), state.outage[hour]
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
        outcome = count_hour(
            state.outcome, outage, flows, now.occupants > 0, gap > self.comfort_band
        )
        after = State(hour, state.outage, storage, indoor, outcome)
        return after, Step(
            observation=self.observe(after, flows, temperature),
            reward=REWARDS[self.reward](flows.net, now).mean(),
            cost=gap.mean(keepdims=True),
            terminated=jnp.bool_(False),
            truncated=hour >= NUM_HOURS - 1,
            metrics=outage_metrics(outcome),
        )

    def rows(self, hour: Int[Array, ""]) -> Hours:
        """The data of one hour."""
        return Hours(*(jnp.asarray(rows)[hour] for rows in load_month(self.buildings)))

    def scale(self, action: Float[Array, " action"]) -> Action:
        """From [-1, 1] to shares of capacity and power, as CityLearn takes them."""
        battery = load_battery(self.buildings)
        tank, charge, cooling = jnp.clip(action, -1.0, 1.0).reshape(-1, 3).T
        most = (battery.power / battery.capacity).astype(np.float32)
        return Action(tank=tank, battery=charge * most, cooling=(cooling + 1) / 2)

    def observe(
        self, state: State, flows: Flows, temperature: PerBuilding
    ) -> Float[Array, " observation"]:
        """What the agent sees at the end of an hour."""
        outage = state.outage[state.hour]
        caused = seen.Caused(
            indoor_dry_bulb_temperature=temperature,
            dhw_storage_soc=state.storage.tank,
            electrical_storage_soc=state.storage.battery.level,
            net_electricity_consumption=flows.net,
            cooling_demand=flows.cooling,
            dhw_demand=flows.hot_water,
            power_outage=jnp.full_like(temperature, outage),
        )
        return seen.observe(self.layout, state.hour, caused)

    def read(
        self, observation: Float[Array, "*batch observation"], name: str
    ) -> Float[Array, "*batch place"]:
        """A number of an observation in its own unit; names are CityLearn's."""
        return seen.read(self.layout, observation, name)


def checked_buildings(buildings: Any) -> tuple[int, ...]:
    """Some of the data set's buildings, each once, as a tuple."""
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
            f"{buildings!r}. Write (1,) for the first building alone."
        )
    return tuple(numbers)


def check_number(name: str, value: Any, most: float, meaning: str) -> None:
    """Raise unless a parameter is a number in its range; NaN is in none."""
    is_number = isinstance(value, int | float | np.number)
    if not is_number or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(
            f"{name} must be a number in [0, {most}], got {value!r}. {meaning}"
        )


def most_discomfort(buildings: tuple[int, ...]) -> float:
    """A sum that no episode's cost can exceed, from the temperature model's range."""
    coldest, hottest = temperature_range(load_model(buildings))
    month = load_month(buildings)
    recorded = np.abs(month.ideal_temperature - month.set_point)
    widest = np.maximum(hottest - month.set_point, month.set_point - coldest)
    worst = np.where(np.arange(NUM_HOURS)[:, None] < WARM_UP, recorded, widest)
    # Numerics: the margin is for sums in single precision.
    return float(worst[1:].mean(axis=1).sum() * 1.001)
