"""Who wins where: the best group of each number, and whether that is more than luck.

A group is ahead of another where the interval of their difference leaves out 0, or,
where all seeds of both agree, that of P(a seed of one beats one of the other) 0.5. All
pairs of groups are compared at once, and the best was not known beforehand, so that each
pair gets its share of the level (Bonferroni). Runs are never paired by seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orac.evaluation.aggregates import probability_of_improvement
from orac.evaluation.intervals import ALL_EQUAL, Interval, difference_interval
from orac.evaluation.result import cost_column
from orac.reports.metrics import Measure, common_tails, measures, own_measures
from orac.reports.run_groups import Group
from orac.reports.seed_statistics import key_interval, seed_values

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Win:
    """The best mean of one number, and how the others stand to it."""

    measure: Measure
    best: tuple[str, ...]
    """Labels of the groups that share the best mean; mostly one."""
    value: Interval
    ahead_of: tuple[str, ...]
    unclear: tuple[str, ...]
    """Groups that the best is not clearly ahead of."""
    among: str = ""
    """Who was compared, where it was not everybody."""

    @property
    def title(self) -> str:
        """The number, and among whom."""
        return f"{self.measure.title}{self.among}"

    @property
    def is_clear(self) -> bool:
        """Whether one group is clearly ahead of every other."""
        return len(self.best) == 1 and bool(self.ahead_of) and not self.unclear


def wins(groups: Sequence[Group], level: float = 0.95) -> list[Win]:
    """Of each number that has a better and a worse, who has the best mean."""
    groups = [group for group in groups if group.evaluated]
    values = [seed_values(group, common_tails(groups)) for group in groups]
    wanted = [*measures(groups), *own_measures(values)]
    found = [_win(m, groups, values, level) for m in wanted]
    within = [
        i
        for i, group in enumerate(groups)
        if keeps_limits(group, values[i]) and group.config.constraints
    ]
    if 0 < len(within) < len(groups):
        kept = [groups[i] for i in within], [values[i] for i in within]
        words = " (of those within their limit)"
        found.insert(1, _win(wanted[0], *kept, level, words))
    return [win for win in found if win is not None]


def keeps_limits(group: Group, known: Values) -> bool:
    """Whether the mean over seeds of every constrained risk is within its limit."""
    risks = [
        (known.get(f"{cost_column(c.name)}/risk"), c.limit)
        for c in group.config.constraints
    ]
    return all(risk is not None and risk.mean() <= limit for risk, limit in risks)


def _win(
    measure: Measure,
    groups: Sequence[Group],
    values: Sequence[Values],
    level: float,
    among: str = "",
) -> Win | None:
    known = [
        (group.label, numbers[measure.key], value)
        for group, numbers in zip(groups, values, strict=True)
        if (value := key_interval(numbers, measure.key, level, group)) is not None
    ]
    if measure.higher_is_better is None or not known:
        return None
    sign = 1 if measure.higher_is_better else -1
    top = max(sign * value.estimate for _, _, value in known)
    first = [
        one
        for one in known
        if math.isclose(sign * one[2].estimate, top, rel_tol=1e-9, abs_tol=1e-12)
    ]
    pairs = len(known) * (len(known) - 1) // 2
    shared = 1 - (1 - level) / max(pairs, 1)
    ahead, unclear = [], []
    best = tuple(label for label, _, _ in first)
    for label, numbers, _ in (one for one in known if one[0] not in best):
        clear = all(
            _is_ahead(sign * own, sign * numbers, shared) for _, own, _ in first
        )
        (ahead if clear else unclear).append(label)
    return Win(measure, best, first[0][2], tuple(ahead), tuple(unclear), among)


def _is_ahead(ours: np.ndarray, theirs: np.ndarray, level: float) -> bool:
    found = difference_interval(ours, theirs, level)
    if found.method == ALL_EQUAL:
        # Without any spread ranks can still tell, given enough seeds.
        found = probability_of_improvement(ours, theirs, level)
        return found.low is not None and found.low > 0.5
    return found.low is not None and found.low > 0


def in_words(found: Sequence[Win]) -> str:
    """One or two sentences: who has the best mean in what, and where that is clear."""
    best: dict[str, list[str]] = {}
    clear: dict[str, list[str]] = {}
    for win in found:
        best.setdefault(" and ".join(win.best), []).append(win.title)
        if win.is_clear:
            clear.setdefault(win.best[0], []).append(win.title)
    told = f"Best mean: {_listed(best)}."
    if clear:
        return f"{told} Clearly ahead of every other: {_listed(clear)}."
    return f"{told} Nobody is clearly ahead of every other in anything."


def _listed(found: dict[str, list[str]]) -> str:
    return "; ".join(f"{who} in {', '.join(what)}" for who, what in found.items())
