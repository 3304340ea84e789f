"""Two sets of runs side by side: each number, its difference, and who is likely better.

Groups are paired by environment, and by agent where a side has several. Differences are
`statistics.difference_interval`, and "better" is `aggregates.probability_of_improvement`
with costs turned round; runs are never paired by seed.
"""

import os
from dataclasses import dataclass

import numpy as np

from orac.evaluation.aggregates import probability_of_improvement
from orac.evaluation.intervals import Interval, difference_interval
from orac.reports.html.origins import config_table
from orac.reports.html.tables import Table, cell
from orac.reports.metrics import (
    Measure,
    bounds_of,
    common_tails,
    measures,
    own_measures,
)
from orac.reports.run_groups import Group, Results, read_results
from orac.reports.seed_statistics import interval, seed_values


@dataclass(frozen=True)
class Pair:
    """Two groups in one environment."""

    ours: Group
    theirs: Group


@dataclass(frozen=True)
class Difference:
    """One number of both groups; without evaluations on both sides there is none."""

    measure: Measure
    ours: Interval
    theirs: Interval
    difference: Interval
    improvement: Interval | None
    """P(a run of ours is better than one of theirs); None where nothing is better."""


def compare(
    ours: str | os.PathLike[str], theirs: str | os.PathLike[str], level: float = 0.95
) -> list[Table]:
    """Tables that set the runs below `ours` against those below `theirs`."""
    sides = read_results([ours]), read_results([theirs])
    _check_apart(*sides)
    _check_evaluated(*sides)
    pairs, notes = match(*sides)
    notes = [*sides[0].notes, *sides[1].notes, *notes]
    tables = []
    for pair in pairs:
        tables.append(_table(pair, level))
        same = Group("A", pair.ours.runs), Group("B", pair.theirs.runs)
        configs = config_table(same)
        tables += [configs] if configs else []
    first = tables[0]
    return [
        Table(first.title, first.columns, first.rows, (*first.notes, *notes)),
        *tables[1:],
    ]


def _check_apart(ours: Results, theirs: Results) -> None:
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


def _check_evaluated(ours: Results, theirs: Results) -> None:
    for name, side in (("A", ours), ("B", theirs)):
        if not any(group.evaluated for group in side.groups):
            first = side.groups[0].runs[0].path
            raise ValueError(
                f"{name} must have runs with evaluations, and none has any, such as "
                f"{first}. Let it train to its first evaluation (evaluation.every), or "
                f"evaluate it: orac evaluate {first} --out DIR"
            )


def match(ours: Results, theirs: Results) -> tuple[list[Pair], list[str]]:
    """Groups to compare, and sentences on those that have no counterpart."""
    pairs, notes = [], []
    worlds = ours.worlds(), theirs.worlds()
    for env_id in dict.fromkeys([*worlds[0], *worlds[1]]):
        left, right = (side.get(env_id, []) for side in worlds)
        if len(left) == len(right) == 1:
            pairs.append(Pair(left[0], right[0]))
            continue
        found = [
            Pair(one, other)
            for one in left
            for other in right
            if one.label == other.label
        ]
        pairs += found
        alone = [("A", g) for g in left if all(p.ours is not g for p in found)]
        alone += [("B", g) for g in right if all(p.theirs is not g for p in found)]
        notes += [
            f"{group.label} in {env_id} is in {side} alone, and not compared."
            for side, group in alone
        ]
    if not pairs:
        raise ValueError(
            "A and B must have an environment in common, and in it one config each or "
            f"agents of the same name. A has {_listed(ours)}; B has {_listed(theirs)}. "
            "Name directories that hold one config each."
        )
    return pairs, notes


def _listed(side: Results) -> str:
    return ", ".join(f"{group.label} in {group.env_id}" for group in side.groups)


def differences(pair: Pair, level: float = 0.95) -> list[Difference]:
    """Every number that both groups have."""
    groups = [pair.ours, pair.theirs]
    tails = common_tails(groups)
    ours, theirs = (seed_values(group, tails) for group in groups)
    found = []
    for measure in [*measures(groups), *own_measures([ours, theirs])]:
        known = ours.get(measure.key), theirs.get(measure.key)
        sides = [
            interval(values, level, measure.key, group)
            for values, group in zip(known, groups, strict=True)
        ]
        if known[0] is None or known[1] is None or not (sides[0] and sides[1]):
            continue
        both = np.concatenate([known[0], known[1]])
        ends = [bounds_of(measure.key, both, group) for group in groups]
        bounds = min(low for low, _ in ends), max(high for _, high in ends)
        found.append(
            Difference(
                measure,
                sides[0],
                sides[1],
                difference_interval(known[0], known[1], level, bounds),
                _improvement(known[0], known[1], measure.higher_is_better, level),
            )
        )
    return found


def _improvement(
    ours: np.ndarray, theirs: np.ndarray, higher_is_better: bool | None, level: float
) -> Interval | None:
    if higher_is_better is None:
        return None
    sign = 1 if higher_is_better else -1
    return probability_of_improvement(sign * ours, sign * theirs, level)


def _table(pair: Pair, level: float) -> Table:
    rows = tuple(
        (
            x.measure.title,
            cell(x.ours),
            cell(x.theirs),
            _signed(x.difference),
            cell(x.improvement),
            _verdict(x),
        )
        for x in differences(pair, level)
    )
    counts = [len(group.evaluated) for group in (pair.ours, pair.theirs)]
    note = (
        f"A is {pair.ours.label} ({_seeds(counts[0])}), B is {pair.theirs.label} "
        f"({_seeds(counts[1])}). Means over seeds with {100 * level:g} % intervals; P(A "
        "better) is the chance that a run of A beats a run of B, ties half. A difference "
        "is clear where its interval leaves out 0, or, where all seeds of both agree, that of "
        "P(A better) 0.5. The former interval is Student's; P(A better) "
        "rests on ranks alone, and stays wide with few seeds."
    )
    columns = ("last evaluation", "A", "B", "A − B", "P(A better)", "verdict")
    return Table(f"A and B in {pair.ours.env_id}", columns, rows, (note,))


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _signed(difference: Interval) -> str:
    text = cell(difference)
    return f"+{text}" if difference.estimate > 0 else text


def _by_ranks(found: Difference) -> str:
    """Where no seed differs from its siblings there is still who beats whom."""
    chance = found.improvement
    if chance is None or chance.low is None or chance.high is None:
        return "all seeds equal: unclear"
    if chance.low <= 0.5 <= chance.high:
        return "all seeds equal: unclear"
    return "A better" if chance.low > 0.5 else "B better"


def _verdict(found: Difference) -> str:
    low, high = found.difference.low, found.difference.high
    if low is None or high is None:
        return "one seed: unclear" if found.difference.n == 1 else _by_ranks(found)
    if low <= 0 <= high:
        return "unclear"
    if found.measure.higher_is_better is None:
        return "A higher" if low > 0 else "A lower"
    better = (low > 0) == found.measure.higher_is_better
    return "A better" if better else "B better"
