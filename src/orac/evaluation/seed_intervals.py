"""Confidence intervals over seeds for means, differences, proportions and aggregates.

One training run is one sample, no matter how many episodes it has. The intervals were chosen
by measured coverage (`docs/statistics.md`). For a single run there is no interval, and the
result says so. The module `cvar_bounds` has bounds for a single policy.

The interquartile mean, the probability of improvement and the performance profile are
defined as in Agarwal et al. (2021, arXiv:2108.13264). Their scores have the shape (run,) or
(run, task), and the scores of all tasks must be on the same scale. The estimates equal those
of the package rliable. The intervals differ, because rliable's percentile bootstrap has too
low a coverage for the usual numbers of runs.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from orac.config.validation import is_number, shown

ONE_RUN = "one run gives no interval"
ALL_EQUAL = "all runs are equal, which gives no interval"
Bounds = tuple[float, float]
"""Smallest and largest possible mean or score, such as (0, 1) for a proportion."""
UNBOUNDED: Bounds = (-math.inf, math.inf)
_RESAMPLES = 5_000
_AGGREGATE_RESAMPLES = 10_000
_MAX_WIDENING = 1.5
"""Largest factor by which skew widens one side of Student's interval, see `mean_band`."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; without one, both bounds are None."""

    estimate: float
    low: float | None
    high: float | None
    level: float
    method: str
    n: int
    """Number of independent samples: runs, or episodes for a proportion of episodes."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.estimate:.4g} (n = {self.n}: {self.method})"
        bounds = f"[{self.low:.4g}, {self.high:.4g}]"
        return f"{self.estimate:.4g} {bounds} ({100 * self.level:g} %, n = {self.n})"


@dataclass(frozen=True, eq=False)
class Band:
    """A confidence interval at each point of a curve. Its level holds for each point
    separately, and not for all points together."""

    estimate: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    level: float
    method: str
    n: int


def check_level(level: float) -> None:
    """Raise a `ValueError` for a confidence level that is not strictly between 0 and 1."""
    if not is_number(level) or not 0 < level < 1:
        raise ValueError(
            f"the confidence level must be strictly between 0 and 1, got {shown(level)}. "
            "It is a fraction: 0.95 for 95 % confidence."
        )


def check_proportion(successes: float, n: float) -> None:
    """Raise a `ValueError` unless `successes` of `n` is possible."""
    whole = successes == math.floor(successes) and n == math.floor(n)
    if not (whole and 0 <= successes <= n and n >= 1):
        raise ValueError(
            "a proportion needs whole numbers 0 <= successes <= n and n of at least 1, "
            f"got {successes} of {n}."
        )


def mean_interval(
    values: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the mean over runs with the interval of `mean_band`.

    There is no interval if all runs are equal, because their spread is then unknown.
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
    values: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Band:
    """Return the mean over runs, with an interval, at each point of a curve.

    `values` has the shape (run, point). The interval is Student's, widened by skew. Each side
    is multiplied by a factor: the quantile of the studentised bootstrap divided by Student's
    quantile, clipped to [1, 1.5]. So normal data get about Student's interval, and for skewed
    data one side is longer. With fewer than 4 or more than 200 runs, the interval is not
    widened. The interval is NaN where all runs are equal, and is cut off at `bounds`.
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
    """Return the points at which the runs differ by at most a rounding error."""
    return np.ptp(values, axis=0) <= 1e-12 * np.abs(values).max(axis=0)


def _widened(*sizes: int) -> str:
    """Return a suffix for the method's name; empty if skew widens no interval of these sizes."""
    return ", widened by skew" if any(4 <= n <= 200 for n in sizes) else ""


