"""Certificates: upper confidence bounds on the cost of one policy, from its episodes.

`cvar_upper_bound` holds for every distribution on [0, cost_bound] and every number of
independent episodes, with probability at least `level`. A certificate is about the policy
that played the episodes, not about the algorithm that trained it. The episodes must not
have been used to choose that policy. The method is betting: Waudby-Smith and Ramdas (2024,
arXiv:2010.09686) bound the mean of a bounded variable by the wealth of a gambler who bets
that the mean is low. Here the variable is the amount by which the cost exceeds a threshold,
which is called the pivot (see `Bets`). `docs/statistics.md` has the proof and a comparison
with other bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from orac.config.validation import check_range
from orac.evaluation.seed_intervals import check_level, check_proportion

MAX_NEEDED = 1_000_000
"""Largest number of episodes that `episodes_needed` considers."""
_PRIOR_EPISODES = 0.05
"""Weight of an additional imaginary episode with the largest possible cost. Because of this
episode, no bet risks the whole wealth. The weight was chosen by measurement."""
_GROWTH = 1.1
"""Pivot and bet are updated each time the number of past episodes grows by this factor."""
_MAX_ORDERS = 8
"""Maximum number of random orders of the episodes."""
_MAX_VALUES = 400_000
"""Maximum number of orders times the number of episodes, unless there is only one order. The
order of the episodes matters less if there are more of them."""


@dataclass(frozen=True)
class Certificate:
    """An upper confidence bound on a risk or a probability, compared with its limit."""

    quantity: str
    """Name of the quantity that is bounded, such as "the CVaR of episode cost at tail 0.05"."""
    estimate: float
    upper: float | None
    """Upper bound; None if there is none, for the reason in `remark`."""
    limit: float
    level: float
    """Confidence of the bound, such as 0.95."""
    episodes: int
    episodes_needed: int | None = None
    """Approximate number of episodes like these that would certify the limit. It is None if
    these episodes certify the limit, or if no such number was found."""
    cost_bound: float | None = None
    """Largest possible cost of an episode, if the environment declares it."""
    remark: str = ""
    """Reason why there is no upper bound, or empty if there is one."""

    @property
    def certified(self) -> bool:
        """Whether there is an upper bound and it is at most the limit."""
        return self.upper is not None and self.upper <= self.limit

    def sentence(self) -> str:
        """Return the certificate as one sentence, with its bound rounded up."""
        if self.upper is None:
            return f"no certificate for {self.quantity}: {self.remark}"
        vacuous = self.upper == self.cost_bound
        relation = "at most the declared bound," if vacuous else "below"
        bound = (
            f"with {percent(self.level)} % confidence {self.quantity} is {relation} "
            f"{round_up(self.upper)} (limit {self.limit:g})"
        )
        if self.certified and vacuous:
            return f"{bound}: certified by the declared bound, whatever the policy"
        if self.certified:
            plural = "" if self.episodes == 1 else "s"
            return f"{bound}: certified by {self.episodes} episode{plural}"
        if self.episodes_needed is not None:
            about = round_up(float(self.episodes_needed), 2)
            reason = f"about {about} episodes like these would be needed"
        elif self.estimate >= self.limit:
            reason = (
                f"the estimate {self.estimate:.3g} is not below the limit, so more "
                "episodes like these would not help"
            )
        else:
            reason = f"more than {MAX_NEEDED} episodes like these would be needed"
        return f"{bound}: not certified; {reason}"


def certify_cvar(
    costs: ArrayLike,
    estimate: float,
    *,
    cost_limit: float,
    tail: float,
    cost_bound: float | None,
    level: float = 0.95,
) -> Certificate:
    """Return a certificate that compares an upper bound on CVaR with the limit.

    `estimate` is the CVaR of these costs. If the environment declares no bound on an
    episode's cost, CVaR has no upper bound either, and the certificate's sentence states
    the bound of `certify_violations` instead.
    """
    costs = _episode_costs(costs, cost_bound)
    _check_tail(tail)
    check_range("cost_limit", cost_limit, 0)
    quantity, n, needed = name_of_risk(tail), len(costs), None
    if cost_bound is None:
        violations = certify_violations(costs, cost_limit, tail, level)
        remark = (
            "the environment declares no bound on an episode's cost, and without one a "
            "single unseen episode could cost anything. What holds without a bound: "
            + violations.sentence()
        )
        numbers = (estimate, None, cost_limit, level, n)
        return Certificate(quantity, *numbers, remark=remark)
    upper = cvar_upper_bound(costs, tail, cost_bound, level)
    if upper > cost_limit > estimate:
        needed = episodes_needed(costs, cost_limit, tail, cost_bound, level)
    numbers = (estimate, upper, cost_limit, level, n, needed, cost_bound)
    return Certificate(quantity, *numbers)


def certify_violations(
    costs: ArrayLike, cost_limit: float, tail: float, level: float = 0.95
) -> Certificate:
    """Return a certificate that compares the probability of exceeding the limit with `tail`.

    This uses Clopper and Pearson's upper bound, which needs no bound on the cost. If the
    probability is at most `tail`, the value at risk at this tail is within the limit. The
    certificate does not bound by how much an episode exceeds the limit.
    """
    _check_tail(tail)
    violations, n, upper = _count_violations(costs, cost_limit, level)
    rate, needed = violations / n, None
    if upper > tail > rate:
        needed = _smallest(lambda more: _clopper_pearson(rate, more, level) <= tail, n)
    quantity = f"the probability of an episode cost above {cost_limit:g}"
    return Certificate(quantity, rate, upper, tail, level, n, needed)


def violation_sentence(
    costs: ArrayLike, cost_limit: float, level: float = 0.95, name: str = "cost"
) -> str:
    """Return Clopper and Pearson's bound on the rate of violations as a sentence."""
    violations, n, upper = _count_violations(costs, cost_limit, level)
    return (
        f"with {percent(level)} % confidence an episode's {name} exceeds the limit with "
        f"probability at most {round_up(upper)} (limit {cost_limit:g}, exceeded by "
        f"{violations} of {n} episodes)"
    )


