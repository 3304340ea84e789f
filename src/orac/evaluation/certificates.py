"""What n episodes of one policy prove about its cost: bounds that hold within one seed.

`cvar_upper_bound` holds for every distribution on [0, cost_bound] and every n, with
probability at least `level`; `betting` has the maths, `docs/statistics.md` the proof and
what it is compared with. A certificate is about the policy whose episodes these are, not
about the algorithm that trained it, and its episodes must not have been used to choose
that policy. Point estimates of CVaR come from `risk`; this room only bounds them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from orac.config.validation import check_range
from orac.evaluation import cvar_bounds as betting
from orac.evaluation.intervals import check_level, check_share

_MOST_EPISODES = 1_000_000


@dataclass(frozen=True)
class Certificate:
    """An upper confidence bound, the limit it is held against, and what it would take."""

    quantity: str
    """What is bounded, in words: "the CVaR at 0.05 of episode cost"."""
    estimate: float
    upper: float | None
    """None when nothing can be said; `remark` then says why."""
    limit: float
    level: float
    episodes: int
    episodes_needed: int | None = None
    """About how many episodes like these would certify; None: no number found."""
    cost_bound: float | None = None
    """Most that an episode can cost, as declared; what the bound rests on."""
    remark: str = ""

    @property
    def certified(self) -> bool:
        """Whether the bound is within the limit."""
        return self.upper is not None and self.upper <= self.limit

    def sentence(self) -> str:
        """The certificate in one sentence, its bound rounded up."""
        if self.upper is None:
            return f"no certificate for {self.quantity}: {self.remark}"
        vacuous = self.upper == self.cost_bound
        relation = "at most the declared bound," if vacuous else "below"
        bound = (
            f"with {100 * self.level:g} % confidence {self.quantity} is {relation} "
            f"{_round_up(self.upper)} (limit {self.limit:g})"
        )
        if self.certified and vacuous:
            return f"{bound}: certified by that bound alone, whatever the policy"
        if self.certified:
            plural = "" if self.episodes == 1 else "s"
            return f"{bound}: certified by {self.episodes} episode{plural}"
        return f"{bound}: not certified; {self._way_out()}"

    def _way_out(self) -> str:
        if self.episodes_needed is not None:
            about = _round_up(float(self.episodes_needed), 2)
            return f"about {about} episodes like these would be needed"
        if self.estimate >= self.limit:
            return (
                f"the estimate {self.estimate:.3g} is not below the limit, so that more "
                "episodes like these would not help"
            )
        return f"more than {_MOST_EPISODES} episodes like these would be needed"


def certify_cvar(
    costs: ArrayLike,
    estimate: float,
    *,
    cost_limit: float,
    tail: float,
    cost_bound: float | None,
    level: float = 0.95,
) -> Certificate:
    """Is CVaR of the episode cost below the limit, at the given level?

    `estimate` is the costs' own CVaR, by `risk.sample_risk`. Without a declared bound of
    an episode's cost there is no certificate: the sentence offers another one.
    """
    episodes = _episode_costs(costs, cost_bound)
    _check_tail(tail)
    check_range("cost_limit", cost_limit, 0)
    what = "mean" if tail == 1 else f"CVaR at {tail:g}"
    quantity = f"the {what} of episode cost"
    if cost_bound is None:
        remark = _without_bound(certify_violations(episodes, cost_limit, tail, level))
        upper = needed = None
    else:
        remark = ""
        upper = cvar_upper_bound(episodes, tail, cost_bound, level)
        helps = upper > cost_limit > estimate
        needed = (
            episodes_needed(episodes, cost_limit, tail, cost_bound, level)
            if helps
            else None
        )
    return Certificate(
        quantity=quantity,
        estimate=estimate,
        upper=upper,
        limit=cost_limit,
        level=level,
        episodes=len(episodes),
        episodes_needed=needed,
        cost_bound=cost_bound,
        remark=remark,
    )


def _without_bound(violations: Certificate) -> str:
    return (
        "the environment declares no bound of an episode's cost, and without one a single "
        "unseen episode could cost anything. What can be said without it: "
        + violations.sentence()
    )


def certify_violations(
    costs: ArrayLike, cost_limit: float, tail: float, level: float = 0.95
) -> Certificate:
    """Does an episode cost more than the limit with probability below `tail`?

    Clopper and Pearson's upper bound; needs no bound of the cost. It says that the value
    at risk is within the limit, not how bad the episodes beyond it are.
    """
    _check_tail(tail)
    check_range("cost_limit", cost_limit)
    costs = _episode_costs(costs, None)
    n, violations = len(costs), int((costs > cost_limit).sum())
    upper = share_upper_bound(violations, n, level)
    needed = None
    if upper > tail > violations / n:
        needed = _episodes_for_share(violations / n, n, tail, level)
    quantity = f"the probability of an episode cost above {cost_limit:g}"
    return Certificate(quantity, violations / n, upper, tail, level, n, needed)


def violation_sentence(
    costs: ArrayLike, cost_limit: float, level: float = 0.95, name: str = "cost"
) -> str:
    """How often an episode exceeds the limit at most, by Clopper and Pearson, in words."""
    check_range("cost_limit", cost_limit)
    costs = _episode_costs(costs, None)
    n, violations = len(costs), int((costs > cost_limit).sum())
    upper = share_upper_bound(violations, n, level)
    return (
        f"with {100 * level:g} % confidence an episode's {name} exceeds the limit with "
        f"probability at most {_round_up(upper)} (limit {cost_limit:g}, exceeded by "
        f"{violations} of {n} episodes)"
    )


def share_upper_bound(successes: float, n: int, level: float = 0.95) -> float:
    """One-sided upper bound of a share by Clopper and Pearson (1934)."""
    check_level(level)
    check_share(successes, n)
    return _share_upper(successes / n, n, level)


def _share_upper(share: float, n: int, level: float) -> float:
    if share == 1:
        return 1.0
    return float(special.betaincinv(share * n + 1, n - share * n, level))


def _episodes_for_share(share: float, n: int, limit: float, level: float) -> int | None:
    return _first(lambda more: _share_upper(share, more, level) <= limit, n)


def cvar_upper_bound(
    costs: ArrayLike, tail: float, cost_bound: float, level: float = 0.95
) -> float:
    """A number that CVaR at `tail` stays below with probability `level`, for any n.

    The least c at which a gambler who bets against CVaR >= c has multiplied the stake
    by 1 / (1 - level); `cost_bound` when there is none.
    """
    check_level(level)
    _check_tail(tail)
    costs = _episode_costs(costs, cost_bound)
    if cost_bound == 0:
        # Where nothing can cost anything there is nothing to doubt.
        return 0.0
    costs = costs / cost_bound
    return cost_bound * betting.least_rejected(costs, tail, level)


def episodes_needed(
    costs: ArrayLike,
    cost_limit: float,
    tail: float,
    cost_bound: float,
    level: float = 0.95,
) -> int | None:
    """About how many episodes distributed like these would certify the limit.

    Found by repeating the sample; None when a million would not do. The number at hand
    when it suffices already.
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
        return betting.rejects(more, cost_limit / cost_bound, tail, level)

    return _first(certifies, len(costs))