def _skew_widening(centred: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the lower and the upper side, by the studentised bootstrap.

    See Efron and Tibshirani (1993), section 12.5. The upper quantile of the resampled t
    determines the lower side of the interval, and vice versa.
    """
    n = len(centred)
    if not _widened(n):
        return np.ones(centred.shape[1]), np.ones(centred.shape[1])
    weights = _resampling_weights(n)
    shift = weights @ centred
    variance = weights @ centred**2 - shift**2
    # Numerics: the variance is 0 if a resample contains only one run, or if all runs are
    # equal. In the second case the shift is 0 too.
    student = shift / np.sqrt(np.maximum(variance / (n - 1), np.finfo(float).tiny))
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(student, tails, axis=0) / special.stdtrit(n - 1, tails[1])
    return np.clip(high, 1, _MAX_WIDENING), np.clip(-low, 1, _MAX_WIDENING)


@lru_cache(maxsize=8)
def _resampling_weights(n: int) -> np.ndarray:
    """Return weights of runs (resample, run), cached because reports use them often."""
    random = np.random.default_rng(0)
    return random.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n


def difference_interval(
    ours: ArrayLike, theirs: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the mean of `ours` minus the mean of `theirs` with Welch's t interval (1947).

    The two standard errors are widened by skew on each side, as in `mean_band`. `n` is the
    smaller number of runs. Runs are not paired, because two different agents with the same
    seed are not alike. If all runs within each set are equal, there is no interval. `bounds`
    are the bounds of each of the two means.
    """
    check_level(level)
    sets = [finite_values(ours, 1), finite_values(theirs, 1)]
    estimate = float(sets[0].mean() - sets[1].mean())
    sizes = np.array([len(values) for values in sets])
    n = int(sizes.min())
    if n == 1:
        return Interval(estimate, None, None, level, ONE_RUN, n)
    if all(_all_equal(values[:, None])[0] for values in sets):
        return Interval(estimate, None, None, level, ALL_EQUAL, n)
    parts = np.array([values.var(ddof=1) for values in sets]) / sizes
    spread = float((parts**2 / (sizes - 1)).sum())
    degrees = max(float(parts.sum() ** 2 / spread), 1.0)
    quantile = float(special.stdtrit(degrees, (1 + level) / 2))
    widening = [_skew_widening((part - part.mean())[:, None], level) for part in sets]
    # The difference is low if ours is low or theirs is high.
    below = math.sqrt(parts @ np.array([widening[0][0][0], widening[1][1][0]]) ** 2)
    above = math.sqrt(parts @ np.array([widening[0][1][0], widening[1][0][0]]) ** 2)
    largest = bounds[1] - bounds[0]
    low = max(estimate - quantile * below, -largest)
    high = min(estimate + quantile * above, largest)
    method = f"Welch t{_widened(*map(len, sets))}"
    return Interval(estimate, low, high, level, method, n)


def proportion_interval(successes: float, n: int, level: float = 0.95) -> Interval:
    """Return the proportion of successes with the interval of Clopper and Pearson (1934).

    Its coverage is at least `level` for any true proportion and any n.
    """
    check_level(level)
    check_proportion(successes, n)
    low, high = clopper_pearson(np.asarray(float(successes)), n, level)
    estimate = successes / n
    return Interval(estimate, float(low), float(high), level, "Clopper-Pearson", n)


def clopper_pearson(
    successes: np.ndarray, n: int, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return both limits of `proportion_interval` for an array of numbers of successes."""
    tail = (1 - level) / 2
    # The beta distribution is degenerate where none or all succeeded. These limits are
    # replaced below.
    low = special.betaincinv(np.maximum(successes, 0.5), n - successes + 1, tail)
    high = special.betainccinv(successes + 1, np.maximum(n - successes, 0.5), tail)
    return np.where(successes == 0, 0.0, low), np.where(successes == n, 1.0, high)


def stratified_resamples(
    scores: ArrayLike, resamples: int = _AGGREGATE_RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Resample runs with replacement within each task, and return (resample, run, task).

    This is rliable's bootstrap. Its percentile interval, which is `np.quantile` of a
    statistic of the resamples, has too low a coverage with fewer than ten runs, so
    `interquartile_mean` widens it.
    """
    scores = finite_values(scores, 2)
    runs, tasks = scores.shape
    rows = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))
    return scores[rows, np.arange(tasks)]