def _count_violations(
    costs: ArrayLike, cost_limit: float, level: float
) -> tuple[int, int, float]:
    """Return the numbers of violations and episodes, and an upper bound on the rate."""
    check_range("cost_limit", cost_limit)
    costs = _episode_costs(costs, None)
    violations, n = int((costs > cost_limit).sum()), len(costs)
    return violations, n, proportion_upper_bound(violations, n, level)


def proportion_upper_bound(successes: float, n: int, level: float = 0.95) -> float:
    """Return the one-sided upper bound on a proportion by Clopper and Pearson (1934)."""
    check_level(level)
    check_proportion(successes, n)
    return _clopper_pearson(successes / n, n, level)


def _clopper_pearson(proportion: float, n: int, level: float) -> float:
    if proportion == 1:
        return 1.0
    return float(special.betaincinv(proportion * n + 1, n - proportion * n, level))


def cvar_upper_bound(
    costs: ArrayLike, tail: float, cost_bound: float, level: float = 0.95
) -> float:
    """Return an upper bound on CVaR at `tail` with confidence `level`.

    The bound is the smallest c for which the hypothesis CVaR >= c is rejected, or
    `cost_bound` if there is no such c. The order of the episodes has little influence,
    because the wealth is averaged over a few shuffles, which are always the same.
    """
    check_level(level)
    _check_tail(tail)
    costs = _episode_costs(costs, cost_bound)
    if cost_bound == 0:
        return 0.0
    bets = place_bets(shuffle(costs / cost_bound), tail, level)
    low, high = 0.0, 1.0
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if bets.reject(middle) else (middle, high)
    return cost_bound * high


def sample_cvar(costs: ArrayLike, tail: float) -> float:
    """Return the CVaR of a sample: the mean of the highest costs, a fraction `tail` of all.

    The lowest of these costs may count only in part, so that the fraction is exact.
    """
    ordered = np.sort(np.asarray(costs, np.float64))[::-1]
    mass = tail * len(ordered)
    weights = np.clip(mass - np.arange(len(ordered)), 0, 1)
    return float(weights @ ordered / mass)


