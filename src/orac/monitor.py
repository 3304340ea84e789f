"""Monitor the episode costs of a deployed policy with only NumPy.

    monitor = orac.Monitor(limit=5, tail=0.05, confidence=0.95, cost_bound=24)
    monitor.update(episode_cost)  # "within", "undecided" or "broken"

A monitor has bounds on the CVaR of an episode's cost and on the probability that an episode
costs more than the limit (a violation). They are confidence sequences: with the stated
confidence they hold after every episode at once, so you may look at them after any episode
and stop whenever you like. They assume independent episodes of one policy and environment
that do not change. `monitor.alarm` reports if recent episodes suggest that CVaR has risen
above the limit.

The method is betting (Waudby-Smith and Ramdas, 2024, arXiv:2010.09686). Costs X are divided
by `cost_bound`, so they are in [0, 1], and CVaR = min over b of b + E(X - b)+ / tail. Values
of b are called pivots, and the true pivot is where the minimum is attained. There are
hypotheses CVaR >= c and CVaR <= c for each level c of a fixed grid. A gambler starts with a
wealth of 1 and bets against one hypothesis. After each episode the wealth is multiplied by
a factor, which depends on the episode's cost and on a bet that was chosen from earlier
episodes. The gambler's goal is a wealth of 2 / error, where error = 1 - confidence. If the
hypothesis is true, the wealth is not expected to grow, and by Ville's inequality it ever
reaches the goal with a probability of at most error / 2. A hypothesis is rejected for good
when its gambler has reached the goal.

Upper bound: CVaR >= c implies E(X - b)+ >= tail (c - b) for every pivot b. Each level has
one gambler, whose bet is a pivot and a stake. The factor of an episode is
1 + stake (mean - Y) with Y = (X - b)+ / (1 - b) and mean = tail (c - b) / (1 - b). The bound
is the smallest level that is rejected together with all larger levels.

Lower bound: CVaR <= c implies that some pivot b in [0, c] has E(X - b)+ / (c - b) <= tail.
The interval [0, c] is divided into cells [low, high]. Each cell has one gambler, and the
level is rejected when all of them have reached the goal. (X - b)+ / (c - b) decreases in b if
X < c and increases if X > c. Its smallest value in a cell is therefore the excess

    (X - low) / (c - low) if X > c,    (X - high)+ / (c - high) otherwise.

If such a b is in the cell, then E excess <= tail, so the wealth is not expected to grow with
the factor 1 + fraction (excess / tail - 1). One such cell is enough, because the level is
rejected only if the gambler of this cell has reached the goal, too. So the cells make the
bound less tight, but not less valid. The bound is the largest level that is rejected together
with all smaller levels.

The bounds on the probability of a violation are a beta-binomial confidence sequence with its
own error (`rate_interval`). The alarm is an e-detector: the Shiryaev-Roberts sum of the bets
of the lower bound, with the limit as the level (`ChangeDetector`). `docs/statistics.md` has
the proofs and measurements.

This file imports no other module of orac, so it can be copied to where the policy runs.
"""

import hashlib
import json
import math
import os
import secrets
import stat
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

_FORMAT = "orac.Monitor 1"
_MAX_BYTES = 1 << 24
"""Maximum size of a monitor's file; a usual file has about 100 kB."""
_SMALLEST = 1e-9
"""Smallest allowed tail, and smallest allowed limit as a fraction of the cost bound. With
smaller values, rounding errors would matter."""
_PRIOR_AT_BOUND = 0.1
"""The upper bound's bets are chosen as if there had been an additional episode at the cost
bound, which counts with this weight."""
_PRIOR_AT_ZERO = 0.5
"""The lower bound's bets are chosen as if there had been an additional episode without cost,
which counts with this weight. Both weights affect only how tight the bounds are. Their values
were chosen by measurement."""
_GROWTH = 1.1
"""New bets are placed whenever the number of episodes has grown by this factor."""
_ALARM_FRACTIONS = 0.9 * 0.5 ** np.arange(7)
"""Fractions of the detector's bets. They are fixed, because bets that are chosen from the
episodes before a change would find the change late."""


