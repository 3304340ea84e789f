"""What stands in a report's tables of results: numbers with intervals, winners, training.

Says how many seeds stand behind every number. Knows nothing of HTML or charts; configs
and machines are in `origins`.
"""

from collections.abc import Sequence

import numpy as np

from orac.evaluation.aggregates import interquartile_mean
from orac.evaluation.intervals import Interval
from orac.evaluation.result import cost_column
from orac.reports.html.origins import config_table, machine_table
from orac.reports.html.tables import Table, cell, number
from orac.reports.metrics import (
    Measure,
    bounds_of,
    common_tails,
    decisive_measures,
    measures,
    own_measures,
)
from orac.reports.ranking import in_words, wins
from orac.reports.run_groups import Group, Results
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import interval, key_interval, seed_values


def all_tables(found: Results, level: float) -> list[Table]:
    """Every table of a report, in its order."""
    tables = []
    for env_id, groups in found.worlds().items():
        tables += world_tables(env_id, groups, level)
    configs = config_table(found.groups)
    return [*tables, *([configs] if configs else []), machine_table(found)]


def world_tables(env_id: str, groups: Sequence[Group], level: float) -> list[Table]:
    """Everything that is said of one environment, what decides first."""
    return [
        *deciding_tables(env_id, groups, level),
        *further_tables(env_id, groups, level),
    ]


def deciding_tables(env_id: str, groups: Sequence[Group], level: float) -> list[Table]:
    """Results, and who wins where."""
    values = [seed_values(group, common_tails(groups)) for group in groups]
    winners = winner_table(env_id, groups, level)
    results = _result_table(env_id, groups, values, level)
    return [results, *([winners] if winners else [])]


def further_tables(env_id: str, groups: Sequence[Group], level: float) -> list[Table]:
    """The environment's own metrics, the middle of the seeds, what training took."""
    values = [seed_values(group, common_tails(groups)) for group in groups]
    trained = [g for g in groups if any(not run.kept for run in g.runs)]
    tables = [
        _own_table(env_id, groups, values, level),
        _middle_table(env_id, groups, values, level),
        _training_table(env_id, trained, level) if trained else None,
    ]
    return [table for table in tables if table is not None]


def _result_table(
    env_id: str,
    groups: Sequence[Group],
    values: Sequence[dict[str, np.ndarray]],
    level: float,
) -> Table:
    shown = measures(groups)
    rows = []
    for group, known in zip(groups, values, strict=True):
        steps = [run.evaluated_at[-1] for run in group.evaluated]
        rows.append(
            (
                group.label,
                _seeds(group),
                _verdicts(group, known, level),
                *(cell(key_interval(known, x.key, level, group)) for x in shown),
                "–" if group.is_rule else _span(steps),
            )
        )
    columns = ("agent", "seeds", "limit", *(x.title for x in shown), "steps")
    note = (
        "Last evaluation of each seed: mean over seeds with its "
        f"{100 * level:g} % interval, seeds being the unit. One seed has no interval, and "
        "neither have seeds that all agree. A limit is kept, or broken, where "
        "the whole interval of the constrained risk is on that side of it. Intervals of "
        "shares are cut to [0, 1], those of costs that were never negative start at 0, and those "
        "of costs and lengths end at the most that the environment declares."
    )
    return Table(f"Results in {env_id}", columns, tuple(rows), (note,))


def _seeds(group: Group) -> str:
    broken = sum(not run.has_finite_end for run in group.evaluated)
    return f"{len(group.evaluated)}{f' ({broken} not finite)' if broken else ''}"


def _verdicts(group: Group, known: dict[str, np.ndarray], level: float) -> str:
    """Each limit, and whether the interval of the constrained risk lies on one side."""
    words = []
    for constraint in group.config.constraints:
        column = cost_column(constraint.name)
        risk = key_interval(known, f"{column}/risk", level, group)
        name = "" if constraint.name == "cost" else f"{constraint.name}: "
        verdict = f": {_verdict(risk, constraint.limit)}" if risk else ""
        words.append(f"{name}{constraint.limit:g} on {constraint.measure}{verdict}")
    return "; ".join(words) or "none"


def _verdict(risk: Interval, limit: float) -> str:
    if risk.low is None or risk.high is None:
        side = "below" if risk.estimate <= limit else "above"
        return f"{side}, {'one seed' if risk.n == 1 else f'all {risk.n} seeds equal'}"
    if risk.high <= limit:
        return "kept"
    return "broken" if risk.low > limit else "undecided"


def _own_table(
    env_id: str,
    groups: Sequence[Group],
    values: Sequence[dict[str, np.ndarray]],
    level: float,
) -> Table | None:
    shown = [Measure("length/mean", "length", None), *own_measures(values)]
    rows = [
        (
            group.label,
            *(cell(key_interval(known, x.key, level, group)) for x in shown),
        )
        for group, known in zip(groups, values, strict=True)
        if known
    ]
    title = f"Means of the environment's own metrics in {env_id}"
    columns = ("agent", *(x.title for x in shown))
    return Table(title, columns, tuple(rows)) if rows else None


