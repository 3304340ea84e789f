"""Write a report on runs as an HTML page, or its tables as markdown, LaTeX or CSV.

This module also decides which tables a report has: results with intervals over seeds,
winners, the environment's own metrics, training, differences between configs, and runs.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orac.config import serialization
from orac.config.validation import check_choice
from orac.evaluation.aggregates import interquartile_mean
from orac.evaluation.intervals import Interval
from orac.evaluation.result import cost_column
from orac.reports.html import PageTables, make_page
from orac.reports.metrics import (
    Metric,
    bounds_of,
    common_tails,
    env_metrics,
    objective_metrics,
    summary_metrics,
)
from orac.reports.ranking import describe_wins, find_wins
from orac.reports.run_reader import (
    Group,
    Results,
    differing_fields,
    full_label,
    read_results,
)
from orac.reports.seed_statistics import seed_mean, seed_values
from orac.reports.tables import (
    Table,
    cell,
    number,
    span,
    to_csv,
    to_latex,
    to_markdown,
)

SUFFIXES = {".html": "html", ".md": "markdown", ".tex": "latex", ".csv": "csv"}
FORMATS = tuple(SUFFIXES.values())

SeedValues = dict[str, np.ndarray]


def write(
    paths: Sequence[str | os.PathLike[str]], out: Path, form: str | None = None
) -> Path:
    """Write a report in the format that the file's suffix names."""
    text = render(paths, format_of(out, form))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return out


def format_of(out: Path, form: str | None = None) -> str:
    """Return the format that a file's suffix names; it must be `form` if that is given."""
    found = SUFFIXES.get(out.suffix.lower())
    if found is None or form not in (None, found):
        wanted = {v: k for k, v in SUFFIXES.items()}.get(form or "")
        raise ValueError(
            f"a report's file must end in {wanted or ', '.join(SUFFIXES)}"
            f"{f', because its format is {form}' if wanted else ''}; got {out.name!r}. "
            "Rename it; for PDF figures use --figures DIR."
        )
    return found


def render(
    paths: Sequence[str | os.PathLike[str]], form: str = "html", level: float = 0.95
) -> str:
    """Return a report on all runs at or below `paths`, in one of `FORMATS`."""
    check_choice("the format of a report", form, FORMATS)
    results = read_results(paths)
    if form == "csv":
        return to_csv(*_long_table(results, level))
    if form == "html":
        by_env = {
            env_id: env_tables(groups, level)
            for env_id, groups in results.by_env().items()
        }
        tables = PageTables(by_env, config_table(results.groups), run_table(results))
        return make_page(results, tables, [Path(path) for path in paths])
    to_format = to_markdown if form == "markdown" else to_latex
    return "\n".join(to_format(table) for table in all_tables(results, level))


def all_tables(results: Results, level: float) -> list[Table]:
    """Return every table of a report, in order."""
    tables = []
    for groups in results.by_env().values():
        above, below = env_tables(groups, level)
        tables += [*above, *below]
    configs = config_table(results.groups)
    return [*tables, *([configs] if configs else []), run_table(results)]


def env_tables(
    groups: Sequence[Group], level: float
) -> tuple[list[Table], list[Table]]:
    """Return the tables of one environment that go above and below its charts."""
    env_id = groups[0].env_id
    values = [seed_values(group, common_tails(groups)) for group in groups]
    above = [_result_table(env_id, groups, values, level)]
    if sum(bool(group.evaluated) for group in groups) > 1:
        above.append(_winner_table(env_id, groups, level))
    below = [
        _env_metrics_table(env_id, groups, values, level),
        _interquartile_table(env_id, groups, values, level),
        _training_table(env_id, groups, level),
    ]
    return above, [table for table in below if table is not None]


def _result_table(
    env_id: str, groups: Sequence[Group], values: Sequence[SeedValues], level: float
) -> Table:
    metrics = summary_metrics(groups)
    rows = []
    for group, known in zip(groups, values, strict=True):
        steps = [run.evaluation_steps[-1] for run in group.evaluated]
        row = (
            group.label,
            _seeds_cell(group),
            _limits_cell(group, known, level),
            *(cell(seed_mean(known, x.key, group, level)) for x in metrics),
            "–" if group.is_rule else span(steps),
        )
        rows.append(row)
    columns = ("agent", "seeds", "limit", *(x.title for x in metrics), "steps")
    note = (
        "Last evaluation of each seed: mean over seeds with its "
        f"{100 * level:g} % interval. Seeds are the unit. There is no interval for one seed, "
        "or if all seeds are equal. A limit is kept, or broken, if the whole interval of the "
        "constrained risk is on that side of it. Intervals of shares are cut to [0, 1]. Those "
        "of costs that were never negative start at 0, and those of costs and lengths end at "
        "the maximum that the environment declares."
    )
    return Table(f"Results in {env_id}", columns, tuple(rows), (note,))


