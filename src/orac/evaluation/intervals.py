"""Honest uncertainty between seeds: a training run is one sample, its episodes are not.

Intervals for means, differences and shares. Which interval is used where was decided by
measured coverage: `docs/statistics.md` has the table. One run has no interval, and says
so. Pure NumPy and SciPy in float64; knows nothing of agents or files. The aggregates
over several tasks live in `aggregates`, bounds within one seed in `certificates`.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

ONE_RUN = "one run gives no interval"
ALL_EQUAL = "all runs equal, which gives no interval"
_RESAMPLES = 5_000
_WIDEST = 1.5
"""Most that skew may widen one side of Student's interval; see `mean_band`."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; without one both bounds are None."""

    estimate: float
    low: float | None
    high: float | None
    level: float
    method: str
    n: int
    """Independent samples behind it: runs, or episodes for a share of episodes."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.estimate:.4g} (n = {self.n}: {self.method})"
        bounds = f"[{self.low:.4g}, {self.high:.4g}]"
        return f"{self.estimate:.4g} {bounds} ({100 * self.level:g} %, n = {self.n})"


@dataclass(frozen=True, eq=False)
class Band:
    """An interval at each point of a curve; pointwise, not for the curve as a whole."""

    estimate: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    level: float
    method: str
    n: int


def check_level(level: float) -> None:
    """Refuse a confidence level that is not a fraction strictly between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(
            f"level must be strictly between 0 and 1, got {level}. "
            "It is a fraction: 0.95 for 95 % confidence."
        )


def check_share(successes: float, n: float) -> None:
    """Refuse a share that cannot be."""
    whole = successes == math.floor(successes) and n == math.floor(n)
    if not (whole and 0 <= successes <= n and n >= 1):
        raise ValueError(
            "a share needs whole numbers 0 <= successes <= n and n of at least 1, "
            f"got {successes} of {n}."
        )


