"""Running statistics of observations, for networks that want them scaled.

Part of an agent's state, so that a checkpoint and an exported policy scale alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from orac.config.schema import AgentConfig


class ObservationStats(NamedTuple):
    """Running mean and variance of every observation seen."""

    seen: Int[Array, ""]
    mean: Float[Array, " observation"]
    variance: Float[Array, " observation"]


def init(size: int) -> ObservationStats:
    """Nothing seen yet."""
    return ObservationStats(jnp.int32(0), jnp.zeros(size), jnp.zeros(size))


def observe(
    stats: ObservationStats, observation: Float[Array, "batch observation"]
) -> ObservationStats:
    """Take observations in (Chan's pairwise update)."""
    seen = stats.seen + observation.shape[0]
    # Numerics: as shares of the whole; sums in float32 stop growing after 2^24 steps.
    share = observation.shape[0] / seen
    step = observation.mean(axis=0) - stats.mean
    variance = (1 - share) * stats.variance + share * observation.var(axis=0)
    return ObservationStats(
        seen, stats.mean + share * step, variance + share * (1 - share) * step**2
    )


def known_variance(stats: ObservationStats) -> Float[Array, " observation"]:
    """The variance to scale by: 1 while fewer than two observations were seen."""
    return jnp.where(stats.seen < 2, 1.0, stats.variance)


def scale(stats: ObservationStats, observation: Array, config: AgentConfig) -> Array:
    """Observations as the networks see them."""
    if not config.normalize_observations:
        return observation
    # Numerics: a constant feature has no spread; it is left at 0, not blown up.
    spread = known_variance(stats) + 1e-6
    scaled = (observation - stats.mean) * jax.lax.rsqrt(spread)
    return jnp.clip(scaled, -10, 10)