def _seeds_cell(group: Group) -> str:
    runs = group.evaluated
    broken = sum(not run.last_evaluation_is_finite for run in runs)
    return f"{len(runs)}{f' ({broken} not finite)' if broken else ''}"


def _limits_cell(group: Group, values: SeedValues, level: float) -> str:
    """Return each limit, and whether the constrained risk keeps it."""
    parts = []
    for constraint in group.config.constraints:
        risk = seed_mean(values, f"{cost_column(constraint.name)}/risk", group, level)
        name = "" if constraint.name == "cost" else f"{constraint.name}: "
        verdict = f": {_limit_verdict(risk, constraint.limit)}" if risk else ""
        parts.append(f"{name}{constraint.limit:g} on {constraint.measure}{verdict}")
    return "; ".join(parts) or "none"


def _limit_verdict(risk: Interval, limit: float) -> str:
    if risk.low is None or risk.high is None:
        side = "below" if risk.estimate <= limit else "above"
        return f"{side}, {'one seed' if risk.n == 1 else f'all {risk.n} seeds equal'}"
    if risk.high <= limit:
        return "kept"
    return "broken" if risk.low > limit else "undecided"


def _winner_table(env_id: str, groups: Sequence[Group], level: float) -> Table:
    wins = find_wins(groups, level)
    rows = tuple(
        (
            win.title,
            " and ".join(win.best),
            cell(win.value),
            ", ".join(win.ahead_of) or "nobody",
            ", ".join(win.unclear) or "nobody",
        )
        for win in wins
    )
    note = (
        "Clearly ahead: the interval of the difference excludes 0, at "
        f"{100 * level:g} % for all pairs of a row together (Bonferroni). If all seeds of "
        "both groups are equal, ranks decide, which takes at least five seeds. One seed "
        "decides nothing."
    )
    columns = ("number", "best", "its mean", "clearly ahead of", "not clearly ahead of")
    notes = describe_wins(wins), note
    return Table(f"Who wins where in {env_id}", columns, rows, notes)


def _env_metrics_table(
    env_id: str, groups: Sequence[Group], values: Sequence[SeedValues], level: float
) -> Table | None:
    metrics = [Metric("length/mean", "length", ""), *env_metrics(env_id, values)]
    rows = [
        (
            group.label,
            *(cell(seed_mean(known, x.key, group, level)) for x in metrics),
        )
        for group, known in zip(groups, values, strict=True)
        if known
    ]
    title = f"Means of the environment's own metrics in {env_id}"
    columns = ("agent", *(x.title for x in metrics))
    return Table(title, columns, tuple(rows)) if rows else None


def _interquartile_table(
    env_id: str, groups: Sequence[Group], values: Sequence[SeedValues], level: float
) -> Table | None:
    """Return interquartile means of the objectives, for groups of several trained seeds."""
    metrics = objective_metrics(groups)
    rows = []
    for group, known in zip(groups, values, strict=True):
        if len(group.evaluated) < 2 or group.is_rule:
            continue
        row = [group.label, _seeds_cell(group)]
        for metric in metrics:
            scores, found = known.get(metric.key), None
            if scores is not None and np.isfinite(scores).all():
                bounds = bounds_of(metric.key, scores, group)
                found = interquartile_mean(scores, level, bounds)
            row.append(cell(found))
        rows.append(tuple(row))
    note = (
        "Mean of the middle half of the seeds, which a single failed seed does not move. "
        "With fewer than four seeds nothing is left out, and it is the mean. Agents with one "
        "seed and rules have no row. Intervals are cut in the same way as those of means."
    )
    columns = ("agent", "seeds", *(x.title for x in metrics))
    title = f"Interquartile means in {env_id}"
    return Table(title, columns, tuple(rows), (note,)) if rows else None