class Monitor:
    """Bounds on the risk of a deployed policy that hold after every episode at once.

    Attributes:
        episodes: the number of episodes so far.
        violations: how many of them cost more than the limit.
        cvar_bounds: the lower and upper bound on CVaR. They never become wider.
        violation_bounds: the lower and upper bound on the probability that an episode costs
            more than the limit.
        alarm: whether the episodes suggest that CVaR has risen above the limit. It stays
            True until `clear_alarm`.
    """

    def __init__(
        self,
        limit: float,
        tail: float,
        confidence: float,
        cost_bound: float,
        run_length: float = 10_000,
    ):
        """Make a monitor without episodes.

        Args:
            limit: the limit on the CVaR of an episode's cost.
            tail: CVaR is the mean cost of the worst episodes, and tail is their fraction.
                0.05 means the worst 5 %, and 1 means all episodes.
            confidence: the probability with which both bounds on CVaR hold, at least. The
                bounds on violations hold with the same probability.
            cost_bound: the largest possible cost of an episode.
            run_length: a lower bound on the average number of episodes between two false
                alarms, which are alarms while CVaR is within the limit.
        """
        advice = "It is the largest possible cost of an episode."
        _check("cost_bound", cost_bound, 0, advice=advice)
        advice = "Any other limit is always met or never met, so it needs no monitor."
        _check("limit", limit, 0, cost_bound, advice=advice)
        if limit < _SMALLEST * cost_bound:
            raise ValueError(
                f"limit must be at least {_SMALLEST:g} of cost_bound, got {limit!r} of "
                f"{cost_bound!r}. Choose a smaller cost_bound, if no episode can exceed it."
            )
        advice = "tail is the fraction of worst episodes: 0.05 means the worst 5 %."
        _check("tail", tail, 0, 1, closed=True, advice=advice)
        if tail < _SMALLEST:
            raise ValueError(
                f"tail must be at least {_SMALLEST:g}, got {tail!r}. {advice}"
            )
        _check("confidence", confidence, 0, 1, advice="An example is 0.95.")
        _check("run_length", run_length, 1, advice="It is a number of episodes.")
        self.limit, self.tail = float(limit), float(tail)
        self.confidence, self.cost_bound = float(confidence), float(cost_bound)
        self.run_length = float(run_length)
        self.episodes = self.violations = 0
        self.cvar_bounds = (0.0, self.cost_bound)
        self.violation_bounds = (0.0, 1.0)
        self.alarm = False
        self._grid = cost_grid(self.limit, self.cost_bound)
        grid = self._grid / self.cost_bound
        goal = math.log(2 / (1 - self.confidence))
        self._bets = CvarBets(grid, grid[1:-1], self.tail, goal)
        self._detector = ChangeDetector(self.limit / self.cost_bound, self.tail)

    def update(self, episode_cost: Any) -> str:
        """Add the cost of one episode and return the new `status`."""
        cost = self._checked(episode_cost)
        self._bets.update(np.float64(cost / self.cost_bound))
        lower, upper = self._bets.bounds()
        self.cvar_bounds = (float(self._grid[lower]), float(self._grid[upper]))
        self.episodes += 1
        self.violations += int(cost > self.limit)
        low, high = rate_interval(self.violations, self.episodes, self.confidence)
        self.violation_bounds = (
            max(self.violation_bounds[0], low),
            min(self.violation_bounds[1], high),
        )
        if not self.alarm:
            self._detector.update(np.float64(cost / self.cost_bound))
            self.alarm = bool(self._detector.evidence() >= math.log(self.run_length))
        return self.status

    @property
    def status(self) -> str:
        """The result of comparing the bounds on CVaR with the limit.

        "broken" means that CVaR is above the limit, "within" means that it is below the
        limit, and "undecided" means that more episodes are needed. The bounds assume that
        policy and environment do not change, and they never become wider. So "broken" is
        final, and "within" can only become "broken", if later episodes contradict the
        earlier ones. To detect a change, use the alarm.
        """
        lower, upper = self.cvar_bounds
        if lower >= self.limit:
            return "broken"
        return "within" if upper <= self.limit else "undecided"

    def sentence(self) -> str:
        """Describe the status, the bounds and the alarm in one sentence."""
        name = "mean of episode cost"
        if self.tail != 1:
            name = f"CVaR of episode cost at tail {self.tail:g}"
        plural = "" if self.episodes == 1 else "s"
        cvar, rate = _outwards(self.cvar_bounds), _outwards(self.violation_bounds)
        text = (
            f"{self.status} after {self.episodes} episode{plural}: with "
            f"{_percent(self.confidence)} % confidence the {name} is between {cvar} (limit "
            f"{self.limit:g}), and with the same confidence the probability that an episode "
            f"exceeds the limit is between {rate}"
        )
        alarm = "; ALARM: recent episodes suggest that the limit is no longer met"
        return text + alarm * self.alarm

    def __repr__(self) -> str:
        low, high = self.cvar_bounds
        return (
            f"Monitor(status={self.status!r}, episodes={self.episodes}, "
            f"cvar_bounds=({low:.4g}, {high:.4g}), limit={self.limit:g}, "
            f"alarm={self.alarm})"
        )

    def clear_alarm(self) -> None:
        """Set the alarm to False and look for a change in later episodes only."""
        self.alarm = False
        self._detector = ChangeDetector(self.limit / self.cost_bound, self.tail)

    def save(self, path: str | os.PathLike) -> None:
        """Write the monitor to a JSON file, from which `load` restores it exactly.

        If the file exists, it must be a saved monitor. It is replaced in one step.
        """
        path = _path(path)
        if os.path.exists(path):
            _read(path, "Choose another name; other files are not replaced.")
        bets = self._bets
        state = {
            "format": _FORMAT,
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "episodes": self.episodes,
            "violations": self.violations,
            "violation_bounds": self.violation_bounds,
            "alarm": self.alarm,
            "counts": bets.counts.tolist(),
            "counts_at_bets": bets.counts_at_bets.tolist(),
            "upper_wealth": bets.upper_wealth.tolist(),
            "lower_wealth": bets.lower_wealth.tolist(),
            "alarm_sums": self._detector.sums.tolist(),
        }
        state["checksum"] = _checksum(state)
        # The name is new, so that no file of somebody else is written or deleted.
        part = f"{path}.{secrets.token_hex(8)}.part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                json.dump(state, stream, allow_nan=False)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Monitor":
        """Return the monitor from a file that `save` wrote."""
        path = _path(path)
        state = _read(path, "Give the path of a file of Monitor.save.")
        try:
            if state["checksum"] != _checksum(state):
                raise ValueError("the checksum is wrong")
            monitor = cls(**state["settings"])
            monitor._restore(state)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path} must be a complete file of Monitor.save, but it was changed or "
                "damaged. Use an earlier copy or start a new monitor."
            ) from error
        return monitor

    def _restore(self, state: dict) -> None:
        """Continue from a saved state, or raise an error if its numbers do not fit together."""
        bets = self._bets
        counts = _array(state["counts"], bets.counts)
        at_bets = _array(state["counts_at_bets"], bets.counts)
        episodes, violations = state["episodes"], state["violations"]
        low, high = state["violation_bounds"]
        is_whole = type(episodes) is int and type(violations) is int
        # Past costs are rounded up to the grid, so those at the limit may be above it.
        at_limit = int(np.searchsorted(self._grid, self.limit))
        above, from_limit = counts[at_limit + 1 :].sum(), counts[at_limit:].sum()
        is_consistent = (
            is_whole
            and 0 <= violations <= episodes == counts.sum()
            and bool(((at_bets >= 0) & (at_bets <= counts)).all())
            and above <= violations <= from_limit
            and _can_be_rate_bounds(low, high, violations, episodes, self.confidence)
            and type(state["alarm"]) is bool
        )
        if not is_consistent:
            raise ValueError("the numbers do not fit together")
        bets.counts = at_bets
        bets.place()
        bets.counts = counts
        bets.upper_wealth = _array(state["upper_wealth"], bets.upper_wealth)
        bets.lower_wealth = _array(state["lower_wealth"], bets.lower_wealth)
        self._detector.sums = _array(state["alarm_sums"], self._detector.sums)
        if not bets.can_be_wealth(episodes) or (self._detector.sums < 0).any():
            raise ValueError("no episodes lead to these wealths")
        missing = math.log(self.run_length) - self._detector.evidence()
        if (missing > 1e-6) if state["alarm"] else (missing < -1e-6):
            raise ValueError("the alarm does not fit its evidence")
        self.episodes, self.violations = episodes, violations
        bets.episodes = self.episodes
        lower, upper = bets.bounds()
        self.cvar_bounds = (float(self._grid[lower]), float(self._grid[upper]))
        self.violation_bounds = (float(low), float(high))
        self.alarm = state["alarm"]

    def _checked(self, cost: Any) -> float:
        """Return the cost as a number in [0, cost_bound], or raise an error."""
        # Numerics: costs summed in float32 may exceed the bound by a rounding error.
        slack = 1e-6 * self.cost_bound
        value = cost.item() if isinstance(cost, np.ndarray) and cost.ndim == 0 else cost
        number = float(value) if _is_number(value) else math.nan
        if -slack <= number <= self.cost_bound + slack:
            return min(max(number, 0.0), self.cost_bound)
        raise ValueError(
            f"episode_cost must be a number in [0, cost_bound = {self.cost_bound:g}], got "
            f"{_shown(cost)}. The bounds rely on every episode being counted: correct the cost, "
            "or start a new monitor with a cost_bound that no episode can exceed."
        )