def _middle_table(
    env_id: str,
    groups: Sequence[Group],
    values: Sequence[dict[str, np.ndarray]],
    level: float,
) -> Table | None:
    """Interquartile means of what decides, for groups of several trained seeds."""
    shown = decisive_measures(groups)
    rows = []
    for group, known in zip(groups, values, strict=True):
        if len(group.evaluated) < 2 or group.is_rule:
            continue
        cells = (cell(_middle(group, known.get(x.key), x.key, level)) for x in shown)
        rows.append((group.label, _seeds(group), *cells))
    note = (
        "Mean of the middle half of the seeds, which one seed gone wrong does not move; "
        "with fewer than four seeds nothing is left out, and it is the mean. Agents of one "
        "seed, and rules, have no middle and no row. Intervals are cut as those of means."
    )
    columns = ("agent", "seeds", *(x.title for x in shown))
    title = f"Interquartile means in {env_id}"
    return Table(title, columns, tuple(rows), (note,)) if rows else None


def _middle(
    group: Group, scores: np.ndarray | None, key: str, level: float
) -> Interval | None:
    if scores is None or not np.isfinite(scores).all():
        return None
    return interquartile_mean(scores, level, bounds_of(key, scores, group))


def winner_table(env_id: str, groups: Sequence[Group], level: float) -> Table | None:
    """Who has the best mean of each number, and whom it is clearly ahead of."""
    if sum(bool(group.evaluated) for group in groups) < 2:
        return None
    found = wins(groups, level)
    rows = tuple(
        (
            win.title,
            " and ".join(win.best),
            cell(win.value),
            ", ".join(win.ahead_of) or "nobody",
            ", ".join(win.unclear) or "nobody",
        )
        for win in found
    )
    note = (
        "Clearly ahead: the interval of the difference leaves out 0, at "
        f"{100 * level:g} % for all pairs of a row together (Bonferroni). Where all seeds "
        "of both agree, ranks decide, from five seeds on; one seed decides nothing."
    )
    columns = ("number", "best", "its mean", "clearly ahead of", "not clearly ahead of")
    return Table(f"Who wins where in {env_id}", columns, rows, (in_words(found), note))


def _training_table(env_id: str, groups: Sequence[Group], level: float) -> Table:
    """What was paid while learning, and how long it took."""
    keys = ["episodes"]
    columns = dict.fromkeys(
        key for g in groups for run in g.runs for key in run.metrics
    )
    keys += [key for key in columns if key.startswith("train/cumulative_")]
    keys += [key for key in columns if key.startswith("train/violations_")]
    titles = [_training_title(key) for key in keys]
    rows = []
    for group in groups:
        cells = []
        for key in keys:
            last = [run.metrics.get(key, np.empty(0))[-1:] for run in group.runs]
            full = np.concatenate(last) if all(map(len, last)) else None
            cells.append(cell(interval(full, level, key)))
        steps = _span([run.steps for run in group.runs])
        minutes = _span([_minutes(run) for run in group.runs])
        speed = [_column(run, "steps_per_second") for run in group.runs]
        median = float(np.median(np.concatenate(speed))) if any(map(len, speed)) else 0
        rows.append((group.label, steps, *cells, minutes, number(np.round(median))))
    columns = ("agent", "steps", *titles, "minutes", "steps per second, median")
    return Table(f"Training in {env_id}", columns, tuple(rows))


def _training_title(key: str) -> str:
    plain = key.removeprefix("train/").replace("cumulative_cost", "total cost")
    return plain.replace("violations_cost", "episodes above the limit")


def _column(run: Run, name: str) -> np.ndarray:
    return run.timings.get(name, np.empty(0))


def _minutes(run: Run) -> float:
    seconds = (
        _column(run, "train_seconds").sum() + _column(run, "evaluate_seconds").sum()
    )
    return round(float(seconds) / 60, 1)


def _span(values: Sequence[float]) -> str:
    """The one value that all have, or the range."""
    if not values:
        return "–"
    low, high = number(float(min(values))), number(float(max(values)))
    return low if low == high else f"{low} to {high}"


def long_table(
    found: Results, level: float
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Columns and rows for programs: one row for each number of each group."""
    columns = ("env", "agent", "seeds", "measure", "mean", "low", "high", "level")
    rows: list[tuple[object, ...]] = []
    for env_id, groups in found.worlds().items():
        tails = common_tails(groups)
        for group in groups:
            for key, values in seed_values(group, tails).items():
                known = interval(values, level, key, group)
                # A number that some seed does not have is a row without it.
                bounds = (
                    (known.estimate, known.low, known.high) if known else [None] * 3
                )
                rows.append((env_id, group.label, len(values), key, *bounds, level))
    return columns, rows
