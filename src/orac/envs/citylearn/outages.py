"""When the grid is down, and how a building came through it.

The outages follow CityLearn's reliability-metrics model, drawn with JAX keys: on each
day after the first one starts with probability `saifi / 365`, at an hour drawn evenly,
and lasts an exponential time with mean `caidi` minutes, cut to whole hours (so some last
no hour at all). Overlapping outages merge and the month's end cuts the last. There is
one grid, so the buildings share its outages.

Two fractions tell of them. Unserved energy is what was asked for in outages and not
delivered; it can be gamed, because asking for less cooling lowers it. Violations are the
occupied outage hours in which the temperature left the comfort band.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from orac.envs.citylearn.building import Flows
from orac.envs.citylearn.data import NUM_HOURS

HOURS_PER_DAY = 24
MOST_MINUTES = 60 * HOURS_PER_DAY * 365
"""Interruptions of a year on average are the longest that mean anything."""

PerBuilding = Float[Array, " building"]


class Outcome(NamedTuple):
    """Sums over the outage hours of an episode so far: kWh, kWh, hours, hours."""

    requested: PerBuilding
    unserved: PerBuilding
    occupied: PerBuilding
    violated: PerBuilding


def draw_outages(
    key: Key[Array, ""], saifi: float, caidi: float
) -> Bool[Array, " hour"]:
    """Which hours of a month have no grid.

    `saifi` is the number of interruptions a year, `caidi` their mean length in minutes.
    """
    # CityLearn never lets an outage start on day 0, because it picks out the days with
    # an outage by their index being other than zero.
    days = jnp.arange(1, NUM_HOURS // HOURS_PER_DAY)
    happen_key, start_key, length_key = jax.random.split(key, 3)
    happens = jax.random.bernoulli(happen_key, saifi / 365, days.shape)
    start = days * HOURS_PER_DAY
    start += jax.random.randint(start_key, days.shape, 0, HOURS_PER_DAY)
    minutes = caidi * jax.random.exponential(length_key, days.shape, jnp.float32)
    # Numerics: whole numbers end at 2**31; a month is as good as for ever.
    hours = jnp.minimum(jnp.floor(minutes / 60), NUM_HOURS)
    end = start + hours.astype(start.dtype)
    hour = jnp.arange(NUM_HOURS)[:, None]
    return (happens & (start <= hour) & (hour < end)).any(axis=1)


def init_outcome(num_buildings: int) -> Outcome:
    """Nothing happened yet."""
    nothing = jnp.zeros(num_buildings, jnp.float32)
    return Outcome(nothing, nothing, nothing, nothing)


def count_hour(
    outcome: Outcome,
    outage: Bool[Array, ""],
    flows: Flows,
    occupied: Bool[Array, " building"],
    violated: Bool[Array, " building"],
) -> Outcome:
    """Add an hour to the sums if it is an outage."""
    missing = flows.requested - flows.served
    return Outcome(
        requested=outcome.requested + jnp.where(outage, flows.requested, 0.0),
        unserved=outcome.unserved + jnp.where(outage, missing, 0.0),
        occupied=outcome.occupied + (outage & occupied),
        violated=outcome.violated + (outage & occupied & violated),
    )


def outage_metrics(outcome: Outcome) -> dict[str, Float[Array, ""]]:
    """The two fractions so far, means over buildings; zero before any outage."""

    def share(part: PerBuilding, whole: PerBuilding) -> Float[Array, ""]:
        return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), 0.0).mean()

    return {
        "unserved_energy": share(outcome.unserved, outcome.requested),
        "outage_violations": share(outcome.violated, outcome.occupied),
    }
