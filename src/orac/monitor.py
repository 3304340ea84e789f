"""Monitor the episode costs of a deployed policy with only NumPy.

    monitor = orac.Monitor(limit=5, tail=0.05, confidence=0.95, cost_bound=24)
    monitor.update(episode_cost)  # "within", "undecided" or "broken"

A monitor has bounds on the CVaR of the episode cost and on the rate of violations. They are
confidence sequences: with the stated confidence they hold after every episode at once, so
you may look whenever you like and stop when you like. They assume independent episodes of
one unchanging policy and environment. `monitor.alarm` reports that this has changed.

The method is betting (Waudby-Smith and Ramdas, 2024, arXiv:2010.09686). Costs X are divided
by `cost_bound`, so they are in [0, 1], and CVaR = min over b of b + E(X - b)+ / tail. A
gambler starts with a wealth of 1 and bets against one hypothesis. Each bet uses only earlier
episodes. If the hypothesis is true, the wealth is not expected to grow, and by Ville's
inequality it ever reaches 2 / error with a probability of at most error / 2. A hypothesis is
rejected for good as soon as its gambler has reached this goal. The levels c are a fixed grid.

Upper bound: CVaR >= c implies E(X - b)+ >= tail (c - b) for every pivot b. Each level has
one gambler, who chooses a pivot and a stake from the past. The factor of an episode is
1 + stake (mean - Y) with Y = (X - b)+ / (1 - b) and mean = tail (c - b) / (1 - b). The bound
is the smallest level for which it and all larger ones are rejected.

Lower bound: CVaR <= c implies that some pivot b in [0, c] has E(X - b)+ / (c - b) <= tail.
Each level has one gambler for each cell [low, high] of pivots, and is rejected when all of
them have reached the goal. (X - b)+ / (c - b) decreases in b if X < c and increases if
X > c. Its smallest value in a cell is therefore the excess

    (X - low) / (c - low) if X > c,    (X - high)+ / (c - high) otherwise,

so if b is in the cell, E excess <= tail, and 1 + fraction (excess / tail - 1) is a fair or
unfavourable factor. One of the cells contains the true pivot, and its gambler is the only
one who has to fail; so the grid of pivots costs some tightness but no validity. The bound is
the largest level for which it and all smaller ones are rejected.

Violations: a beta-binomial confidence sequence with an error of its own (`rate_interval`).
Alarm: an e-detector, the Shiryaev-Roberts sum of the bets of the lower bound at the limit
(`ChangeDetector`). `docs/statistics.md` has the proofs and measurements.

This file uses nothing else of the package, so it can be copied to where the policy runs.
"""

import hashlib
import json
import math
import os
import stat
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