def _percent(confidence: float) -> str:
    """Format a confidence in per cent. A confidence below 1 is never shown as 100 %."""
    text = f"{100 * confidence:g}"
    return f"{min(100 * confidence, 99.9999999999):.12g}" if text == "100" else text


_SETTINGS = ("limit", "tail", "confidence", "cost_bound", "run_length")


class CvarBets:
    """The gamblers of the bounds on CVaR, for costs in [0, 1].

    Past costs are rounded up to the values of `grid`, which are also the pivots that the
    upper bound uses. `levels` are the levels c of the hypotheses, and `goal` is the logarithm
    of the wealth at which a hypothesis is rejected. `streams` is the shape of an array of
    independent streams of episodes. The default is one stream. Each wealth is stored as its
    logarithm.
    """

    def __init__(self, grid, levels, tail: float, goal: float, streams=()):
        self.grid, self.levels, self.tail, self.goal = grid, levels, tail, goal
        self.level = levels[:, None]
        self.low, self.high = pivot_cells(levels, tail)
        self.counts = np.zeros((*streams, len(grid)), int)
        self.upper_wealth = np.zeros((*streams, len(levels)))
        self.lower_wealth = np.zeros((*streams, *self.low.shape))
        self.place()

    def update(self, cost) -> None:
        """Update the wealths with one episode's cost, and place new bets if they are due."""
        excess = np.maximum(cost[..., None] - self.pivot, 0) / (1 - self.pivot)
        growth = np.log1p(self.stake * (self.mean - excess))
        # A gambler who has reached the goal does not bet any more.
        self.upper_wealth += np.where(self.upper_wealth < self.goal, growth, 0)
        payoff = cell_excess(cost[..., None, None], self.level, self.low, self.high)
        growth = np.log1p(self.fraction * (payoff / self.tail - 1))
        self.lower_wealth += np.where(self.lower_wealth < self.goal, growth, 0)
        place = np.searchsorted(self.grid, cost)[..., None]
        count = np.take_along_axis(self.counts, place, -1) + 1
        np.put_along_axis(self.counts, place, count, -1)
        self.episodes += 1
        if self.episodes >= max(self.placed_at + 1, int(_GROWTH * self.placed_at)):
            self.place()

    def bounds(self):
        """Return the indices of the lower and the upper bound in `[0, *levels, 1]`."""
        below = (self.lower_wealth >= self.goal).all(axis=-1)
        above = (self.upper_wealth >= self.goal)[..., ::-1]
        lower = np.logical_and.accumulate(below, axis=-1).sum(axis=-1)
        upper = np.logical_and.accumulate(above, axis=-1).sum(axis=-1)
        return lower, len(self.levels) + 1 - upper

    def can_be_wealth(self, episodes: int) -> bool:
        """Return whether no wealth is larger than this number of episodes can make it.

        A gambler who has reached the goal does not bet any more. One episode multiplies the
        wealth by at most 1 / (1 - tail level) for the upper bound. For the lower bound, it
        multiplies it by at most the largest excess divided by the tail.
        """
        upper = -np.log1p(-self.tail * self.levels)
        largest = cell_excess(np.float64(1), self.level, self.low, self.high)
        lower = np.log(np.maximum(largest / self.tail, 1))
        return all(
            bool((wealth <= np.minimum(episodes * step, self.goal + step) + 1e-6).all())
            for wealth, step in ((self.upper_wealth, upper), (self.lower_wealth, lower))
        )

    def place(self) -> None:
        """Choose all bets from the past costs, which are rounded up to the grid."""
        self.counts_at_bets = self.counts.copy()
        self.episodes = self.placed_at = int(self.counts.sum(axis=-1).flat[0])
        powers = [self.counts * self.grid**k for k in range(3)]
        # sums[k][..., i] is the sum of cost**k over the costs from grid[i] upwards.
        sums = [np.cumsum(p[..., ::-1], axis=-1)[..., ::-1] for p in powers]
        sums = [np.concatenate([s, np.zeros_like(s[..., :1])], axis=-1) for s in sums]
        self._place_upper(sums)
        self._place_lower(sums)

    def _place_upper(self, sums) -> None:
        """Choose for each level the pivot and stake with the largest expected growth.

        The growth is computed as if Y had only two values: s with probability q, and 0
        otherwise. s and q are chosen so that the first two moments equal those in the past.
        The wealth then grows fastest with Kelly's stake, (mean - q s) / (mean (s - mean)).
        """
        pivots, prior = self.grid[:-1], _PRIOR_AT_BOUND
        total = self.episodes + prior
        zeroth, first, second = (s[..., 1:-1] for s in sums)
        moment = np.maximum(first - pivots * zeroth, 0) / (1 - pivots)
        square = second - 2 * pivots * first + pivots**2 * zeroth
        square = np.maximum(square, 0) / (1 - pivots) ** 2
        moment = ((moment + prior) / total)[..., None, :]
        size = ((square + prior) / total)[..., None, :] / moment
        mean = self.tail * (self.level - pivots) / (1 - pivots)
        usable = mean > 0
        mean = np.where(usable, mean, 0.5)
        # With this stake, an episode at the cost bound leaves the fraction
        # prior / (total mean) of the wealth. If that is above 1, the stake is 0.
        largest = np.maximum(1 - prior / total / mean, 0) / (1 - mean)
        spread = np.where(size > mean, size - mean, 1)
        kelly = np.where(size > mean, (mean - moment) / (mean * spread), np.inf)
        stake = np.where(usable, np.clip(kelly, 0, largest), 0)
        chance = moment / size
        growth = (1 - chance) * np.log1p(stake * mean)
        growth = growth + chance * np.log1p(-stake * (size - mean))
        best = growth.argmax(axis=-1)[..., None]
        self.pivot = pivots[best[..., 0]]
        mean = np.broadcast_to(mean, growth.shape)
        self.stake = np.take_along_axis(stake, best, -1)[..., 0]
        self.mean = np.take_along_axis(mean, best, -1)[..., 0]

    def _place_lower(self, sums) -> None:
        """Choose Kelly's fraction for each cell, as if the excess had only two values."""
        total = self.episodes + _PRIOR_AT_ZERO
        low, high, tail = self.low, self.high, self.tail
        top = [s[..., np.searchsorted(self.grid, self.level, "right")] for s in sums]
        inside = [s[..., np.searchsorted(self.grid, high, "right")] for s in sums]
        inside = [i - t for i, t in zip(inside, top, strict=True)]
        up, down = 1 / (self.level - low), _reciprocal(self.level - high)
        moment = (top[1] - low * top[0]) * up + (inside[1] - high * inside[0]) * down
        square = (top[2] - 2 * low * top[1] + low**2 * top[0]) * up**2
        square += (inside[2] - 2 * high * inside[1] + high**2 * inside[0]) * down**2
        mean = moment / tail / total
        favourable = mean > 1
        size = square / tail / np.where(favourable, moment, 1)
        # Numerics: by the Cauchy-Schwarz inequality, the size is at least this number, which
        # is above 1.
        size = np.maximum(size, mean * total / max(self.episodes, 1))
        edge = np.where(favourable, size - 1, 1)
        self.fraction = np.where(favourable, (mean - 1) / edge, 0)


