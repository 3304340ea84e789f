"""What a building has today: fixed rules, to compare a learned agent with.

Each rule is a frozen object that maps observations to actions, one or a batch; it sees
what an agent sees and nothing else. The defaults were calibrated on Building 1 with the
default outages (means of reward and cost over episodes stand beside each rule).
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from orac.envs.citylearn.env import CityLearn

Observations = Float[Array, "*batch observation"]
Actions = Float[Array, "*batch action"]
Rule = Callable[[Observations], Actions]


@dataclass(frozen=True)
class UniformRandom:
    """Even noise on all devices: reward -1649, cost 5665."""

    env: CityLearn
    seed: int = 0

    def __call__(self, observation: Observations) -> Actions:
        # A rule has no key and must stay pure under jit, so the observation itself is
        # hashed into one; the place in the batch keeps equal observations apart.
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
    """Everything off, storage left alone: reward -368, cost 6928."""

    env: CityLearn

    def __call__(self, observation: Observations) -> Actions:
        off = jnp.zeros_like(self.env.read(observation, "power_outage"))
        return join(tank=off, battery=off, cooling=off)


@dataclass(frozen=True)
class Thermostat:
    """Cool in proportion to heat indoors and outdoors: reward -699, cost 777."""

    env: CityLearn
    base: float = 0.05
    """Share of the cooling power when all temperatures are at the set point."""
    gain: float = 0.08
    """Share more for each degree that it is too warm indoors."""
    outdoor_gain: float = 0.013
    """Share more for each degree by which it is warmer outdoors than the set point."""

    def __call__(self, observation: Observations) -> Actions:
        cooling = self.cooling(observation)
        idle = jnp.zeros_like(cooling)
        return join(tank=idle, battery=idle, cooling=cooling)

    def cooling(self, observation: Observations) -> Float[Array, "*batch building"]:
        """Share of the cooling power, per building."""
        set_point = self.env.read(observation, "indoor_dry_bulb_temperature_set_point")
        indoor = self.env.read(observation, "indoor_dry_bulb_temperature")
        outdoor = self.env.read(observation, "outdoor_dry_bulb_temperature")
        share = (
            self.base
            + self.gain * (indoor - set_point)
            + self.outdoor_gain * (outdoor - set_point)
        )
        return jnp.clip(share, 0.0, 1.0)


@dataclass(frozen=True)
class BatteryReserve:
    """A thermostat that keeps the battery full for outages: reward -751, cost 587."""

    env: CityLearn
    base: float = 0.08
    gain: float = 0.06
    outdoor_gain: float = 0.014
    """These three as in `Thermostat`."""
    charge: float = 1.0
    """Share of the battery's power to charge with while there is a grid."""
    discharge: float = 0.06
    """Share of the battery's power to give in an outage, so that it lasts for hours."""

    def __call__(self, observation: Observations) -> Actions:
        thermostat = Thermostat(self.env, self.base, self.gain, self.outdoor_gain)
        cooling = thermostat.cooling(observation)
        outage = self.env.read(observation, "power_outage") > 0.5
        battery = jnp.where(outage, -self.discharge, self.charge)
        return join(tank=jnp.zeros_like(cooling), battery=battery, cooling=cooling)


RULES: dict[str, Callable[[CityLearn], Rule]] = {
    "uniform_random": UniformRandom,
    "no_cooling": NoCooling,
    "thermostat": Thermostat,
    "battery_reserve": BatteryReserve,
}


def make_rule(name: str, env: CityLearn) -> Rule:
    """The rule of this name with its default numbers."""
    if name not in RULES:
        near = difflib.get_close_matches(name, RULES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"expected one of the rules {', '.join(RULES)}, got {name!r}.{hint}"
        )
    return RULES[name](env)


def join(
    tank: Float[Array, "*batch building"],
    battery: Float[Array, "*batch building"],
    cooling: Float[Array, "*batch building"],
) -> Actions:
    """Actions of all buildings; `cooling` is a share of the power in [0, 1]."""
    parts = jnp.stack([tank, battery, 2 * cooling - 1], axis=-1)
    return parts.reshape(*parts.shape[:-2], -1)
