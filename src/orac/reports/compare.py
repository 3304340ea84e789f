"""Compare groups of runs: find the best group, and show how two sets of runs differ.

`find_wins` finds the best group of an environment for each metric, and `compare` makes
tables about two sets of runs. One group is clearly ahead of another if the interval of the
difference of their means excludes 0. If all seeds of each group have the same value, there
is no such interval. Then the interval of the probability that a run of one group is better
than a run of the other must exclude 0.5. Runs are never paired by seed.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from orac.config.overrides import flat_config
from orac.evaluation.episodes import cost_column
from orac.evaluation.seed_intervals import (
    ALL_EQUAL,
    Interval,
    difference_interval,
    probability_of_improvement,
)
from orac.reports.report_metrics import (
    LEVEL,
    Metric,
    SeedValues,
    common_tails,
    env_metrics,
    seed_mean,
    seed_values,
    summary_metrics,
    valid_range,
)
from orac.reports.run_reader import (
    Group,
    Results,
    comparison_notes,
    count,
    differing_fields,
    full_label,
    read_results,
)
from orac.reports.tables import Table, cell


def _lead(
    ours: np.ndarray, theirs: np.ndarray, level: float = LEVEL, by_ranks: bool = True
) -> int:
    """Return 1 if ours are clearly higher than theirs, -1 if clearly lower, 0 otherwise.

    If all values of each side are equal, the sides are compared by ranks if `by_ranks` is
    True, and otherwise the result is 0.
    """
    found, zero = difference_interval(ours, theirs, level), 0.0
    if found.method == ALL_EQUAL and by_ranks:
        # With enough seeds, ranks can show a difference of groups that have no spread.
        found, zero = probability_of_improvement(ours, theirs, level), 0.5
    if found.low is None or found.high is None:
        return 0
    return (found.low > zero) - (found.high < zero)


@dataclass(frozen=True)
class Win:
    """The groups with the best mean of one metric, and the groups that they clearly beat."""

    title: str
    best: tuple[str, ...]
    """Labels of the groups that share the best mean; usually one."""
    value: Interval
    """The best mean, with its interval."""
    ahead_of: tuple[str, ...]
    """Labels of the other groups that are clearly behind every best group."""
    unclear: tuple[str, ...]
    """Labels of the remaining groups."""

    @property
    def is_clear(self) -> bool:
        """Whether one group is clearly ahead of every other."""
        return len(self.best) == 1 and bool(self.ahead_of) and not self.unclear


def find_wins(groups: Sequence[Group]) -> list[Win]:
    """Return the winner for each metric for which higher or lower values are better.

    If only some groups are within their limits, the result also has the winner in reward
    among these groups.
    """
    groups = [group for group in groups if group.evaluated]
    tails = common_tails(groups)
    everyone = [(group, seed_values(group, tails)) for group in groups]
    safe = [entry for entry in everyone if _is_within_limits(*entry)]
    reward, *others = summary_metrics(groups)
    others += env_metrics(groups[0].env_id, [values for _, values in everyone])
    ranked = [(reward, everyone)]
    if 0 < len(safe) < len(groups):
        title = f"{reward.title} (of those within their limit)"
        ranked.append((replace(reward, title=title), safe))
    ranked += [(metric, everyone) for metric in others]
    found = [_find_win(metric, entries) for metric, entries in ranked if metric.better]
    return [win for win in found if win is not None]


def _is_within_limits(group: Group, values: SeedValues) -> bool:
    """Return whether the group has limits and its mean risks are within all of them."""
    for constraint in group.config.constraints:
        risk = values.get(f"{cost_column(constraint.name)}/risk")
        if risk is None or not risk.mean() <= constraint.limit:
            return False
    return bool(group.config.constraints)


def _find_win(
    metric: Metric, entries: Sequence[tuple[Group, SeedValues]]
) -> Win | None:
    """Return the winner for one metric; None if no group has a value for all of its seeds.

    The best group is not known beforehand, so all pairs of groups count as comparisons, and
    each pair gets an equal share of the error probability (Bonferroni).
    """
    sign = 1 if metric.better == "higher" else -1
    means = {
        group.label: (sign * values[metric.key], mean)
        for group, values in entries
        if (mean := seed_mean(values, metric.key, group)) is not None
    }
    if not means:
        return None
    scores = {label: sign * mean.estimate for label, (_, mean) in means.items()}
    top = max(scores.values())
    close = {"rel_tol": 1e-9, "abs_tol": 1e-12}
    best = [label for label in means if math.isclose(scores[label], top, **close)]
    level = 1 - (1 - LEVEL) / max(math.comb(len(means), 2), 1)
    ahead, unclear = [], []
    for label in (label for label in means if label not in best):
        theirs = means[label][0]
        clear = all(_lead(means[first][0], theirs, level) > 0 for first in best)
        (ahead if clear else unclear).append(label)
    value = means[best[0]][1]
    return Win(metric.title, tuple(best), value, tuple(ahead), tuple(unclear))


def describe_wins(found: Sequence[Win]) -> str:
    """Return two sentences: which groups have the best means, and which are clearly ahead."""
    best: dict[str, list[str]] = {}
    clear: dict[str, list[str]] = {}
    for win in found:
        best.setdefault(" and ".join(win.best), []).append(win.title)
        if win.is_clear:
            clear.setdefault(win.best[0], []).append(win.title)
    means, leads = (
        "; ".join(f"{who} in {', '.join(what)}" for who, what in part.items())
        for part in (best, clear)
    )
    if clear:
        return f"Best mean: {means}. Clearly ahead of all others: {leads}."
    return f"Best mean: {means}. No group is clearly ahead of all others."


def config_table(groups: Sequence[Group]) -> Table | None:
    """Return a table of the fields in which the configs differ; None if they do not differ.

    A rule (a hand-coded baseline) uses only the environment and the constraints of its
    config. In the rows of all other fields except `algo`, its cells have a dash. If the
    environments and constraints of all groups are equal, rules have no column.
    """
    for_rules = ("algo", "env", "constraints")
    trained = [group for group in groups if not group.is_rule]
    shared = [
        name
        for name in differing_fields([group.config for group in groups])
        if name.partition(".")[0] in for_rules[1:]
    ]
    names = {*differing_fields([group.config for group in trained]), *shared}
    if not names:
        return None
    groups = groups if shared else trained
    flat = [flat_config(group.config) for group in groups]
    rows = []
    for name in dict.fromkeys(x for fields in flat for x in fields if x in names):
        only_trained = name.partition(".")[0] not in for_rules
        cells = [
            "–" if group.is_rule and only_trained else str(fields.get(name, "–"))
            for group, fields in zip(groups, flat, strict=True)
        ]
        rows.append((name, *cells))
    columns = ("field", *(full_label(group, groups) for group in groups))
    return Table("Differences between the configs", columns, tuple(rows))


@dataclass(frozen=True)
class Difference:
    """One metric of two groups, with its two means and their difference."""

    metric: Metric
    ours: Interval
    theirs: Interval
    difference: Interval
    improvement: Interval | None
    """Probability that a run of ours is better than one of theirs; None if neither
    direction of the metric is better."""
    lead: int
    """1 if ours is clearly better, -1 if clearly worse, and 0 if this is unclear. If
    neither direction of the metric is better, 1 means clearly higher and -1 clearly lower."""

    @property
    def verdict(self) -> str:
        """Text that says whether A or B is better, or whether A is higher or lower."""
        if self.lead and self.metric.better:
            return "A better" if self.lead > 0 else "B better"
        if self.lead:
            return "A higher" if self.lead > 0 else "A lower"
        if self.difference.low is not None:
            return "unclear"
        return f"{'one seed' if self.difference.n == 1 else 'same value for all seeds'}: unclear"


def compare(
    ours: str | os.PathLike[str], theirs: str | os.PathLike[str]
) -> list[Table]:
    """Return tables that compare the runs in `ours` (A) with those in `theirs` (B)."""
    sides = read_results([ours]), read_results([theirs])
    paths = [{run.path.resolve() for run in side.runs} for side in sides]
    shared = sorted(paths[0] & paths[1])
    if shared:
        raise ValueError(
            f"A and B must be different runs, but both contain {shared[0]}"
            f"{f' and {len(shared) - 1} more' if len(shared) > 1 else ''}. "
            "Name two directories that have no run in common."
        )
    for name, side in zip("AB", sides, strict=True):
        if not any(group.evaluated for group in side.groups):
            first = side.groups[0].runs[0].path
            raise ValueError(
                f"{name} must have at least one run with an evaluation, but has none. Train "
                f"{first} to its first evaluation (evaluation.every), or run orac "
                f"evaluate {first} --out DIR and compare DIR."
            )
    pairs, notes = match_groups(*sides)
    tables = []
    for pair in pairs:
        tables.append(_difference_table(pair))
        notes += comparison_notes(pair[0].env_id, pair)
        named = [replace(group, label=x) for group, x in zip(pair, "AB", strict=True)]
        configs = config_table(named)
        tables += [configs] if configs else []
    notes = (*tables[0].notes, *sides[0].notes, *sides[1].notes, *notes)
    return [replace(tables[0], notes=(*dict.fromkeys(notes),)), *tables[1:]]


def match_groups(
    ours: Results, theirs: Results
) -> tuple[list[tuple[Group, Group]], list[str]]:
    """Return the pairs to compare, and notes on groups that have no counterpart.

    Groups are paired by environment and label. If each side has one group in an
    environment, these two are paired even if their labels differ.
    """
    pairs, notes = [], []
    sides = ours.by_env(), theirs.by_env()
    for env_id in dict.fromkeys([*sides[0], *sides[1]]):
        left, right = (side.get(env_id, []) for side in sides)
        single = len(left) == len(right) == 1
        found = [(a, b) for a in left for b in right if single or a.label == b.label]
        matched = [group for pair in found for group in pair]
        pairs += found
        notes += [
            f"{group.label} in {env_id} is only in {side} and is not compared."
            for side, groups in (("A", left), ("B", right))
            for group in groups
            if group not in matched
        ]
    if not pairs:
        listed = [
            ", ".join(f"{group.label} in {group.env_id}" for group in side.groups)
            for side in (ours, theirs)
        ]
        raise ValueError(
            "A and B must have an environment in common. In it, each must have only one "
            "config, or both must have an agent with the same label. A has "
            f"{listed[0]}; B has {listed[1]}. Name directories that hold one config each."
        )
    return pairs, notes


def find_differences(groups: tuple[Group, Group]) -> list[Difference]:
    """Return the difference of every metric that both groups have."""
    tails = common_tails(groups)
    values = [seed_values(group, tails) for group in groups]
    found = []
    for metric in [*summary_metrics(groups), *env_metrics(groups[0].env_id, values)]:
        key, sign = metric.key, -1 if metric.better == "lower" else 1
        first = seed_mean(values[0], key, groups[0])
        second = seed_mean(values[1], key, groups[1])
        if first is None or second is None:
            continue
        ours, theirs = (known[key] for known in values)
        both = np.concatenate([ours, theirs])
        ends = [valid_range(key, both, group) for group in groups]
        bounds = min(low for low, _ in ends), max(high for _, high in ends)
        difference = difference_interval(ours, theirs, LEVEL, bounds)
        lead = _lead(sign * ours, sign * theirs, by_ranks=bool(metric.better))
        improvement = None
        if metric.better:
            improvement = probability_of_improvement(sign * ours, sign * theirs, LEVEL)
        found.append(Difference(metric, first, second, difference, improvement, lead))
    return found


def _difference_table(groups: tuple[Group, Group]) -> Table:
    rows = tuple(
        (
            x.metric.title,
            cell(x.ours),
            cell(x.theirs),
            f"{'+' if x.difference.estimate > 0 else ''}{cell(x.difference)}",
            cell(x.improvement),
            x.verdict,
        )
        for x in find_differences(groups)
    )
    sides = [
        f"{side} is {group.label} ({count(len(group.evaluated), 'seed')})"
        for side, group in zip("AB", groups, strict=True)
    ]
    note = (
        f"{', '.join(sides)}. The numbers are means over seeds of the runs' last "
        f"evaluations, not of their delivered policies, with {100 * LEVEL:g} % intervals. "
        "P(A better) is the probability that a run of A beats a run of B; ties "
        "count half. A difference is clear if its interval excludes 0. If all seeds of each "
        "side have the same value, it is clear if the interval of P(A better) excludes 0.5. "
        "The interval of the difference is Welch's t interval, widened if the values are "
        "skewed. The interval of P(A better) uses only ranks and stays wide with few seeds."
    )
    columns = ("last evaluation", "A", "B", "A − B", "P(A better)", "verdict")
    return Table(f"A and B in {groups[0].env_id}", columns, rows, (note,))
