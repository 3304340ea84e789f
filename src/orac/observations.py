"""Running statistics of observations, for networks that want them scaled.

Part of an agent's state, so that a checkpoint and an exported policy scale alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from orac.config import AgentConfig


class ObservationStats(NamedTuple):
    """Running mean and summed squared deviation of every observation seen."""

    seen: Float[Array, ""]
    mean: Float[Array, " observation"]
    deviation: Float[Array, " observation"]


def init(size: int) -> ObservationStats:
    """Nothing seen yet."""
    return ObservationStats(jnp.float32(0), jnp.zeros(size), jnp.zeros(size))


def observe(
    stats: ObservationStats, observation: Float[Array, "batch observation"]
) -> ObservationStats:
    """Take observations in (Chan's pairwise update)."""
    new = observation.shape[0]
    count = stats.seen + new
    step = observation.mean(axis=0) - stats.mean
    deviation = jnp.square(observation - observation.mean(axis=0)).sum(axis=0)
    return ObservationStats(
        count,
        stats.mean + step * new / count,
        stats.deviation + deviation + step**2 * stats.seen * new / count,
    )


def scale(stats: ObservationStats, observation: Array, config: AgentConfig) -> Array:
    """Observations as the networks see them."""
    if not config.normalize_observations:
        return observation
    variance = stats.deviation / jnp.maximum(stats.seen, 1)
    # Numerics: a constant feature has no spread; it is left at 0, not blown up.
    scaled = (observation - stats.mean) * jax.lax.rsqrt(variance + 1e-6)
    return jnp.clip(scaled, -10, 10)