def episodes_needed(
    costs: ArrayLike,
    cost_limit: float,
    tail: float,
    cost_bound: float,
    level: float = 0.95,
    largest: int | None = None,
) -> int | None:
    """Estimate how many episodes distributed like these would certify the limit.

    Larger samples are imitated by repeating this one. Returns the present number of episodes
    if it is enough, and None if even `largest` episodes, by default a million, are not.
    """
    check_level(level)
    _check_tail(tail)
    check_range("cost_limit", cost_limit, 0)
    costs = _episode_costs(costs, cost_bound)
    if cost_limit >= cost_bound:
        return len(costs)
    costs = costs / cost_bound

    def certifies(n: int) -> bool:
        bets = place_bets(shuffle(np.resize(costs, n)), tail, level)
        return bets.reject(cost_limit / cost_bound)

    return _smallest(certifies, len(costs), largest)


def shuffle(costs: np.ndarray) -> np.ndarray:
    """Return the costs in a few random orders, as an array (order, episode)."""
    orders = max(1, min(_MAX_ORDERS, _MAX_VALUES // len(costs)))
    random = np.random.default_rng(0)
    return random.permuted(np.tile(costs, (orders, 1)), axis=1)


@dataclass(frozen=True, eq=False)
class Bets:
    """Bets on the episodes in each order. They are constant within a block of episodes.

    Costs and CVaR are divided by the cost bound, so that they lie in [0, 1].
    """

    excess: np.ndarray
    """(order, episode): (cost - pivot)+ / (1 - pivot), in [0, 1], with x+ = max(x, 0)."""
    pivots: np.ndarray
    """(order, block)"""
    fractions: np.ndarray
    """(order, block): fraction of the wealth that is bet."""
    lengths: np.ndarray
    """Number of episodes in each block."""
    tail: float
    level: float

    def reject(self, cvar: float) -> bool:
        """Return whether CVaR >= `cvar` is rejected at `level`, for `cvar` < 1."""
        return self.log_wealth(cvar) >= -math.log1p(-self.level)

    def log_wealth(self, cvar: float) -> float:
        """Return the log of the mean wealth over orders from betting against CVaR >= `cvar`.

        For a cost X and any pivot b, CVaR <= b + E(X - b)+ / tail. So if CVaR >= c, the
        expected excess is at least mu = tail (c - b) / (1 - b). Each episode multiplies the
        wealth by 1 + f (mu - excess) / (1 - mu), where the bet f is in [0, 1]. If CVaR >= c,
        this factor has an expectation of at most 1. The wealth increases with c.
        """
        expected = self.tail * (cvar - self.pivots) / (1 - self.pivots)
        stake = self.fractions / (1 - expected)
        growth = np.repeat(stake * expected, self.lengths, axis=1)
        growth -= np.repeat(stake, self.lengths, axis=1) * self.excess
        wealth = np.log1p(growth, out=growth).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - math.log(len(wealth)))


def place_bets(orders: np.ndarray, tail: float, level: float) -> Bets:
    """Choose the pivot and the fraction of each block from the episodes before it.

    The pivot is the value at risk of these episodes at a tail that is smaller than `tail`. A
    smaller tail starts at a higher cost, and so does the tail of the worst distribution that
    the data do not exclude. No wealth is bet in the first block.
    """
    n = orders.shape[1]
    starts = [0]
    while (following := max(starts[-1] + 1, int(_GROWTH * starts[-1]))) < n:
        starts.append(following)
    lengths = np.diff(np.append(starts, n))
    reduction = 0.5 * math.sqrt(-2 * math.log1p(-level) / (n * tail))
    pivot_tail = tail * max(1 - reduction, 0.2)
    pivots = np.zeros((len(orders), len(starts)))
    moments = np.ones((2, *pivots.shape))
    for i, seen in enumerate(starts[1:], start=1):
        rank = seen - 1 - min(int(pivot_tail * seen), seen - 1)
        past = orders[:, :seen]
        pivot = np.partition(past, rank, axis=1)[:, rank]
        # Any pivot is valid, but no cost exceeds a pivot at the cost bound.
        pivots[:, i] = np.where(pivot < 1, pivot, 0)
        excess = _excess(past, pivots[:, i : i + 1])
        total = seen + _PRIOR_EPISODES
        moments[0, :, i] = (excess.sum(axis=1) + _PRIOR_EPISODES) / total
        moments[1, :, i] = ((excess**2).sum(axis=1) + _PRIOR_EPISODES) / total
    fractions = _bet_fractions(moments, np.array(starts), -math.log1p(-level) / n)
    excess = _excess(orders, np.repeat(pivots, lengths, axis=1))
    return Bets(excess, pivots, fractions, lengths, tail, level)


def _excess(costs: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    return np.maximum(costs - pivots, 0) / (1 - pivots)


def _bet_fractions(moments: np.ndarray, seen: np.ndarray, growth: float) -> np.ndarray:
    """Return Kelly's fractions, computed as if the excess had only two values, 0 and s.

    The value s and its probability q are chosen so that the first two moments of the excess
    are those in `moments`. The bet is made against p, the probability of s that would just be
    rejected after all n episodes: KL(q, p) = growth, which is log(1 / (1 - level)) / n. No bet
    is larger than the one that would be made if the excess of all episodes seen so far were 0.
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
        below = divergence < growth
        low, high = np.where(below, p, low), np.where(below, high, p)
    # Numerics: p = 1 would cause a division by zero. The fraction is clipped there anyway.
    return np.minimum(low, 1 - 1e-12)


def _smallest(
    certifies: Callable[[int], bool], start: int, largest: int | None = None
) -> int | None:
    """Return the smallest n >= start for which `certifies` is true, to within 3 %.

    Returns None if it is false for `largest`, by default `MAX_NEEDED`.
    """
    largest = MAX_NEEDED if largest is None else largest
    low = high = start
    while not certifies(high):
        if high >= largest:
            return None
        low, high = high, min(2 * high, largest)
    while high - low > max(1, 0.03 * high):
        middle = (low + high) // 2
        low, high = (low, middle) if certifies(middle) else (middle, high)
    return high


def _episode_costs(costs: ArrayLike, cost_bound: float | None) -> np.ndarray:
    """Return the costs in float64 after checking them against the declared bound."""
    costs = np.asarray(costs, np.float64)
    if costs.ndim != 1 or costs.size == 0:
        raise ValueError(f"expected one cost per episode, got shape {costs.shape}.")
    if not np.isfinite(costs).all():
        raise ValueError(
            "every episode's cost must be a finite number, got NaN or infinity in "
            f"{int((~np.isfinite(costs)).sum())} of {costs.size} episodes. "
            "A certificate cannot leave episodes out."
        )
    if cost_bound is None:
        return costs
    advice = "It is the largest possible cost of one episode; None if there is none."
    check_range("cost_bound", cost_bound, 0, advice=advice)
    # Numerics: costs summed in float32 may exceed the bound by a rounding error.
    slack = 1e-6 * cost_bound
    if costs.min() < -slack or costs.max() > cost_bound + slack:
        raise ValueError(
            f"every episode's cost must be in [0, cost_bound = {cost_bound:g}], got "
            f"costs in [{costs.min():g}, {costs.max():g}]. "
            "Declare a bound that really holds, because a certificate relies on it."
        )
    return np.clip(costs, 0, cost_bound)


def _check_tail(tail: float) -> None:
    advice = "tail is the fraction of worst episodes: 0.05 means the worst 5 %."
    check_range("tail", tail, 0, 1, open_low=True, advice=advice)


def name_of_risk(tail: float, cost: str = "episode cost") -> str:
    """Return the name of the risk that a certificate at this tail bounds.

    `cost` is the name of the cost, such as "episode cost".
    """
    return (
        f"the mean of {cost}" if tail == 1 else f"the CVaR of {cost} at tail {tail:g}"
    )


def percent(level: float) -> str:
    """Format a confidence in per cent. A confidence below 1 is never shown as 100 %."""
    text = f"{100 * level:g}"
    return f"{min(100 * level, 99.9999999999):.12g}" if text == "100" else text


def round_up(value: float, digits: int = 3) -> str:
    """Format `value`, rounded up to this many significant digits."""
    if value == 0:
        return "0"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(abs(value))))
    # Numerics: in floating point 1.1 * 100 is above 110, but must not be rounded up.
    return f"{math.ceil(value * scale - 1e-9) / scale:.15g}"
