"""Aggregate statistics over runs and tasks, as in rliable, with confidence intervals.

Interquartile mean, probability of improvement and performance profile of Agarwal et al.
(2021, arXiv:2108.13264). Scores have the shape (run,) or (run, task), and tasks must be on
one scale. The estimates are those of rliable, but not all intervals are, because the
percentile bootstrap covers too little at usual numbers of runs (`docs/statistics.md`).
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from orac.evaluation.intervals import (
    ALL_EQUAL,
    ONE_RUN,
    UNBOUNDED,
    Band,
    Bounds,
    Interval,
    check_level,
    clopper_pearson,
    finite_values,
)

_RESAMPLES = 10_000


def stratified_resamples(
    scores: ArrayLike, resamples: int = _RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Resample runs with replacement within each task: (resample, run, task).

    This is rliable's bootstrap. Its percentile interval, `np.quantile` of a statistic of
    these, covers too little below ten runs, so the functions below correct it.
    """
    scores = finite_values(scores, 2)
    runs, tasks = scores.shape
    rows = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))
    return scores[rows, np.arange(tasks)]


def interquartile_mean(
    scores: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the mean of the middle half of all runs of all tasks.

    Each side of the interval is the longer of two: the percentile interval of the
    stratified bootstrap with its levels moved out to Phi(-+ t sqrt(n / (n - 1)))
    (Hesterberg, 2015, arXiv:1411.5279), and Student's interval with the bootstrap's
    standard error, and it is cut at `bounds`. `n` is the number of runs per task.
    """
    check_level(level)
    scores = finite_values(scores, 2)
    n, tasks = scores.shape
    estimate = float(_middle_mean(scores.reshape(1, -1))[0])
    if n == 1:
        return Interval(estimate, None, None, level, ONE_RUN, n)
    drawn = _middle_mean(stratified_resamples(scores).reshape(_RESAMPLES, -1))
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

    Ties count half, as in rliable. The bootstrap interval has no width if the two sets do
    not overlap, so the interval is Newcombe's score interval (2006, method 5) with
    Student's quantile. All tasks are given the mean probability, for which the variance is
    largest. `n` is the smaller number of runs per task.
    """
    check_level(level)
    first, second = finite_values(ours, 2), finite_values(theirs, 2)
    tasks = first.shape[1]
    if tasks != second.shape[1]:
        raise ValueError(
            "both sets of runs must have the same tasks, "
            f"got {tasks} and {second.shape[1]}. Compare the common ones."
        )
    gaps = first[:, None, :] - second[None, :, :]
    wins = float(((gaps > 0) + 0.5 * (gaps == 0)).mean())
    runs, n = (len(first), len(second)), min(len(first), len(second))
    if n == 1:
        return Interval(wins, None, None, level, ONE_RUN, n)
    degrees = tasks * (sum(runs) - 2)
    reach = float(special.stdtrit(degrees, (1 + level) / 2)) / math.sqrt(tasks)
    high = _score_limit(wins, runs, reach)
    # P(loss) = 1 - P(win), so the lower limit is the upper limit of losing.
    low = 1 - _score_limit(1 - wins, runs, reach)
    return Interval(wins, low, high, level, "Newcombe score", n)


def _score_limit(wins: float, runs: tuple[int, int], reach: float) -> float:
    """Return the largest p with p - wins <= reach * its standard error, by bisection."""
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

    This is rliable's score distribution. The interval is Clopper and Pearson's, because
    the bootstrap has none where all runs are on one side of the threshold. If tasks
    differ, the count has less spread than the binomial (Hoeffding, 1956).
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
