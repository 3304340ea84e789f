# pyright: strict, reportUnknownMemberType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Quantiles and weights to one number: every risk measure of the library.

A risk measure is a distortion: an increasing map of levels D with D(0) = 0 and
D(1) = 1. An atom that occupies the levels [a, b] weighs D(b) - D(a), which is exact for
a step distribution whatever the tail (32 quantiles and a tail of 0.05 hold 1.6 atoms).
The optimistic risks (16), (28) and (38) need no code of their own: they are (11), (26)
and (34) applied to the optimistic quantiles of (15). This room knows nothing of
critics, agents or environments; critics and evaluations of episodes use the same
functions. Costs are bad when high, so the tail is the upper one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Shaped

from orac.config.validation import check_choice, is_number

Levels = Float[Array, "*shape"]
LevelMap = Callable[[Levels, float], Levels]


class Distortion(NamedTuple):
    """A family of risk measures: D, its inverse, and the parameters it takes."""

    distort: LevelMap
    inverse: LevelMap
    valid: Callable[[float], bool]
    expects: str
    coherent: bool = True


def _cpw(levels: Levels, power: float) -> Levels:
    survival = 1 - levels
    weight = survival**power / (survival**power + levels**power) ** (1 / power)
    return 1 - weight


def _inverse_cpw(levels: Levels, power: float) -> Levels:
    # Numerics: no closed form; D is increasing, so a table inverts it. D rises like a
    # power at both ends, and the table is as dense there.
    steps = jnp.linspace(0.0, 1.0, 4097)
    half = (2 * jnp.minimum(steps, 1 - steps)) ** (1 / power) / 2
    grid = jnp.where(steps < 0.5, half, 1 - half)
    return jnp.interp(levels, _cpw(grid, power), grid)


DISTORTIONS: dict[str, Distortion] = {
    "mean": Distortion(lambda u, _: u, lambda u, _: u, lambda _: True, "no parameter"),
    "cvar": Distortion(
        # Numerics: from the top, so that 1 maps to 1 exactly however thin the tail.
        lambda u, tail: 1 - jnp.clip((1 - u) / tail, 0, 1),
        lambda u, tail: 1 - tail + tail * u,
        lambda tail: 0 < tail <= 1,
        "a tail in (0, 1]; it is the worst-case mass: 0.05 means the worst 5%",
    ),
    "wang": Distortion(
        lambda u, shift: ndtr(ndtri(u) - shift),
        lambda u, shift: ndtr(ndtri(u) + shift),
        lambda shift: shift >= 0,
        "a shift of at least 0; 0 is the mean",
    ),
    "power": Distortion(
        lambda u, power: 1 - (1 - u) ** (1 / (1 + power)),
        lambda u, power: 1 - (1 - u) ** (1 + power),
        lambda power: power >= 0,
        "a power of at least 0; 0 is the mean",
    ),
    "dual_power": Distortion(
        lambda u, power: u ** (1 + power),
        lambda u, power: u ** (1 / (1 + power)),
        lambda power: power >= 0,
        "a power of at least 0; 0 is the mean",
    ),
    # Tversky and Kahneman's weighting over-weighs both ends: not a spectral measure.
    "cpw": Distortion(
        _cpw,
        _inverse_cpw,
        lambda power: 0.3 <= power <= 1,
        "a power in [0.3, 1]; 1 is the mean, 0.71 the usual choice",
        coherent=False,
    ),
}


@dataclass(frozen=True)
class RiskMeasure:
    """A risk measure by name and parameter, checked when it is made.

    `RiskMeasure("cvar", 0.05)` is the mean of the worst 5 %.
    """

    name: str = "cvar"
    parameter: float = 1.0

    def __post_init__(self):
        check_choice("risk measure", str(self.name), DISTORTIONS)
        family = DISTORTIONS[self.name]
        if not is_number(self.parameter) or not family.valid(self.parameter):
            word = "tail" if self.name == "cvar" else "parameter"
            raise ValueError(
                f"{word} of risk measure {self.name!r} must be {family.expects}; "
                f"got {self.parameter!r}."
            )

    def __str__(self) -> str:
        if self.name == "mean":
            return "mean"
        name = "CVaR" if self.name == "cvar" else self.name
        return f"{name} at {self.parameter:g}"

    @property
    def coherent(self) -> bool:
        """Whether it is a spectral measure: monotone weights, sub-additive."""
        return DISTORTIONS[self.name].coherent


def mean() -> RiskMeasure:
    """The risk-neutral measure: every level weighs the same."""
    return RiskMeasure("mean")


def cvar(tail: float) -> RiskMeasure:
    """Expected value of the worst `tail` of outcomes. Eq. (3)."""
    return RiskMeasure("cvar", tail)


def distort(measure: RiskMeasure, levels: Levels) -> Levels:
    """Weight of all outcomes below each level: the integral of the spectrum. Eq. (5)."""
    # Deviates from Eq. (5): its alpha is a quantile level, while (3) and every experiment
    # use worst-case mass. `tail` is mass everywhere here.
    return DISTORTIONS[measure.name].distort(levels, measure.parameter)


def distort_levels(measure: RiskMeasure, levels: Levels) -> Levels:
    """Where to look so that plain widths weigh by `measure`: the inverse of D.

    For CVaR it maps [0, 1] to [1 - tail, 1], so that every quantile that an implicit
    network is asked for lies in the tail.
    """
    return DISTORTIONS[measure.name].inverse(levels, measure.parameter)