def mean_interval(
    values: ArrayLike,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Mean over runs, with `mean_band`'s interval.

    Runs that all agree have none: the spread is then unknown, not zero.
    """
    values = finite_values(values, 1)
    band = mean_band(values[:, None], level, bounds)
    estimate, n = float(band.estimate[0]), band.n
    if band.low is None or band.high is None:
        return Interval(estimate, None, None, level, band.method, n)
    if np.isnan(band.low[0]):
        return Interval(estimate, None, None, level, ALL_EQUAL, n)
    ends = float(band.low[0]), float(band.high[0])
    return Interval(estimate, *ends, level, band.method, n)


def mean_band(
    values: ArrayLike,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Band:
    """Mean over runs at each point of (run, point), Student's interval widened by skew.

    Each side is Student's t times the studentised bootstrap's quantile over t's own,
    clipped to [1, 1.5]: normal data keep Student, skewed data get the longer side that
    they need. Fewer than 4 runs, or more than 200, have Student's interval as it is.
    Bounds are NaN where all runs agree. `bounds` are those that the mean itself has, 0
    and 1 for a share: beyond them there is no truth to cover.
    """
    check_level(level)
    values = finite_values(values, 2)
    n, mean = len(values), values.mean(axis=0)
    if n == 1:
        return Band(mean, None, None, level, ONE_RUN, n)
    quantile = float(special.stdtrit(n - 1, (1 + level) / 2))
    half = quantile * values.std(axis=0, ddof=1) / math.sqrt(n)
    half[_all_equal(values)] = np.nan
    below, above = _skew_widening(values - mean, level)
    low, high = np.clip([mean - below * half, mean + above * half], *bounds)
    return Band(mean, low, high, level, f"Student t{_widened(n)}", n)


def _all_equal(values: np.ndarray) -> np.ndarray:
    """Points at which the runs differ by nothing that rounding would not explain."""
    return np.ptp(values, axis=0) <= 1e-12 * np.abs(values).max(axis=0)


def _is_widened(n: int) -> bool:
    return 4 <= n <= 200


def _widened(*sizes: int) -> str:
    return ", widened by skew" if any(map(_is_widened, sizes)) else ""


def _skew_widening(centred: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """How much longer than Student's each side must be, by the studentised bootstrap.

    Efron and Tibshirani (1993), section 12.5. The upper quantile of the resampled t
    says how far the interval reaches down, and the other way round.
    """
    n = len(centred)
    if not _is_widened(n):
        return np.ones(centred.shape[1]), np.ones(centred.shape[1])
    shares = _resampled_shares(n)
    shift = shares @ centred
    variance = shares @ centred**2 - shift**2
    # Numerics: a resample of one run alone has no spread; equal runs have no shift.
    student = shift / np.sqrt(np.maximum(variance / (n - 1), np.finfo(float).tiny))
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(student, tails, axis=0) / special.stdtrit(n - 1, tails[1])
    return np.clip(high, 1, _WIDEST), np.clip(-low, 1, _WIDEST)


@lru_cache(maxsize=8)
def _resampled_shares(n: int) -> np.ndarray:
    """(resample, run): how much of each resample is each run. Reports ask often."""
    random = np.random.default_rng(0)
    return random.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n


def difference_interval(
    ours: ArrayLike,
    theirs: ArrayLike,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Mean of our runs minus mean of theirs, with Welch's t interval (Welch, 1947).

    Each side's two standard errors are widened by skew as in `mean_band`. `n` is the
    smaller number of runs. Runs are not paired: sharing a seed does not make two
    different agents alike. Two sets of equal runs have no interval. `bounds` are those
    of one mean, as in `mean_band`.
    """
    check_level(level)
    sets = [finite_values(ours, 1), finite_values(theirs, 1)]
    estimate = float(sets[0].mean() - sets[1].mean())
    counts = [len(values) for values in sets]
    sizes = np.array(counts)
    n = int(sizes.min())
    if n == 1:
        return Interval(estimate, None, None, level, ONE_RUN, n)
    if all(_all_equal(values[:, None])[0] for values in sets):
        return Interval(estimate, None, None, level, ALL_EQUAL, n)
    parts = np.array([values.var(ddof=1) for values in sets]) / sizes
    spread = float((parts**2 / (sizes - 1)).sum())
    degrees = max(float(parts.sum() ** 2 / spread), 1.0)
    quantile = float(special.stdtrit(degrees, (1 + level) / 2))
    wide = [_skew_widening((part - part.mean())[:, None], level) for part in sets]
    # The difference is low where ours is low or theirs is high.
    below = math.sqrt(parts @ np.array([wide[0][0][0], wide[1][1][0]]) ** 2)
    above = math.sqrt(parts @ np.array([wide[0][1][0], wide[1][0][0]]) ** 2)
    widest = bounds[1] - bounds[0]
    low = max(estimate - quantile * below, -widest)
    high = min(estimate + quantile * above, widest)
    return Interval(estimate, low, high, level, f"Welch t{_widened(*counts)}", n)


def share_interval(successes: float, n: int, level: float = 0.95) -> Interval:
    """Share of successes with the exact interval of Clopper and Pearson (1934).

    It never covers less than `level`, whatever the true share and n.
    """
    check_level(level)
    check_share(successes, n)
    low, high = clopper_pearson(np.asarray(float(successes)), n, level)
    estimate = successes / n
    return Interval(estimate, float(low), float(high), level, "Clopper-Pearson", n)


def clopper_pearson(
    successes: np.ndarray, n: int, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Both limits of `share_interval`, for many numbers of successes at once."""
    tail = (1 - level) / 2
    # The beta distribution degenerates where nothing, or everything, succeeded.
    low = special.betaincinv(np.maximum(successes, 0.5), n - successes + 1, tail)
    high = special.betainccinv(successes + 1, np.maximum(n - successes, 0.5), tail)
    return np.where(successes == 0, 0.0, low), np.where(successes == n, 1.0, high)


def finite_values(values: ArrayLike, axes: int) -> np.ndarray:
    """`values` in float64 with that many axes, or a clear refusal."""
    array = np.asarray(values, np.float64)
    if axes == 2 and array.ndim == 1:
        array = array[:, None]
    if array.ndim != axes or array.size == 0:
        shape = "one value per run" if axes == 1 else "values as (run,) or (run, task)"
        raise ValueError(f"expected {shape}, got an array of shape {array.shape}.")
    broken = np.unique(np.argwhere(~np.isfinite(array))[:, 0])
    if broken.size:
        raise ValueError(
            "every value must be a finite number, got NaN or infinity in runs "
            f"{', '.join(map(str, broken))} (counted from 0). A failed run has no "
            "result: leave it out, and say how many failed."
        )
    return array
