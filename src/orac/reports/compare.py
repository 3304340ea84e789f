"""Compare two sets of runs: every number of both, the difference, and a verdict.

Groups are paired by environment, and by label if a side has several groups there.
Differences are `intervals.difference_interval`; "better" is
`aggregates.probability_of_improvement`, with the sign of costs reversed. Runs are never
paired by seed.
"""

import os
from dataclasses import dataclass, replace

import numpy as np

from orac.evaluation.aggregates import probability_of_improvement
from orac.evaluation.intervals import Interval, difference_interval
from orac.reports.metrics import (
    Metric,
    bounds_of,
    common_tails,
    env_metrics,
    summary_metrics,
)
from orac.reports.report import config_table
from orac.reports.run_reader import Group, Results, count, read_results
from orac.reports.seed_statistics import seed_mean, seed_values
from orac.reports.tables import Table, cell


@dataclass(frozen=True)
class Difference:
    """One metric of both groups."""

    metric: Metric
    ours: Interval
    theirs: Interval
    difference: Interval
    improvement: Interval | None
    """P(a run of ours is better than one of theirs); None if no direction is better."""


def compare(
    ours: str | os.PathLike[str], theirs: str | os.PathLike[str], level: float = 0.95
) -> list[Table]:
    """Return tables that compare the runs below `ours` (A) with those below `theirs` (B)."""
    sides = read_results([ours]), read_results([theirs])
    _check_sides(*sides)
    pairs, notes = match_groups(*sides)
    tables = []
    for pair in pairs:
        tables.append(_difference_table(pair, level))
        configs = config_table(
            [replace(group, label=x) for group, x in zip(pair, "AB", strict=True)]
        )
        tables += [configs] if configs else []
    notes = (*tables[0].notes, *sides[0].notes, *sides[1].notes, *notes)
    return [replace(tables[0], notes=notes), *tables[1:]]


def _check_sides(ours: Results, theirs: Results) -> None:
    """Raise an error unless the sides have different runs and both have evaluations."""
    paths = [
        {run.path.resolve() for group in side.groups for run in group.runs}
        for side in (ours, theirs)
    ]
    shared = sorted(paths[0] & paths[1])
    if shared:
        raise ValueError(
            f"A and B must be different runs, but both hold {shared[0]}"
            f"{f' and {len(shared) - 1} more' if len(shared) > 1 else ''}. "
            "Name two directories neither of which lies in the other."
        )
    for name, side in (("A", ours), ("B", theirs)):
        if not any(group.evaluated for group in side.groups):
            first = side.groups[0].runs[0].path
            raise ValueError(
                f"{name} must have runs with evaluations, but none has any, for example "
                f"{first}. Train it to its first evaluation (evaluation.every), or evaluate "
                f"it: orac evaluate {first} --out DIR"
            )


def match_groups(
    ours: Results, theirs: Results
) -> tuple[list[tuple[Group, Group]], list[str]]:
    """Return the pairs to compare, and notes on groups that have no counterpart."""
    pairs, notes = [], []
    sides = ours.by_env(), theirs.by_env()
    for env_id in dict.fromkeys([*sides[0], *sides[1]]):
        left, right = (side.get(env_id, []) for side in sides)
        if len(left) == len(right) == 1:
            pairs.append((left[0], right[0]))
            continue
        shared = {group.label for group in left} & {group.label for group in right}
        pairs += [
            (one, other) for one in left for other in right if one.label == other.label
        ]
        notes += [
            f"{group.label} in {env_id} is only in {side} and is not compared."
            for side, groups in (("A", left), ("B", right))
            for group in groups
            if group.label not in shared
        ]
    if not pairs:
        listed = [
            ", ".join(f"{group.label} in {group.env_id}" for group in side.groups)
            for side in (ours, theirs)
        ]
        raise ValueError(
            "A and B must have an environment in common, and in it one config each or "
            f"agents with the same label. A has {listed[0]}; B has {listed[1]}. "
            "Name directories that hold one config each."
        )
    return pairs, notes


def find_differences(
    groups: tuple[Group, Group], level: float = 0.95
) -> list[Difference]:
    """Return the difference of every metric that both groups have."""
    tails = common_tails(groups)
    ours, theirs = (seed_values(group, tails) for group in groups)
    found = []
    for metric in [
        *summary_metrics(groups),
        *env_metrics(groups[0].env_id, [ours, theirs]),
    ]:
        key = metric.key
        first = seed_mean(ours, key, groups[0], level)
        second = seed_mean(theirs, key, groups[1], level)
        if first is None or second is None:
            continue
        both = np.concatenate([ours[key], theirs[key]])
        ends = [bounds_of(key, both, group) for group in groups]
        bounds = min(low for low, _ in ends), max(high for _, high in ends)
        difference = difference_interval(ours[key], theirs[key], level, bounds)
        improvement = None
        if metric.better:
            sign = 1 if metric.better == "higher" else -1
            improvement = probability_of_improvement(
                sign * ours[key], sign * theirs[key], level
            )
        found.append(Difference(metric, first, second, difference, improvement))
    return found


def _difference_table(groups: tuple[Group, Group], level: float) -> Table:
    rows = tuple(
        (
            x.metric.title,
            cell(x.ours),
            cell(x.theirs),
            f"{'+' if x.difference.estimate > 0 else ''}{cell(x.difference)}",
            cell(x.improvement),
            _verdict(x),
        )
        for x in find_differences(groups, level)
    )
    sides = [
        f"{side} is {group.label} ({count(len(group.evaluated), 'seed')})"
        for side, group in zip("AB", groups, strict=True)
    ]
    note = (
        f"{', '.join(sides)}. Means over seeds with {100 * level:g} % intervals. P(A better) "
        "is the probability that a run of A beats a run of B; ties count half. A difference "
        "is clear if its interval excludes 0 or, where all seeds of both are equal, if the "
        "interval of P(A better) excludes 0.5. The interval of the difference is Student's; "
        "that of P(A better) uses only ranks and stays wide with few seeds."
    )
    columns = ("last evaluation", "A", "B", "A − B", "P(A better)", "verdict")
    return Table(f"A and B in {groups[0].env_id}", columns, rows, (note,))


def _verdict(found: Difference) -> str:
    low, high = found.difference.low, found.difference.high
    if low is None or high is None:
        return "one seed: unclear" if found.difference.n == 1 else _rank_verdict(found)
    if low <= 0 <= high:
        return "unclear"
    if not found.metric.better:
        return "A higher" if low > 0 else "A lower"
    return "A better" if (low > 0) == (found.metric.better == "higher") else "B better"


def _rank_verdict(found: Difference) -> str:
    """Return the verdict by ranks, for groups whose seeds are all equal."""
    chance = found.improvement
    if chance is None or chance.low is None or chance.high is None:
        return "all seeds equal: unclear"
    if chance.low <= 0.5 <= chance.high:
        return "all seeds equal: unclear"
    return "A better" if chance.low > 0.5 else "B better"