class ChangeDetector:
    """An e-detector of a CVaR above the limit, for costs in [0, 1].

    For every cell of pivots and every fraction of wealth, imagine one gambler for each past
    episode, who started to bet with it. M is the sum of their wealths, and each new episode
    updates it to (M + 1) factor. If CVaR is within the limit, the true pivot is in some cell,
    and the M of this cell has E M <= E T at any stopping time T. Let T be the first time at
    which the M of every cell, averaged over the fractions, is at least A. Then T is at least
    A on average.
    """

    def __init__(self, limit: float, tail: float, streams=()):
        self.limit, self.tail = limit, tail
        low, high = pivot_cells(np.array([limit]), tail)
        self.low, self.high = low[0], high[0]
        self.sums = np.zeros((*streams, len(self.low), len(_ALARM_FRACTIONS)))
        """Logarithm of M + 1."""

    def update(self, cost) -> None:
        """Add one episode's cost."""
        excess = cell_excess(cost[..., None], self.limit, self.low, self.high)
        factor = _ALARM_FRACTIONS * (excess / self.tail - 1)[..., None]
        self.sums = np.logaddexp(0, self.sums + np.log1p(factor))

    def evidence(self):
        """Return the logarithm of the smallest M of a cell, averaged over the fractions."""
        mean = np.logaddexp.reduce(self.sums, axis=-1) - math.log(len(_ALARM_FRACTIONS))
        least = mean.min(axis=-1)
        # Numerics: M is never negative, but its logarithm may be minus infinity.
        return least + np.log(np.maximum(-np.expm1(-least), 1e-300))