def check_widths(widths: Float[Array, "*batch quantile"]) -> None:
    """Refuse widths that cannot be made to sum to one; those under `jit` are trusted."""
    if isinstance(widths, Tracer):
        return
    fine = jnp.isfinite(widths).all() and (widths >= 0).all()
    if not fine or not (widths.sum(axis=-1) > 0).all():
        raise ValueError(
            "widths must be finite, at least 0 and of a positive sum along the last axis, "
            f"got {widths}. Use 1 / number of quantiles for equal ones."
        )


def level_weights(
    measure: RiskMeasure, widths: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile"]:
    """Weights of atoms of the given widths, in rising order of level. Eq. (32).

    Exact for any step distribution: w_k = D(u_k) - D(u_{k-1}), u the summed widths.
    """
    check_widths(widths)
    upper = jnp.cumsum(widths, axis=-1)
    # Numerics: rounding may leave the last level just off 1, where some D are steep.
    upper = jnp.clip(upper / upper[..., -1:], 0, 1)
    lower = jnp.concatenate([jnp.zeros_like(upper[..., :1]), upper[..., :-1]], axis=-1)
    return distort(measure, upper) - distort(measure, lower)


def risk_of(
    quantiles: Float[Array, "*batch quantile"],
    weights: Float[Array, "*#batch quantile"],
) -> Float[Array, "*batch"]:
    """Risk of a distribution given by quantiles: a dot product. Eq. (11).

    With the widths of levels drawn in the tail it is (26), with all levels (25), and on
    optimistic quantiles (16) and (28): the sum over k in (16) lacks its 1/K.
    """
    return (quantiles * weights).sum(axis=-1)


def sample_risk(
    samples: Shaped[Array, "*batch"], measure: RiskMeasure
) -> Float[Array, "..."]:
    """Risk of an empirical distribution, each sample weighing the same. Eq. (4)."""
    require_samples(samples)
    if not jnp.issubdtype(samples.dtype, jnp.floating):
        # Counts of violations come as whole numbers; their risk is not one.
        samples = samples.astype(jnp.result_type(float))
    widths = jnp.full(samples.shape[-1:], 1 / samples.shape[-1], samples.dtype)
    return risk_of(jnp.sort(samples, axis=-1), level_weights(measure, widths))


def require_samples(samples: Array) -> None:
    """Refuse a sample of nothing, of which no risk can be told."""
    if samples.ndim == 0 or samples.shape[-1] == 0:
        raise ValueError(
            "samples must hold at least one value, got none. Run at least one episode."
        )


def tail_excess(
    quantiles: Float[Array, "*batch quantile"],
    pivot: Float[Array, "*#batch"],
    tail: float,
) -> Float[Array, "*batch quantile"]:
    """What lies above the pivot, as many times as the tail fits into one. Eq. (33).

    g(x) = max(x - pivot, 0) / tail: the spectrum's steps are 0 and 1 / tail.
    """
    return jnp.maximum(quantiles - pivot[..., None], 0) / tail


def dual_risk(
    quantiles: Float[Array, "*batch quantile"],
    pivot: Float[Array, "*#batch"],
    tail: float,
) -> Float[Array, "*batch"]:
    """CVaR in its dual form at a given pivot: never below the primal. Eq. (34).

    risk = mean_k max(q_k - pivot, 0) / tail + pivot, smallest at the pivot that is the
    value at risk. The integral of the conjugate in (34) is the pivot.
    """
    cvar(tail)
    return tail_excess(quantiles, pivot, tail).mean(axis=-1) + pivot


def optimal_pivot(samples: Shaped[Array, " sample"], tail: float) -> Float[Array, ""]:
    """The pivot at which the dual form attains its infimum: the value at risk. Eq. (31)."""
    cvar(tail)
    require_samples(samples)
    rank = math.ceil(samples.shape[-1] * (1 - tail) - 1e-9)
    return jnp.sort(samples)[max(rank - 1, 0)]


def dual_tail(measure: RiskMeasure) -> float:
    """The tail of a measure whose dual form is an infimum over one pivot. Eq. (30).

    Those are CVaR and the mean, which is the CVaR of everything; others are refused.
    """
    if measure.name == "mean":
        return 1.0
    if measure.name == "cvar":
        return measure.parameter
    if not measure.coherent:
        raise ValueError(
            f"the dual form needs a spectral measure, got {measure.name!r}, a distortion "
            "whose weights are not monotone, so that no dual form exists. "
            "Use risk_form='implicit', or the measure 'cvar'."
        )
    raise ValueError(
        f"the dual form is for 'cvar' and 'mean' (one pivot), got {measure.name!r}, whose "
        "discretised spectrum needs one pivot per step. "
        "Use risk_form='implicit', or the measure 'cvar'."
    )


def cost_value_limit(cost_limit: float, discount: float, episode_length: int) -> float:
    """An episode's undiscounted limit in the units of a critic.

    limit * (1 - g^T) / (1 - g) / T: the discounted sum that an episode of T steps would
    have if it paid its limit evenly. It is the c-bar of (19) and the c of (7).
    """
    if not is_number(cost_limit) or cost_limit < 0:
        raise ValueError(
            f"cost_limit must be a finite number of at least 0, got {cost_limit!r}. "
            "It is the most that one episode may cost, undiscounted."
        )
    if not 0 < discount <= 1:
        raise ValueError(f"cost discount must be in (0, 1], got {discount}.")
    if not is_number(episode_length) or episode_length < 1:
        raise ValueError(
            f"episode_length must be a number of at least 1, got {episode_length!r}. "
            "Give the environment's time limit in steps."
        )
    # Numerics: 1 - g^T by expm1, since g may be 0.9999 or 1.
    if discount == 1:
        return float(cost_limit)
    log_discount = math.log(discount)
    horizon = math.expm1(episode_length * log_discount) / math.expm1(log_discount)
    return cost_limit * horizon / episode_length
