"""Certificates: upper confidence bounds on the cost of one policy, from its episodes.

`cvar_upper_bound` holds for every distribution on [0, cost_bound] and every number of
episodes, with probability at least `level`. `cvar_bounds` has the method, and
`docs/statistics.md` the proof and a comparison with other bounds. A certificate is about
the policy that played the episodes, not about the algorithm that trained it, and its
episodes must not have been used to choose that policy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from orac.config.validation import check_range
from orac.evaluation import cvar_bounds
from orac.evaluation.intervals import check_level, check_proportion

MAX_EPISODES = 1_000_000
"""Largest number of episodes that `episodes_needed` considers."""


@dataclass(frozen=True)
class Certificate:
    """An upper confidence bound on a risk, compared with its limit."""

    quantity: str
    """Name of the risk in the sentence, such as "the CVaR at 0.05 of episode cost"."""
    estimate: float
    upper: float | None
    """Upper bound; None if there is none, for the reason in `remark`."""
    limit: float
    level: float
    """Confidence of the bound, such as 0.95."""
    episodes: int
    episodes_needed: int | None = None
    """Approximate number of episodes like these that would certify; None if unknown."""
    cost_bound: float | None = None
    """Largest possible cost of an episode as the environment declares it."""
    remark: str = ""

    @property
    def certified(self) -> bool:
        """Whether the bound is within the limit."""
        return self.upper is not None and self.upper <= self.limit

    def sentence(self) -> str:
        """Return the certificate as one sentence, with its bound rounded up."""
        if self.upper is None:
            return f"no certificate for {self.quantity}: {self.remark}"
        vacuous = self.upper == self.cost_bound
        relation = "at most the declared bound," if vacuous else "below"
        bound = (
            f"with {100 * self.level:g} % confidence {self.quantity} is {relation} "
            f"{_round_up(self.upper)} (limit {self.limit:g})"
        )
        if self.certified and vacuous:
            return f"{bound}: certified by the declared bound, whatever the policy"
        if self.certified:
            plural = "" if self.episodes == 1 else "s"
            return f"{bound}: certified by {self.episodes} episode{plural}"
        if self.episodes_needed is not None:
            about = _round_up(float(self.episodes_needed), 2)
            reason = f"about {about} episodes like these would be needed"
        elif self.estimate >= self.limit:
            reason = (
                f"the estimate {self.estimate:.3g} is not below the limit, so that more "
                "episodes like these would not help"
            )
        else:
            reason = f"more than {MAX_EPISODES} episodes like these would be needed"
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
    """Certify that the CVaR of the episode cost is below the limit.

    `estimate` is the CVaR of these costs. If the environment declares no bound on an
    episode's cost, there is no certificate of CVaR, and the sentence has that of
    `certify_violations` instead.
    """
    episodes = _episode_costs(costs, cost_bound)
    _check_tail(tail)
    check_range("cost_limit", cost_limit, 0)
    name = "mean" if tail == 1 else f"CVaR at {tail:g}"
    upper = needed = None
    remark = ""
    if cost_bound is None:
        violations = certify_violations(episodes, cost_limit, tail, level)
        remark = (
            "the environment declares no bound of an episode's cost, and without one a "
            "single unseen episode could cost anything. What can be said without it: "
            + violations.sentence()
        )
    else:
        upper = cvar_upper_bound(episodes, tail, cost_bound, level)
        if upper > cost_limit > estimate:
            needed = episodes_needed(episodes, cost_limit, tail, cost_bound, level)
    return Certificate(
        quantity=f"the {name} of episode cost",
        estimate=estimate,
        upper=upper,
        limit=cost_limit,
        level=level,
        episodes=len(episodes),
        episodes_needed=needed,
        cost_bound=cost_bound,
        remark=remark,
    )


def certify_violations(
    costs: ArrayLike, cost_limit: float, tail: float, level: float = 0.95
) -> Certificate:
    """Certify that an episode costs more than the limit with probability below `tail`.

    This is Clopper and Pearson's upper bound, which needs no bound on the cost. It bounds
    how often the limit is exceeded (the value at risk), but not by how much.
    """
    _check_tail(tail)
    check_range("cost_limit", cost_limit)
    costs = _episode_costs(costs, None)
    n, violations = len(costs), int((costs > cost_limit).sum())
    upper = proportion_upper_bound(violations, n, level)
    rate, needed = violations / n, None
    if upper > tail > rate:
        needed = _smallest(lambda more: _clopper_pearson(rate, more, level) <= tail, n)
    quantity = f"the probability of an episode cost above {cost_limit:g}"
    return Certificate(quantity, rate, upper, tail, level, n, needed)


def violation_sentence(
    costs: ArrayLike, cost_limit: float, level: float = 0.95, name: str = "cost"
) -> str:
    """Return Clopper and Pearson's bound on the rate of violations as a sentence."""
    check_range("cost_limit", cost_limit)
    costs = _episode_costs(costs, None)
    n, violations = len(costs), int((costs > cost_limit).sum())
    upper = proportion_upper_bound(violations, n, level)
    return (
        f"with {100 * level:g} % confidence an episode's {name} exceeds the limit with "
        f"probability at most {_round_up(upper)} (limit {cost_limit:g}, exceeded by "
        f"{violations} of {n} episodes)"
    )


