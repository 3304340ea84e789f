"""Measure how often certificates are right, and how tight their bounds are.

    python tools/measure_certificates.py            print the tables
    python tools/measure_certificates.py --write    write them into docs/statistics.md

Everything is drawn from fixed seeds. This takes about five minutes on one core.
"""

import math
from collections.abc import Callable

import numpy as np
from measure_coverage import main, percent, table
from scipy import special

from orac.evaluation import cvar_bounds


def rare(chance: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the quantile function of a cost of 4, or of 24 with the given chance."""
    return lambda levels: np.where(levels > 1 - chance, 24.0, 4.0)


COSTS: dict[str, Callable[[int], Callable[[np.ndarray], np.ndarray]]] = {
    "always 4": lambda n: rare(0.0),
    "4, or 24 with chance 2/n": lambda n: rare(2 / n),
    "4, or 24 with chance 3.3/n": lambda n: rare(3.3 / n),
    "4, or 24 with chance 5/n": lambda n: rare(5 / n),
    "4, or 24 with chance 0.02": lambda n: rare(0.02),
    "2, or 20 with chance 0.15": lambda n: lambda u: np.where(u > 0.85, 20.0, 2.0),
    "24 beta(2, 5)": lambda n: lambda u: 24 * special.betaincinv(2, 5, u),
    "uniform": lambda n: lambda u: 24 * u,
    "exponential, mean 2": lambda n: lambda u: np.minimum(-2 * np.log1p(-u), 24.0),
}
"""Quantile functions of costs in [0, 24], given the number of episodes n."""


def true_cvar(name: str, episodes: int, tail: float) -> float:
    """Return the CVaR of a distribution of `COSTS`, by numerical integration."""
    levels = 1 - tail * (np.arange(1_000_000) + 0.5) / 1_000_000
    return float(COSTS[name](episodes)(levels).mean())


def certificate_coverage(name: str, episodes: int, tail: float, sets: int) -> float:
    """Return the share of sets of episodes whose bound is at or above the true CVaR."""
    truth, random = true_cvar(name, episodes, tail), np.random.default_rng(episodes)
    hits = 0
    for _ in range(sets):
        costs = COSTS[name](episodes)(random.random(episodes))
        # Numerics: `truth` is an average, so it may exceed 24 by a rounding error.
        hits += cvar_bounds.cvar_upper_bound(costs, tail, 24.0) >= truth - 1e-9
    return hits / sets


def certificate_table() -> str:
    settings = [(100, 0.05, 2000), (100, 0.25, 2000), (1000, 0.05, 1000)]
    rows = [
        [name, *(percent(certificate_coverage(name, *setting)) for setting in settings)]
        for name in COSTS
    ]
    heads = [f"{episodes} episodes, tail {tail:g}" for episodes, tail, _ in settings]
    return table(["episode cost, at most 24", *heads], rows)


def band_bound(costs: np.ndarray, tail: float, masses: np.ndarray) -> float:
    """Return the largest CVaR of all distributions inside a band.

    A distribution is inside the band if, for all k, the probability that a cost exceeds the
    k-th largest cost of the sample (counted from 0) is at most `masses[k]`.
    """
    masses = np.minimum(masses, tail)
    weights = np.diff(np.append(masses, tail))
    return float(24 * masses[0] + weights @ np.sort(costs)[::-1]) / tail


def dkw_masses(episodes: int) -> np.ndarray:
    """Return the 95 % band of Dvoretzky, Kiefer and Wolfowitz, with Massart's constant."""
    return np.arange(episodes) / episodes + math.sqrt(math.log(20) / (2 * episodes))


def equal_level_masses(episodes: int, tail: float) -> np.ndarray:
    """Return a 95 % band in which all order statistics of the tail have the same error level."""
    count = min(episodes, int(1.5 * tail * episodes) + 20)
    ranks = np.arange(1, count + 1)
    random = np.random.default_rng(0)
    waits = random.exponential(size=(2000, count)).cumsum(axis=1)
    rest = random.gamma(episodes + 1 - count, size=(2000, 1))
    uniform = waits / (waits[:, -1:] + rest)
    local = special.betaincc(ranks, episodes + 1 - ranks, uniform).min(axis=1)
    masses = np.ones(episodes)
    level = np.quantile(local, 0.05)
    masses[:count] = special.betainccinv(ranks, episodes + 1 - ranks, level)
    return masses


def hindsight_bound(costs: np.ndarray, tail: float) -> float:
    """Return the betting bound for the pivot and betting fraction that suit this sample best.

    The betting bound is explained in `cvar_bounds.cvar_upper_bound`. The result is not a
    confidence bound, because pivot and fraction are chosen after seeing the sample. No
    betting strategy with one fixed pivot and one fixed fraction gives a smaller bound.
    """
    best = 24.0
    pivots = np.quantile(costs, 1 - tail * np.linspace(0.2, 1, 9), method="higher")
    for pivot in np.unique(pivots[pivots < 24]):
        excess = np.maximum(costs - pivot, 0)
        for fraction in np.geomspace(0.01, 1, 25):
            low, high = 0.0, best
            for _ in range(18):
                middle = (low + high) / 2
                mean = tail * (middle - pivot)
                gains = fraction * (mean - excess) / (24 - pivot - mean)
                with np.errstate(divide="ignore"):
                    won = np.log1p(gains).sum() >= math.log(20)
                low, high = (low, middle) if won else (middle, high)
            best = min(best, high)
    return best


def tightness_row(name: str, episodes: int, tail: float = 0.05) -> list[str]:
    random, bounds = np.random.default_rng(episodes), []
    dkw, equal = dkw_masses(episodes), equal_level_masses(episodes, tail)
    for _ in range(10):
        costs = COSTS[name](episodes)(random.random(episodes))
        bounds.append(
            [
                band_bound(costs, tail, dkw),
                band_bound(costs, tail, equal),
                cvar_bounds.cvar_upper_bound(costs, tail, 24.0),
                hindsight_bound(costs, tail),
            ]
        )
    truth = true_cvar(name, episodes, tail)
    cells = [f"{value:.2f}" for value in (truth, *np.mean(bounds, axis=0))]
    return [name, str(episodes), *cells]


def tightness_table() -> str:
    names = ("always 4", "4, or 24 with chance 0.02", "2, or 20 with chance 0.15")
    names += ("24 beta(2, 5)", "exponential, mean 2")
    rows = [tightness_row(name, n) for name in names for n in (200, 1000, 10_000)]
    heads = ["episode cost, at most 24", "episodes", "true CVaR at 0.05"]
    heads += ["DKW band", "equal-level band", "ours", "hindsight"]
    return table(heads, rows)


if __name__ == "__main__":
    main({"certificates": certificate_table, "tightness": tightness_table})