_FORMAT = "orac.Monitor 1"
_MAX_BYTES = 1 << 24
"""Largest file of a monitor; one has about 100 kB."""
_SMALLEST = 1e-9
"""Smallest tail, and smallest limit as a share of the cost bound, before sums round."""
_PRIOR_AT_BOUND = 0.1
"""Weight of an imagined episode at the cost bound in the upper bound's bets."""
_PRIOR_AT_ZERO = 0.5
"""Weight of an imagined episode without cost in the lower bound's bets. Both weights only
matter for how tight the bounds are; the values were chosen by measurement."""
_GROWTH = 1.1
"""New bets are placed whenever the number of episodes has grown by this factor."""
_ALARM_FRACTIONS = 0.9 * 0.5 ** np.arange(7)
"""Fractions of the detector's bets. They are fixed, because bets that learn from the
episodes before a change would be slow to notice it."""


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
        """Start without episodes.

        Args:
            limit: the largest CVaR that an episode's cost may have.
            tail: the worst-case mass of CVaR. 0.05 means the worst 5 %, and 1 the mean.
            confidence: of the bounds on CVaR together, and of those on violations.
            cost_bound: the largest possible cost of an episode.
            run_length: the average number of episodes between two false alarms is at least
                this, as long as CVaR is within the limit.
        """
        _check("cost_bound", cost_bound, 0, advice="It is an episode's largest cost.")
        advice = "Any other limit is always met or never, so no monitor is needed."
        _check("limit", limit, 0, cost_bound, advice=advice)
        if limit < _SMALLEST * cost_bound:
            raise ValueError(
                f"limit must be at least {_SMALLEST:g} of cost_bound, got {limit!r} of "
                f"{cost_bound!r}. Choose a smaller cost_bound that still holds."
            )
        advice = "tail is the worst-case mass: 0.05 means the worst 5%."
        _check("tail", tail, 0, 1, closed=True, advice=advice)
        if tail < _SMALLEST:
            raise ValueError(
                f"tail must be at least {_SMALLEST:g}, got {tail!r}. {advice}"
            )
        _check("confidence", confidence, 0, 1, advice="It is for example 0.95.")
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
        """Add the cost of one episode and return the status."""
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
        """Say what the bounds on CVaR prove about the limit.

        "broken" means that CVaR is above the limit, "within" that it is below, and
        "undecided" that more episodes are needed. Once decided it stays so, because it is
        about one unchanging policy and environment; the alarm is about a change.
        """
        lower, upper = self.cvar_bounds
        if lower >= self.limit:
            return "broken"
        return "within" if upper <= self.limit else "undecided"

    def sentence(self) -> str:
        """Return the state of the monitor as one sentence."""
        name = "mean" if self.tail == 1 else f"CVaR at {self.tail:g}"
        plural = "" if self.episodes == 1 else "s"
        cvar, rate = _outwards(self.cvar_bounds), _outwards(self.violation_bounds)
        text = (
            f"{self.status} after {self.episodes} episode{plural}: with "
            f"{100 * self.confidence:g} % confidence the {name} of episode cost is between "
            f"{cvar} (limit {self.limit:g}), and with the same confidence the probability "
            f"of exceeding the limit is between {rate}"
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
        """Set the alarm to False and start to look for a change from here."""
        self.alarm = False
        self._detector = ChangeDetector(self.limit / self.cost_bound, self.tail)

    def save(self, path: str | os.PathLike) -> None:
        """Write the monitor as a JSON file, from which `load` continues exactly.

        An earlier save of a monitor is replaced in one step; no other file is.
        """
        path = os.fspath(path)
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
        part = f"{path}.part"
        # A file that a crash left here, or a link that somebody else made.
        with suppress(FileNotFoundError):
            os.unlink(part)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
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
        """Return the monitor of a file that `save` wrote."""
        path = os.fspath(path)
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
        """Continue from a saved state; raise an error if its numbers do not fit together."""
        bets = self._bets
        counts = _array(state["counts"], bets.counts)
        at_bets = _array(state["counts_at_bets"], bets.counts)
        episodes, violations = state["episodes"], state["violations"]
        low, high = state["violation_bounds"]
        is_whole = type(episodes) is int and type(violations) is int
        is_consistent = (
            is_whole
            and 0 <= violations <= episodes == counts.sum()
            and bool(((at_bets >= 0) & (at_bets <= counts)).all())
            and 0 <= low <= 1
            and 0 <= high <= 1
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
            "or start a new monitor with a cost_bound that really holds."
        )


_SETTINGS = ("limit", "tail", "confidence", "cost_bound", "run_length")


class CvarBets:
    """The gamblers of the bounds on CVaR, for costs in [0, 1].

    `grid` are the costs to which the past is rounded, and the pivots of the upper bound.
    With `streams`, a shape, there are that many independent streams of episodes.
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
        """Settle the bets with one episode's cost, and place new ones if they are due."""
        excess = np.maximum(cost[..., None] - self.pivot, 0) / (1 - self.pivot)
        growth = np.log1p(self.stake * (self.mean - excess))
        # A gambler who has reached the goal stops.
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
        """Return the places of the lower and upper bound in `[0, *levels, 1]`."""
        below = (self.lower_wealth >= self.goal).all(axis=-1)
        above = (self.upper_wealth >= self.goal)[..., ::-1]
        lower = np.logical_and.accumulate(below, axis=-1).sum(axis=-1)
        upper = np.logical_and.accumulate(above, axis=-1).sum(axis=-1)
        return lower, len(self.levels) + 1 - upper

    def place(self) -> None:
        """Choose all bets from the past costs, rounded up to the grid."""
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

        The excess is taken to be s with probability q and 0 otherwise, with the first two
        moments of the past. The factor 1 + stake (mean - Y) then grows fastest with
        stake = (mean - q s) / (mean (s - mean)), which is Kelly's.
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
        # An episode at the bound leaves at least the share that it is expected to need.
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
        """Choose Kelly's fraction for each cell, again for a two-point distribution."""
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
        # Numerics: by Cauchy and Schwarz the size is at least this, and so above 1.
        size = np.maximum(size, mean * total / max(self.episodes, 1))
        edge = np.where(favourable, size - 1, 1)
        self.fraction = np.where(favourable, (mean - 1) / edge, 0)


class ChangeDetector:
    """An e-detector of a CVaR above the limit, for costs in [0, 1].

    For every cell of pivots and every fraction it has the sum, over all episodes s so far,
    of the wealth of a gambler who started at episode s: M = (M + 1) factor. If CVaR is
    within the limit, the true pivot is in some cell, and E M <= E T for the M of this cell
    at any stopping time T. So the first time at which every cell's M, averaged over the
    fractions, is at least A comes after A or more episodes on average.
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
        """Return the logarithm of the smallest M over the cells."""
        mean = np.logaddexp.reduce(self.sums, axis=-1) - math.log(len(_ALARM_FRACTIONS))
        least = mean.min(axis=-1)
        # Numerics: M is never negative, but its logarithm may be minus infinity.
        return least + np.log(np.maximum(-np.expm1(-least), 1e-300))


def cost_grid(limit: float, cost_bound: float) -> np.ndarray:
    """Return 0, 199 levels with the limit as the hundredth, and the bound."""
    above = np.geomspace(limit, cost_bound, 101)
    return np.concatenate([limit * (np.arange(100) / 100), above])


def pivot_cells(levels: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each level's cells, which together cover the pivots [0, level].

    The cells become smaller towards the level. For the mean one pivot is enough: 0.
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
    Beta(1/2, 1/2) against p is a martingale that starts at 1. So by Ville's inequality it
    ever reaches 1 / error with a probability of at most the error, and the interval has all p
    for which it is below.
    """
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


def _last_excluded(excluded, outside: float, inside: float) -> float:
    """Return the end of the interval between an excluded and an included probability."""
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
    """Return whether this is a finite number. True and False are not."""
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
    """Return a value for a message, on one line and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) < 100 else f"{text[:60]}..."


def _read(path: str, advice: str) -> dict:
    """Return the contents of a file of `Monitor.save`, or raise an error."""
    # Without O_NONBLOCK, opening a pipe would wait for somebody who writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as stream:
        status, state = os.fstat(descriptor), None
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES:
            with suppress(ValueError, RecursionError):
                state = json.loads(stream.read(_MAX_BYTES), parse_constant=_refuse)
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a file of Monitor.save. {advice}")
    return state


def _refuse(name: str) -> None:
    """Raise an error for NaN and Infinity, which Python reads in JSON."""
    raise ValueError(f"{name} is not a finite number")


def _checksum(state: dict) -> str:
    """Return the SHA-256 of a monitor's saved state, which finds damage."""
    content = {name: value for name, value in state.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _array(values, like: np.ndarray) -> np.ndarray:
    """Return a saved list as an array of the same shape and type as `like`."""
    array = np.array(values)
    is_like = array.shape == like.shape and np.can_cast(array.dtype, like.dtype)
    if not is_like or not np.isfinite(array).all():
        raise ValueError("an array has another shape or type")
    return array.astype(like.dtype)


def _outwards(bounds: tuple[float, float]) -> str:
    """Format an interval with three digits, never narrower than it is."""
    texts = []
    for value, away in zip(bounds, (math.floor, math.ceil), strict=True):
        scale = 10.0 ** (2 - math.floor(math.log10(value))) if value > 0 else 1.0
        # Numerics: 5.2 * 100 is slightly above 520, but must stay 520.
        sign = -1 if away is math.ceil else 1
        texts.append(f"{away(value * scale + sign * 1e-9) / scale:.15g}")
    return " and ".join(texts)
