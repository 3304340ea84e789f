"""The gambler who bets against a high CVaR: a bound that holds for any distribution.

Waudby-Smith and Ramdas (2024, arXiv:2010.09686) bound the mean of a bounded variable by
the wealth of a gambler whom a high mean would ruin. Here the variable is the excess over
a pivot, since CVaR <= pivot + E(X - pivot)+ / tail for every pivot, and both the pivot
and the bet are chosen from the episodes before. `docs/statistics.md` has the proof.
Costs are in [0, 1] here; this room knows nothing of limits or sentences.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

_PRIOR_EPISODES = 0.05
"""Weight of an imagined episode at the bound, so that no bet risks all (measured)."""
_GROWTH = 1.1
"""Pivot and bet are renewed whenever the episodes seen have grown by this factor."""
_MOST_ORDERS = 8
_MOST_VALUES = 400_000
"""Orders times episodes, at most: the order matters less the more episodes there are."""


def least_rejected(costs: np.ndarray, tail: float, level: float) -> float:
    """The least c such that CVaR >= c is rejected at `level`; 1 when none is.

    Depends on the order of the episodes only weakly: the stake is spread over a few
    fixed shuffles of it.
    """
    bets = place_bets(shuffles(costs), tail, level)
    low, high = 0.0, 1.0
    for _ in range(25):
        middle = (low + high) / 2
        won = bets.log_wealth(middle) >= -math.log1p(-level)
        low, high = (low, middle) if won else (middle, high)
    return high


def rejects(costs: np.ndarray, cvar: float, tail: float, level: float) -> bool:
    """Whether these episodes refute, at `level`, that CVaR is `cvar` < 1 or more."""
    bets = place_bets(shuffles(costs), tail, level)
    return bets.log_wealth(cvar) >= -math.log1p(-level)


def shuffles(costs: np.ndarray) -> np.ndarray:
    """(order, episode): the same episodes in a few orders that do not look at them."""
    orders = max(1, min(_MOST_ORDERS, _MOST_VALUES // len(costs)))
    random = np.random.default_rng(0)
    return random.permuted(np.tile(costs, (orders, 1)), axis=1)


@dataclass(frozen=True, eq=False)
class Bets:
    """One gambler per order; pivots and fractions are constant within a block."""

    excess: np.ndarray
    """(order, episode): (cost - pivot)+ / (1 - pivot), in [0, 1]."""
    pivots: np.ndarray
    fractions: np.ndarray
    lengths: np.ndarray
    tail: float

    def log_wealth(self, cvar: float) -> float:
        """Log of the mean wealth of all gamblers when CVaR >= `cvar` is what they doubt.

        CVaR <= b + E(X - b)+ / tail for any b, so CVaR >= c makes the expected excess at
        least mu = tail (c - b) / (1 - b), and 1 + f (mu - excess) / (1 - mu) is a fair or
        losing game for any f in [0, 1]. It grows in c: rejecting is monotone.
        """
        expected = self.tail * (cvar - self.pivots) / (1 - self.pivots)
        stake = self.fractions / (1 - expected)
        growth = np.repeat(stake * expected, self.lengths, axis=1)
        growth -= np.repeat(stake, self.lengths, axis=1) * self.excess
        wealth = np.log1p(growth, out=growth).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - math.log(len(wealth)))


def place_bets(orders: np.ndarray, tail: float, level: float) -> Bets:
    """Pivot and fraction of each block from the episodes before it alone.

    The pivot is the value at risk of the past at a slightly smaller tail: under the worst
    distribution that the data do not exclude, the tail begins further out.
    """
    n = orders.shape[1]
    starts = _block_starts(n)
    lengths = np.diff(np.append(starts, n))
    margin = 0.5 * math.sqrt(-2 * math.log1p(-level) / (n * tail))
    pivot_tail = tail * max(1 - margin, 0.2)
    pivots = np.zeros((len(orders), len(starts)))
    moments = np.ones((2, *pivots.shape))
    for i, seen in enumerate(starts[1:], start=1):
        rank = seen - 1 - min(int(pivot_tail * seen), seen - 1)
        past = orders[:, :seen]
        pivot = np.partition(past, rank, axis=1)[:, rank]
        # Any pivot is sound; at the bound itself there would be nothing to bet on.
        pivots[:, i] = np.where(pivot < 1, pivot, 0)
        excess = _excess(past, pivots[:, i : i + 1])
        total = seen + _PRIOR_EPISODES
        moments[0, :, i] = (excess.sum(axis=1) + _PRIOR_EPISODES) / total
        moments[1, :, i] = ((excess**2).sum(axis=1) + _PRIOR_EPISODES) / total
    fractions = _bet_fractions(moments, starts, -math.log1p(-level) / n)
    excess = _excess(orders, np.repeat(pivots, lengths, axis=1))
    return Bets(excess, pivots, fractions, lengths, tail)


def _block_starts(n: int) -> np.ndarray:
    starts = [0]
    while (following := max(starts[-1] + 1, int(_GROWTH * starts[-1]))) < n:
        starts.append(following)
    return np.array(starts)


def _excess(costs: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    return np.maximum(costs - pivots, 0) / (1 - pivots)


def _bet_fractions(moments: np.ndarray, seen: np.ndarray, growth: float) -> np.ndarray:
    """Kelly's fraction for the two-point law {0, s} with the excess's two moments.

    q = P(s); the bet is made against the p that this law would just reject in the end,
    KL(q, p) = log(1 / (1 - level)) / n, and never exceeds the one for a law that has
    shown nothing but the imagined episode at the bound.
    """
    size, q = moments[1] / moments[0], moments[0] ** 2 / moments[1]
    p = _rejected_share(q, growth)
    kelly = (1 - q / p) * (1 - p * size) / (size * (1 - p))
    prior = _PRIOR_EPISODES / (seen + _PRIOR_EPISODES)
    most = 1 - prior / _rejected_share(prior, growth)
    fractions = np.clip(kelly, 0, most)
    fractions[:, 0] = 0.0
    return fractions


def _rejected_share(q: np.ndarray, growth: float) -> np.ndarray:
    """The p above q with KL(q, p) = growth, by bisection."""
    low, high = q, np.ones_like(q)
    for _ in range(40):
        p = (low + high) / 2
        divergence = special.rel_entr(q, p) + special.rel_entr(1 - q, 1 - p)
        low, high = (
            np.where(divergence < growth, p, low),
            np.where(divergence < growth, high, p),
        )
    # Numerics: p = 1 would divide by zero, where the fraction is clipped anyway.
    return np.minimum(low, 1 - 1e-12)
