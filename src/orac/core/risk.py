# pyright: strict, reportUnknownMemberType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Risk measures, which turn the quantiles of a cost into one number.

Every measure here is given by a distortion: an increasing map D of levels with D(0) = 0 and
D(1) = 1. (Entropic measures such as EVaR are not distortions and are not included.) An
atom that occupies the levels [a, b] has the weight D(b) - D(a). This is exact for a step
distribution at any tail: a tail of 0.05 contains 1.6 of 32 equal atoms. The optimistic
risks (16), (28) and (38) have no separate code. They are (11), (26) and (34) applied to the
optimistic quantiles of (15). High costs are bad, so the tail is the upper end of the
distribution.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Shaped

from orac.config.schema import RiskMeasure

Levels = Float[Array, "*shape"]
LevelMap = Callable[[Levels, float], Levels]


class Distortion(NamedTuple):
    """The map D of a family of risk measures, and its inverse."""

    distort: LevelMap
    inverse: LevelMap


def _cpw(levels: Levels, power: float) -> Levels:
    survival = 1 - levels
    weight = survival**power / (survival**power + levels**power) ** (1 / power)
    return 1 - weight


def _inverse_cpw(levels: Levels, power: float) -> Levels:
    # Numerics: the inverse has no closed form, so it is interpolated from a table. D rises
    # like a power at both ends, so the table is denser there.
    steps = jnp.linspace(0.0, 1.0, 4097)
    half = (2 * jnp.minimum(steps, 1 - steps)) ** (1 / power) / 2
    grid = jnp.where(steps < 0.5, half, 1 - half)
    return jnp.interp(levels, _cpw(grid, power), grid)


DISTORTIONS: dict[str, Distortion] = {
    "mean": Distortion(lambda u, parameter: u, lambda u, parameter: u),
    "cvar": Distortion(
        # Numerics: D is computed from the upper end, so that D(1) is exactly 1 at any tail.
        lambda u, tail: 1 - jnp.clip((1 - u) / tail, 0, 1),
        lambda u, tail: 1 - tail + tail * u,
    ),
    "wang": Distortion(
        lambda u, shift: ndtr(ndtri(u) - shift), lambda u, shift: ndtr(ndtri(u) + shift)
    ),
    "power": Distortion(
        lambda u, power: 1 - (1 - u) ** (1 / (1 + power)),
        lambda u, power: 1 - (1 - u) ** (1 + power),
    ),
    "dual_power": Distortion(
        lambda u, power: u ** (1 + power), lambda u, power: u ** (1 / (1 + power))
    ),
    "cpw": Distortion(_cpw, _inverse_cpw),
}
"""Distortions by the measure's name. To add a measure, also enter its parameter range in
`config.schema.RISK_FAMILIES`."""


def cvar(tail: float) -> RiskMeasure:
    """Return CVaR: the mean of the worst outcomes, whose mass is `tail`. Eq. (3)."""
    return RiskMeasure("cvar", tail)


def distort(measure: RiskMeasure, levels: Levels) -> Levels:
    """Return D, the total weight below each level. Eq. (5).

    D is the integral of the measure's spectrum.
    """
    # Deviates from Eq. (5): there alpha is a quantile level, while in (3) and in every
    # experiment alpha is the mass of the worst cases. Here `tail` is always this mass.
    return DISTORTIONS[measure.name].distort(levels, measure.parameter)


def distort_levels(measure: RiskMeasure, levels: Levels) -> Levels:
    """Map levels by the inverse of D.

    The risk is the sum of the quantiles at the mapped levels, weighted by the widths of the
    original intervals. For CVaR the map is from [0, 1] to [1 - tail, 1], so that an implicit
    network computes only quantiles in the tail.
    """
    return DISTORTIONS[measure.name].inverse(levels, measure.parameter)


def level_weights(
    measure: RiskMeasure, widths: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile"]:
    """Return the weights of atoms with these widths, sorted from low to high. Eq. (32).

    If u are the cumulative sums of the widths, the weights are w_k = D(u_k) - D(u_{k-1}).
    This is exact for any step distribution.
    """
    # Traced widths have no values to check.
    if not isinstance(widths, Tracer):
        valid = jnp.isfinite(widths).all() and (widths >= 0).all()
        if not valid or not (widths.sum(axis=-1) > 0).all():
            raise ValueError(
                "widths must be finite, at least 0 and have a positive sum along the last "
                f"axis, got {widths}. Use 1 / number of quantiles for equal ones."
            )
    upper = jnp.cumsum(widths, axis=-1)
    # Numerics: rounding may move the last level away from 1, and some D are steep near 1.
    upper = jnp.clip(upper / upper[..., -1:], 0, 1)
    lower = jnp.concatenate([jnp.zeros_like(upper[..., :1]), upper[..., :-1]], axis=-1)
    return distort(measure, upper) - distort(measure, lower)


def risk_of(
    quantiles: Float[Array, "*batch quantile"],
    weights: Float[Array, "*#batch quantile"],
) -> Float[Array, "*batch"]:
    """Return the risk of a distribution given by quantiles: a dot product. Eq. (11).

    If the weights are the widths of levels, this is (26) for levels in the tail and (25)
    for levels in all of [0, 1]. For optimistic quantiles it is (16) and (28). In (16) as
    printed, the sum over k lacks the factor 1/K.
    """
    return (quantiles * weights).sum(axis=-1)


def sample_risk(
    samples: Shaped[Array, "*batch"], measure: RiskMeasure
) -> Float[Array, "..."]:
    """Return the risk of an empirical distribution with equal weights. Eq. (4)."""
    if samples.ndim == 0 or samples.shape[-1] == 0:
        raise ValueError(
            "samples must contain at least one value, got none. Run at least one episode."
        )
    if not jnp.issubdtype(samples.dtype, jnp.floating):
        # Costs may be whole numbers, such as counts of violations, but their risk is not.
        samples = samples.astype(jnp.result_type(float))
    widths = jnp.full(samples.shape[-1:], 1 / samples.shape[-1], samples.dtype)
    return risk_of(jnp.sort(samples, axis=-1), level_weights(measure, widths))


def tail_excess(
    quantiles: Float[Array, "*batch quantile"],
    pivot: Float[Array, "*#batch"],
    tail: float,
) -> Float[Array, "*batch quantile"]:
    """Return max(q - pivot, 0) / tail, the scaled excess over the pivot. Eq. (33).

    The two slopes, 0 and 1 / tail, are the steps of the spectrum of CVaR.
    """
    return jnp.maximum(quantiles - pivot[..., None], 0) / tail


def dual_risk(
    quantiles: Float[Array, "*batch quantile"],
    pivot: Float[Array, "*#batch"],
    tail: float,
) -> Float[Array, "*batch"]:
    """Return the dual form of CVaR at a given pivot, an upper bound on CVaR. Eq. (34).

    The result is mean_k max(q_k - pivot, 0) / tail + pivot. It is smallest, and equal to
    CVaR, if the pivot is the value at risk. For CVaR, the integral of the conjugate in (34)
    is the pivot.
    """
    cvar(tail)  # Checks the tail.
    return tail_excess(quantiles, pivot, tail).mean(axis=-1) + pivot


def dual_tail(measure: RiskMeasure) -> float:
    """Return the tail of a measure whose dual form has one pivot. Eq. (30).

    Such measures are CVaR and the mean, which is CVaR at a tail of 1. Others raise an error.
    """
    return measure.dual_tail
