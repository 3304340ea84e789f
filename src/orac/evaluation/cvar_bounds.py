"""Upper bounds of CVaR by betting, valid for any distribution of costs in [0, 1].

Waudby-Smith and Ramdas (2024, arXiv:2010.09686) bound the mean of a bounded variable by
the wealth of a gambler who bets that the mean is low. Here the variable is the excess over
a pivot, because CVaR <= pivot + E(X - pivot)+ / tail for every pivot. Both the pivot and
the bet are chosen from earlier episodes. `docs/statistics.md` has the proof.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

_PRIOR_EPISODES = 0.05
"""Weight of an imagined episode at the bound, so that no bet risks everything. The value
was chosen by measurement."""
_GROWTH = 1.1
"""Pivot and bet are updated whenever the number of past episodes grew by this factor."""
_MAX_ORDERS = 8
_MAX_VALUES = 400_000
"""Limit of orders times episodes. With more episodes their order matters less."""


def smallest_rejected_cvar(costs: np.ndarray, tail: float, level: float) -> float:
    """Return the smallest c for which CVaR >= c is rejected at `level`; 1 if none is.

    The order of the episodes has little influence, because the wealth is averaged over a
    few fixed shuffles.
    """
    bets = place_bets(shuffle(costs), tail, level)
    low, high = 0.0, 1.0
    for _ in range(25):
        middle = (low + high) / 2
        won = bets.log_wealth(middle) >= -math.log1p(-level)
        low, high = (low, middle) if won else (middle, high)
    return high


def rejects(costs: np.ndarray, cvar: float, tail: float, level: float) -> bool:
    """Return whether these episodes reject CVaR >= `cvar` at `level`, for `cvar` < 1."""
    bets = place_bets(shuffle(costs), tail, level)
    return bets.log_wealth(cvar) >= -math.log1p(-level)


def shuffle(costs: np.ndarray) -> np.ndarray:
    """Return the episodes in a few random orders, as an array (order, episode)."""
    orders = max(1, min(_MAX_ORDERS, _MAX_VALUES // len(costs)))
    random = np.random.default_rng(0)
    return random.permuted(np.tile(costs, (orders, 1)), axis=1)


@dataclass(frozen=True, eq=False)
class Bets:
    """Bets on the episodes in each order. They are constant within a block of episodes."""

    excess: np.ndarray
    """(order, episode): (cost - pivot)+ / (1 - pivot), in [0, 1]."""
    pivots: np.ndarray
    """(order, block)"""
    fractions: np.ndarray
    """(order, block): fraction of the wealth that is bet."""
    lengths: np.ndarray
    """Episodes in each block."""
    tail: float

    def log_wealth(self, cvar: float) -> float:
        """Return the log of the mean wealth over orders from betting against CVaR >= `cvar`.

        CVaR <= b + E(X - b)+ / tail for any b. So if CVaR >= c, the expected excess is at
        least mu = tail (c - b) / (1 - b), and the factor 1 + f (mu - excess) / (1 - mu)
        has an expectation of at most 1 for any f in [0, 1]. The wealth increases with c.
        """
        expected = self.tail * (cvar - self.pivots) / (1 - self.pivots)
        stake = self.fractions / (1 - expected)
        growth = np.repeat(stake * expected, self.lengths, axis=1)
        growth -= np.repeat(stake, self.lengths, axis=1) * self.excess
        wealth = np.log1p(growth, out=growth).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - math.log(len(wealth)))


def place_bets(orders: np.ndarray, tail: float, level: float) -> Bets:
    """Choose the pivot and the fraction of each block from the episodes before it.

    The pivot is the value at risk of the past at a slightly smaller tail, because the tail
    starts further out in the worst distribution that the data do not exclude.
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
        # Any pivot is valid, but at the bound itself there is nothing to bet on.
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
    """Return Kelly's fractions for two-point distributions with the moments of the excess.

    The distribution is on {0, s} with q = P(s). The bet is made against the p that it would
    just reject after all n episodes, KL(q, p) = log(1 / (1 - level)) / n. It is at most the
    bet for a distribution of which only the imagined episode at the bound was observed.
    """
    size, q = moments[1] / moments[0], moments[0] ** 2 / moments[1]
    p = _rejected_probability(q, growth)
    kelly = (1 - q / p) * (1 - p * size) / (size * (1 - p))
    prior = _PRIOR_EPISODES / (seen + _PRIOR_EPISODES)
    largest = 1 - prior / _rejected_probability(prior, growth)
    fractions = np.clip(kelly, 0, largest)
    fractions[:, 0] = 0.0
    return fractions


def _rejected_probability(q: np.ndarray, growth: float) -> np.ndarray:
    """Return the p above q with KL(q, p) = growth, by bisection."""
    low, high = q, np.ones_like(q)
    for _ in range(40):
        p = (low + high) / 2
        divergence = special.rel_entr(q, p) + special.rel_entr(1 - q, 1 - p)
        low, high = (
            np.where(divergence < growth, p, low),
            np.where(divergence < growth, high, p),
        )
    # Numerics: p = 1 would divide by zero, and the fraction is clipped there anyway.
    return np.minimum(low, 1 - 1e-12)
