"""Rank the groups of an environment: the best mean of each metric, and how clear it is.

A group is clearly ahead of another if the interval of their difference excludes 0. Where
all seeds of both groups agree there is no such interval, and the interval of the
probability of improvement must exclude 0.5. All pairs of groups are compared and the best
group is not known beforehand, so each pair gets its share of the error level
(Bonferroni). Runs are never paired by seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orac.evaluation.aggregates import probability_of_improvement
from orac.evaluation.intervals import ALL_EQUAL, Interval, difference_interval
from orac.evaluation.result import cost_column
from orac.reports.metrics import Metric, common_tails, env_metrics, summary_metrics
from orac.reports.run_reader import Group
from orac.reports.seed_statistics import seed_mean, seed_values


@dataclass(frozen=True)
class Win:
    """The best mean of one metric, and how clearly it beats the others."""

    title: str
    best: tuple[str, ...]
    """Labels of the groups that share the best mean; usually one."""
    value: Interval
    ahead_of: tuple[str, ...]
    unclear: tuple[str, ...]
    """Labels of the groups that the best is not clearly ahead of."""

    @property
    def is_clear(self) -> bool:
        """Whether one group is clearly ahead of every other."""
        return len(self.best) == 1 and bool(self.ahead_of) and not self.unclear


def find_wins(groups: Sequence[Group], level: float = 0.95) -> list[Win]:
    """Return the winner of each metric that has a better direction.

    The reward is ranked twice if only some groups keep their limits.
    """
    groups = [group for group in groups if group.evaluated]
    values = [seed_values(group, common_tails(groups)) for group in groups]
    reward, *others = summary_metrics(groups)
    others += env_metrics(groups[0].env_id, values)
    everyone = list(zip(groups, values, strict=True))
    safe = [
        (group, known)
        for group, known in everyone
        if group.config.constraints and _keeps_limits(group, known)
    ]
    found = [_find_win(reward, reward.title, everyone, level)]
    if 0 < len(safe) < len(groups):
        title = f"{reward.title} (of those within their limit)"
        found.append(_find_win(reward, title, safe, level))
    found += [_find_win(metric, metric.title, everyone, level) for metric in others]
    return [win for win in found if win is not None]


def _keeps_limits(group: Group, values: dict[str, np.ndarray]) -> bool:
    """Return whether the mean over seeds of every constrained risk is within its limit."""
    risks = [
        (values.get(f"{cost_column(c.name)}/risk"), c.limit)
        for c in group.config.constraints
    ]
    return all(risk is not None and risk.mean() <= limit for risk, limit in risks)


def _find_win(
    metric: Metric,
    title: str,
    groups: Sequence[tuple[Group, dict[str, np.ndarray]]],
    level: float,
) -> Win | None:
    known = [
        (group.label, values[metric.key], mean)
        for group, values in groups
        if (mean := seed_mean(values, metric.key, group, level)) is not None
    ]
    if not metric.better or not known:
        return None
    sign = 1 if metric.better == "higher" else -1
    top = max(sign * mean.estimate for _, _, mean in known)
    first = [
        entry
        for entry in known
        if math.isclose(sign * entry[2].estimate, top, rel_tol=1e-9, abs_tol=1e-12)
    ]
    pairs = len(known) * (len(known) - 1) // 2
    pair_level = 1 - (1 - level) / max(pairs, 1)
    ahead, unclear = [], []
    best = tuple(label for label, _, _ in first)
    for label, numbers, _ in (entry for entry in known if entry[0] not in best):
        clear = all(
            _is_ahead(sign * own, sign * numbers, pair_level) for _, own, _ in first
        )
        (ahead if clear else unclear).append(label)
    return Win(title, best, first[0][2], tuple(ahead), tuple(unclear))


def _is_ahead(ours: np.ndarray, theirs: np.ndarray, level: float) -> bool:
    found = difference_interval(ours, theirs, level)
    if found.method == ALL_EQUAL:
        # Ranks can tell groups without any spread apart, given enough seeds.
        found = probability_of_improvement(ours, theirs, level)
        return found.low is not None and found.low > 0.5
    return found.low is not None and found.low > 0


def describe_wins(found: Sequence[Win]) -> str:
    """Return one or two sentences: who has the best mean in what, and where clearly."""
    best: dict[str, list[str]] = {}
    clear: dict[str, list[str]] = {}
    for win in found:
        best.setdefault(" and ".join(win.best), []).append(win.title)
        if win.is_clear:
            clear.setdefault(win.best[0], []).append(win.title)
    if clear:
        return f"Best mean: {_listed(best)}. Clearly ahead of all others: {_listed(clear)}."
    return f"Best mean: {_listed(best)}. No group is clearly ahead of all others."


def _listed(found: dict[str, list[str]]) -> str:
    return "; ".join(f"{who} in {', '.join(what)}" for who, what in found.items())