def _first(certifies: Callable[[int], bool], start: int) -> int | None:
    """Least n from `start` on that certifies, to within 3 %; certifying is monotone."""
    low = high = start
    while not certifies(high):
        if high >= _MOST_EPISODES:
            return None
        low, high = high, min(2 * high, _MOST_EPISODES)
    while high - low > 0.03 * high:
        middle = (low + high) // 2
        low, high = (low, middle) if certifies(middle) else (middle, high)
    return high


def _episode_costs(costs: ArrayLike, cost_bound: float | None) -> np.ndarray:
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
    if not (math.isfinite(cost_bound) and cost_bound >= 0):
        raise ValueError(
            f"cost_bound must be a finite number of at least 0, got {cost_bound}. "
            "It is the most that one episode can cost; None when there is none."
        )
    # Numerics: costs summed in float32 may overshoot by rounding.
    slack = 1e-6 * cost_bound
    if costs.min() < -slack or costs.max() > cost_bound + slack:
        raise ValueError(
            f"every episode's cost must be in [0, cost_bound = {cost_bound:g}], got "
            f"costs in [{costs.min():g}, {costs.max():g}]. "
            "Declare a bound that really holds; a certificate rests on it."
        )
    return np.clip(costs, 0, cost_bound)


def _check_tail(tail: float) -> None:
    if not 0 < tail <= 1:
        raise ValueError(
            f"tail must be in (0, 1], got {tail}. "
            "tail is the worst-case mass: 0.05 means the worst 5%."
        )


def _round_up(value: float, digits: int = 3) -> str:
    """`value` with that many significant digits, never below it."""
    if value == 0:
        return "0"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(abs(value))))
    # Numerics: 5.2 * 100 is a hair above 520, which must stay 520.
    return f"{math.ceil(value * scale - 1e-9) / scale:.15g}"