def interquartile_mean(
    scores: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the mean of the middle half of all runs of all tasks.

    Two intervals are computed, and on each side the longer one is used. The first is the
    percentile interval of the stratified bootstrap with its levels moved out to
    Phi(-+ t sqrt(n / (n - 1))), where Phi is the normal CDF and t is Student's quantile
    (Hesterberg, 2015, arXiv:1411.5279). The second is estimate -+ t sqrt(n / (n - 1)) times
    the bootstrap's standard error. The result is cut off at `bounds`. `n` is the number of
    runs per task.
    """
    check_level(level)
    scores = finite_values(scores, 2)
    n, tasks = scores.shape
    estimate = float(_middle_mean(scores.reshape(1, -1))[0])
    if n == 1:
        return Interval(estimate, None, None, level, ONE_RUN, n)
    drawn = _middle_mean(stratified_resamples(scores).reshape(_AGGREGATE_RESAMPLES, -1))
    reach = special.stdtrit(tasks * (n - 1), (1 + level) / 2) * math.sqrt(n / (n - 1))
    low, high = np.quantile(drawn, special.ndtr([-reach, reach]))
    half = reach * drawn.std()
    low, high = min(low, estimate - half), max(high, estimate + half)
    if high - low <= 1e-12 * abs(estimate):
        return Interval(estimate, None, None, level, ALL_EQUAL, n)
    low, high = np.clip([low, high], *bounds)
    method = "stratified bootstrap, expanded"
    return Interval(estimate, float(low), float(high), level, method, n)


def _middle_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean along the last axis without the lowest and highest quarter."""
    cut = values.shape[-1] // 4
    ordered = np.sort(values, axis=-1)
    return ordered[..., cut : values.shape[-1] - cut].mean(axis=-1)


def probability_of_improvement(
    ours: ArrayLike, theirs: ArrayLike, level: float = 0.95
) -> Interval:
    """Return P(a run of `ours` scores higher than one of `theirs`), averaged over tasks.

    A tie counts as half a win, as in rliable. A bootstrap interval has no width if the two
    sets do not overlap, so Newcombe's score interval (2006, method 5) with Student's
    quantile is used. This interval assumes that the probability is the same in all tasks,
    because the variance is largest then. `n` is the smaller number of runs per task.
    """
    check_level(level)
    first, second = finite_values(ours, 2), finite_values(theirs, 2)
    tasks = first.shape[1]
    if tasks != second.shape[1]:
        raise ValueError(
            "both sets of runs must have the same tasks, "
            f"got {tasks} and {second.shape[1]}. Compare the tasks that both have."
        )
    gaps = first[:, None, :] - second[None, :, :]
    wins = float(((gaps > 0) + 0.5 * (gaps == 0)).mean())
    runs, n = (len(first), len(second)), min(len(first), len(second))
    if n == 1:
        return Interval(wins, None, None, level, ONE_RUN, n)
    degrees = tasks * (sum(runs) - 2)
    reach = float(special.stdtrit(degrees, (1 + level) / 2)) / math.sqrt(tasks)
    high = _score_limit(wins, runs, reach)
    # P(loss) = 1 - P(win), so the lower limit is 1 minus the upper limit of losing.
    low = 1 - _score_limit(1 - wins, runs, reach)
    return Interval(wins, low, high, level, "Newcombe score", n)


def _score_limit(wins: float, runs: tuple[int, int], reach: float) -> float:
    """Return the largest p with p - wins <= reach * (standard error at p), by bisection."""
    pairs, extra = runs[0] * runs[1], sum(runs) / 2 - 1
    low, high = wins, 1.0
    for _ in range(40):
        p = (low + high) / 2
        variance = p * (1 - p) * (1 + extra * ((1 - p) / (2 - p) + p / (1 + p))) / pairs
        inside = p - wins <= reach * math.sqrt(variance)
        low, high = (p, high) if inside else (low, p)
    # Numerics: bisection never reaches its upper end.
    return 1.0 if wins == 1 else low


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, level: float = 0.95
) -> Band:
    """Return the fraction of all runs of all tasks that score above each threshold.

    This is rliable's score distribution. The interval is Clopper and Pearson's, because a
    bootstrap interval has no width where all runs are on one side of the threshold. If the
    probability differs between tasks, the count has a smaller spread than the binomial
    distribution (Hoeffding, 1956).
    """
    check_level(level)
    scores = finite_values(scores, 2)
    n, levels = len(scores), np.asarray(thresholds, np.float64)
    above = (scores.reshape(-1, 1) > levels).sum(axis=0).astype(np.float64)
    estimate = above / scores.size
    if n == 1:
        return Band(estimate, None, None, level, ONE_RUN, n)
    low, high = clopper_pearson(above, scores.size, level)
    return Band(estimate, low, high, level, "Clopper-Pearson", n)


def finite_values(values: ArrayLike, axes: int) -> np.ndarray:
    """Return `values` in float64 with 1 or 2 `axes`, after checking that all are finite."""
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
            "result: leave it out, and report how many failed."
        )
    return array
