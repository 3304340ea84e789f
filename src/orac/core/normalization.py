"""Running mean and variance of observations, which scale the networks' inputs.

These statistics are part of the agent's state, so that a checkpoint and an exported policy
scale observations in the same way. If rewards are normalised, the same functions compute
the statistics of episode returns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from orac.config.schema import AgentConfig


class ObservationStats(NamedTuple):
    """Running mean and variance of all observations so far."""

    seen: Int[Array, ""]
    """Number of observations so far."""
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
    # Numerics: these are weighted averages and not sums, because a float32 sum of ones
    # stops growing at 2^24.
    share = observation.shape[0] / seen
    step = observation.mean(axis=0) - stats.mean
    variance = (1 - share) * stats.variance + share * observation.var(axis=0)
    return ObservationStats(
        seen, stats.mean + share * step, variance + share * (1 - share) * step**2
    )


def safe_variance(stats: ObservationStats) -> Float[Array, " observation"]:
    """Return the variance, or 1 as long as fewer than two observations were seen."""
    return jnp.where(stats.seen < 2, 1.0, stats.variance)


def scale(stats: ObservationStats, observation: Array, config: AgentConfig) -> Array:
    """Return the observations for the networks: if the config says so, scaled and clipped."""
    if not config.normalize_observations:
        return observation
    # Numerics: adding 1e-6 keeps a constant entry, whose variance is 0, at 0.
    variance = safe_variance(stats) + 1e-6
    scaled = (observation - stats.mean) * jax.lax.rsqrt(variance)
    return jnp.clip(scaled, -10, 10)
