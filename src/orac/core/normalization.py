"""Running mean and variance of observations, to scale the networks' inputs.

They are part of the agent's state, so a checkpoint and an exported policy scale
observations in the same way.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from orac.config.schema import AgentConfig


class ObservationStats(NamedTuple):
    """Running mean and variance of all observations so far."""

    seen: Int[Array, ""]
    mean: Float[Array, " observation"]
    variance: Float[Array, " observation"]


def init(size: int) -> ObservationStats:
    """Return empty statistics."""
    return ObservationStats(jnp.int32(0), jnp.zeros(size), jnp.zeros(size))


def update(
    stats: ObservationStats, observation: Float[Array, "batch observation"]
) -> ObservationStats:
    """Add a batch of observations to the statistics (Chan's pairwise update)."""
    seen = stats.seen + observation.shape[0]
    # Numerics: weighted averages instead of sums, because a float32 sum of ones stops
    # growing at 2^24.
    share = observation.shape[0] / seen
    step = observation.mean(axis=0) - stats.mean
    variance = (1 - share) * stats.variance + share * observation.var(axis=0)
    return ObservationStats(
        seen, stats.mean + share * step, variance + share * (1 - share) * step**2
    )


def safe_variance(stats: ObservationStats) -> Float[Array, " observation"]:
    """Return the variance to scale by: 1 while fewer than two observations were seen."""
    return jnp.where(stats.seen < 2, 1.0, stats.variance)


def scale(stats: ObservationStats, observation: Array, config: AgentConfig) -> Array:
    """Return observations as the networks see them."""
    if not config.normalize_observations:
        return observation
    # Numerics: a constant feature has no spread; it stays at 0 instead of exploding.
    spread = safe_variance(stats) + 1e-6
    scaled = (observation - stats.mean) * jax.lax.rsqrt(spread)
    return jnp.clip(scaled, -10, 10)