def cost_grid(limit: float, cost_bound: float) -> np.ndarray:
    """Return 0, then 199 levels, and then the cost bound. The hundredth level is the limit."""
    above = np.geomspace(limit, cost_bound, 101)
    return np.concatenate([limit * (np.arange(100) / 100), above])


def pivot_cells(levels: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of each level's cells, which cover [0, level].

    The cells become smaller towards the level. For a tail of 1 (the mean), the only cell is
    the pivot 0.
    """
    if tail == 1:
        ends = np.zeros(2)
    else:
        coarse, fine = np.linspace(0, 0.8, 21), 1 - 0.2 * 0.8 ** np.arange(1, 14)
        ends = np.concatenate([coarse, fine, [1.0]])
    return levels[:, None] * ends[:-1], levels[:, None] * ends[1:]


def cell_excess(cost, level, low, high):
    """Return the smallest (cost - b)+ / (level - b) over the pivots b in [low, high]."""
    above = (cost - low) / (level - low)
    return np.where(
        cost > level, above, np.maximum(cost - high, 0) * _reciprocal(level - high)
    )


def rate_interval(successes: int, n: int, confidence: float) -> tuple[float, float]:
    """Return the beta-binomial confidence sequence of a probability after n trials.

    For the true probability p, the likelihood ratio of the mixture over Jeffreys' prior
    Beta(1/2, 1/2) against p is a martingale that starts at 1. So by Ville's inequality the
    probability that it ever reaches 1 / error is at most the error. The interval contains
    all p for which the ratio is below 1 / error.
    """
    if n == 0:
        return 0.0, 1.0
    failures = n - successes
    mixture = _log_beta(successes + 0.5, failures + 0.5) - _log_beta(0.5, 0.5)
    smallest = mixture + math.log1p(-confidence)

    def excluded(p):
        likelihood = failures * math.log1p(-p) if failures else 0.0
        likelihood += successes * math.log(p) if successes else 0.0
        return likelihood <= smallest

    rate = successes / n
    low = 0.0 if successes == 0 else _last_excluded(excluded, 0.0, rate)
    high = 1.0 if failures == 0 else _last_excluded(excluded, 1.0, rate)
    return low, high


def _can_be_rate_bounds(
    low: float, high: float, violations: int, episodes: int, confidence: float
) -> bool:
    """Return whether a monitor can have these bounds after this number of violations.

    The bounds never become wider, so they are at least as narrow as the present interval. They
    are narrowest if all violations came first, for the lower bound, or last. If the policy has
    become worse, the lower bound may be above the upper bound.
    """
    others = episodes - violations
    least, most = rate_interval(violations, episodes, confidence)
    largest = rate_interval(violations, violations, confidence)[0]
    smallest = rate_interval(0, others, confidence)[1]
    # Numerics: the end of an interval is found by bisection.
    return (
        least - 1e-9 <= low <= largest + 1e-9 and smallest - 1e-9 <= high <= most + 1e-9
    )


def _last_excluded(excluded, outside: float, inside: float) -> float:
    """Return the end of the interval by bisection, as a value that is still excluded.

    `outside` is an excluded probability and `inside` is one in the interval.
    """
    for _ in range(40):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if excluded(middle) else (outside, middle)
    return outside


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _reciprocal(gap):
    """Return 1 / gap, and 0 where the gap is 0."""
    return np.divide(1, gap, out=np.zeros_like(gap), where=gap > 0)


def _is_number(value: Any) -> bool:
    """Return whether this is a finite number. True and False do not count as numbers."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number beyond 1e308.
        return False


def _check(what, value, low, high=math.inf, closed=False, advice="") -> None:
    """Raise an error unless the number is in (low, high), or in (low, high] if closed."""
    inside = _is_number(value) and low < value
    inside = inside and (value <= high if closed else value < high)
    if not inside:
        text = f"above {low:g}"
        if high < math.inf:
            text += f" and {'at most' if closed else 'below'} {high:g}"
        raise ValueError(f"{what} must be {text}, got {_shown(value)}. {advice}")


def _shown(value) -> str:
    """Format a value for a message, on one line and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) < 100 else f"{text[:60]}..."


def _path(path: str | os.PathLike) -> str:
    """Return the path as text, or raise an error if it names no file."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(
            f"path must name a file, such as monitor.json, got {_shown(path)}."
        )
    return text