def _training_table(env_id: str, groups: Sequence[Group], level: float) -> Table | None:
    """Return episodes and costs of training, and how long it took."""
    groups = [
        group
        for group in groups
        if not all(run.is_saved_evaluation for run in group.runs)
    ]
    if not groups:
        return None
    keys = dict.fromkeys(k for g in groups for run in g.runs for k in run.metrics)
    titles = {"episodes": "episodes"}
    for prefix, title in (
        ("train/cumulative_cost", "total cost"),
        ("train/violations_cost", "episodes above the limit"),
    ):
        titles |= {k: k.replace(prefix, title) for k in keys if k.startswith(prefix)}
    rows = []
    for group in groups:
        cells = []
        for key in titles:
            last = [run.metrics.get(key, np.empty(0))[-1:] for run in group.runs]
            values = {key: np.concatenate(last)} if all(map(len, last)) else {}
            cells.append(cell(seed_mean(values, key, group, level)))
        minutes, speeds = [], []
        for run in group.runs:
            train, evaluate, speed = (
                run.timings.get(name, np.empty(0))
                for name in ("train_seconds", "evaluate_seconds", "steps_per_second")
            )
            minutes.append(round(float(train.sum() + evaluate.sum()) / 60, 1))
            speeds.append(speed)
        speed = np.concatenate(speeds)
        median = float(np.median(speed)) if len(speed) else 0.0
        steps = span([run.steps for run in group.runs])
        rows.append(
            (group.label, steps, *cells, span(minutes), number(np.round(median)))
        )
    columns = (
        "agent",
        "steps",
        *titles.values(),
        "minutes",
        "steps per second, median",
    )
    return Table(f"Training in {env_id}", columns, tuple(rows))


def config_table(groups: Sequence[Group]) -> Table | None:
    """Return the fields in which the groups' configs differ; None if there are none.

    Only the environment and the constraints of a rule's config mean anything.
    """
    trained = [group for group in groups if not group.is_rule]

    def holds_for_rules(name: str) -> bool:
        return name.partition(".")[0] in ("algo", "env", "constraints")

    shared = [
        name
        for name in differing_fields([group.config for group in groups])
        if holds_for_rules(name) and name != "algo"
    ]
    names = {*differing_fields([group.config for group in trained]), *shared}
    if not names:
        return None
    groups = groups if shared else trained
    flat = [serialization.flatten(serialization.to_dict(g.config)) for g in groups]
    ordered = [name for fields in flat for name in fields if name in names]
    rows = tuple(
        (
            name,
            *(
                "–"
                if group.is_rule and not holds_for_rules(name)
                else str(fields.get(name, "–"))
                for group, fields in zip(groups, flat, strict=True)
            ),
        )
        for name in dict.fromkeys(ordered)
    )
    columns = ("field", *(full_label(group, groups) for group in groups))
    return Table("Differences between the configs", columns, rows)


def run_table(results: Results) -> Table:
    """Return one row per run: its path, its steps, and the versions and machine."""
    rows = []
    for run in (run for group in results.groups for run in group.runs):
        versions = run.meta.get("versions") or {}
        total = run.config.training.total_steps
        facts = [
            *(versions.get(name) for name in ("orac", "jax", "python")),
            *(run.meta.get(name) for name in ("platform", "threads", "commit")),
        ]
        row = (
            str(run.path),
            str(run.config.seed),
            "rule" if run.rule else f"{run.steps:,} of {total:,}",
            *("–" if fact is None else str(fact) for fact in facts),
        )
        rows.append(row)
    columns = ("run", "seed", "steps", "orac", "jax", "python")
    columns = (*columns, "platform", "threads", "commit")
    return Table("What was run where", columns, tuple(rows), results.notes)


def _long_table(
    results: Results, level: float
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return columns and rows for programs: one row per number of each group."""
    columns = ("env", "agent", "seeds", "measure", "mean", "low", "high", "level")
    rows: list[tuple[object, ...]] = []
    for env_id, groups in results.by_env().items():
        tails = common_tails(groups)
        for group in groups:
            known = seed_values(group, tails)
            for key, values in known.items():
                mean = seed_mean(known, key, group, level)
                # The row has empty cells if some seed has no such number.
                bounds = (mean.estimate, mean.low, mean.high) if mean else [None] * 3
                rows.append((env_id, group.label, len(values), key, *bounds, level))
    return columns, rows