def proportion_upper_bound(successes: float, n: int, level: float = 0.95) -> float:
    """Return the one-sided upper bound of a proportion by Clopper and Pearson (1934)."""
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
    """Return an upper bound of CVaR at `tail` with confidence `level`.

    It is the smallest c for which the hypothesis CVaR >= c is rejected, and `cost_bound`
    if none is.
    """
    check_level(level)
    _check_tail(tail)
    costs = _episode_costs(costs, cost_bound)
    if cost_bound == 0:
        return 0.0
    costs = costs / cost_bound
    return cost_bound * cvar_bounds.smallest_rejected_cvar(costs, tail, level)


def episodes_needed(
    costs: ArrayLike,
    cost_limit: float,
    tail: float,
    cost_bound: float,
    level: float = 0.95,
) -> int | None:
    """Return about how many episodes distributed like these would certify the limit.

    It is found by repeating the sample. Returns the present number if that is enough, and
    None if a million episodes would not be.
    """
    check_level(level)
    _check_tail(tail)
    check_range("cost_limit", cost_limit, 0)
    costs = _episode_costs(costs, cost_bound)
    if cost_limit >= cost_bound:
        return len(costs)
    costs = costs / cost_bound

    def certifies(n: int) -> bool:
        more = np.resize(costs, n)
        return cvar_bounds.rejects(more, cost_limit / cost_bound, tail, level)

    return _smallest(certifies, len(costs))


def _smallest(certifies: Callable[[int], bool], start: int) -> int | None:
    """Return the smallest n >= start that certifies, to within 3 %; it is monotone in n."""
    low = high = start
    while not certifies(high):
        if high >= MAX_EPISODES:
            return None
        low, high = high, min(2 * high, MAX_EPISODES)
    while high - low > max(1, 0.03 * high):
        middle = (low + high) // 2
        low, high = (low, middle) if certifies(middle) else (middle, high)
    return high


def _episode_costs(costs: ArrayLike, cost_bound: float | None) -> np.ndarray:
    """Return the costs in float64 after checking them against the declared bound."""
    costs = np.asarray(costs, np.float64)
    if costs.ndim != 1 or costs.size == 0:
        raise ValueError(
            f"expected one cost per episode, got an array of shape {costs.shape}."
        )
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
    advice = "tail is the worst-case mass: 0.05 means the worst 5%."
    check_range("tail", tail, 0, 1, open_low=True, advice=advice)


def _round_up(value: float, digits: int = 3) -> str:
    """Format `value` with that many significant digits, never below it."""
    if value == 0:
        return "0"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(abs(value))))
    # Numerics: 5.2 * 100 is slightly above 520, but must stay 520.
    return f"{math.ceil(value * scale - 1e-9) / scale:.15g}"