def _read(path: str, advice: str) -> dict:
    """Return the contents of a file of `Monitor.save`, or raise an error."""
    # Without O_NONBLOCK, opening a pipe would wait until another process writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    state = None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES:
            with open(descriptor, "rb", closefd=False) as stream:
                text = stream.read(_MAX_BYTES)
            with suppress(ValueError, RecursionError):
                state = json.loads(
                    text, parse_constant=_refuse, object_pairs_hook=_unique
                )
    finally:
        os.close(descriptor)
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a file of Monitor.save. {advice}")
    return state


def _unique(pairs: list) -> dict:
    """Return the dict of a JSON object; a key that occurs twice raises an error."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _refuse(name: str) -> None:
    """Raise an error for NaN and Infinity, which Python's JSON reader accepts by default."""
    raise ValueError(f"{name} is not a finite number")


def _checksum(state: dict) -> str:
    """Return the SHA-256 of a monitor's saved state, with which `load` detects damage."""
    content = {name: value for name, value in state.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _array(values, like: np.ndarray) -> np.ndarray:
    """Return a saved list as an array, which must have the shape and type of `like`."""
    array = np.array(values)
    is_like = array.shape == like.shape and np.can_cast(array.dtype, like.dtype)
    if not is_like or not np.isfinite(array).all():
        raise ValueError("an array has another shape or type")
    return array.astype(like.dtype)


def _outwards(bounds: tuple[float, float]) -> str:
    """Format an interval with three digits, rounded so that it never becomes narrower."""
    texts = []
    for value, away in zip(bounds, (math.floor, math.ceil), strict=True):
        scale = 10.0 ** (2 - math.floor(math.log10(value))) if value > 0 else 1.0
        # Numerics: 5.2 * 100 is slightly above 520, but must stay 520.
        sign = -1 if away is math.ceil else 1
        texts.append(f"{away(value * scale + sign * 1e-9) / scale:.15g}")
    return " and ".join(texts)
