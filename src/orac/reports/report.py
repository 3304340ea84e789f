"""Write a report on runs as an HTML page, as markdown or LaTeX tables, or as CSV.

This module also makes most of the tables of a report. They show the delivered policies, the
results with intervals over seeds, the winners, the environment's own metrics, the
interquartile means, the training, and the runs. The table of the differences between the
configs is in `compare`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orac.config.validation import check_choice
from orac.evaluation.cvar_bounds import percent, round_up
from orac.evaluation.episodes import cost_column
from orac.evaluation.seed_intervals import Interval, interquartile_mean
from orac.reports.compare import config_table, describe_wins, find_wins
from orac.reports.html import make_page
from orac.reports.report_metrics import (
    LEVEL,
    Metric,
    SeedValues,
    common_tails,
    env_metrics,
    objective_metrics,
    seed_mean,
    seed_values,
    summary_metrics,
)
from orac.reports.run_reader import Group, Results, read_results
from orac.reports.tables import Table, cell, number, span, to_csv, to_latex, to_markdown
from orac.runs.atomic_io import make_directory, write_text

SUFFIXES = {".html": "html", ".md": "markdown", ".tex": "latex", ".csv": "csv"}
FORMATS = tuple(SUFFIXES.values())

Values = Sequence[tuple[Group, SeedValues]]
"""Groups of one environment, each with its `seed_values`. The tails of the CVaRs are the
`common_tails` of all these groups."""


def write(
    paths: Sequence[str | os.PathLike[str]], out: Path, form: str | None = None
) -> Path:
    """Write a report on all runs at or below `paths` to the file `out`, and return `out`.

    The suffix of `out` sets the format. If `form` is given, it must be the same format.
    """
    text = render(paths, format_of(out, form))
    make_directory(out.parent)
    write_text(out, text)
    return out


def format_of(out: Path, form: str | None = None) -> str:
    """Return the format that belongs to the suffix of `out`.

    Raises a `ValueError` if the suffix is unknown, or if `form` is another format.
    """
    found = SUFFIXES.get(out.suffix.lower())
    if found is None or form not in (None, found):
        wanted = {v: k for k, v in SUFFIXES.items()}.get(form or "")
        raise ValueError(
            f"a report's file must end in {wanted or ', '.join(SUFFIXES)}"
            f"{f', because its format is {form}' if wanted else ''}; got {out.name!r}. "
            "Rename it; for PDF figures use --figures DIR."
        )
    return found


def render(paths: Sequence[str | os.PathLike[str]], form: str = "html") -> str:
    """Return the text of a report on all runs at or below `paths`.

    `form` is one of `FORMATS`.
    """
    check_choice("the format of a report", form, FORMATS)
    results = read_results(paths)
    if form == "csv":
        return _to_long_csv(results)
    if form == "html":
        by_env = {x: env_tables(groups) for x, groups in results.by_env().items()}
        configs, roots = config_table(results.groups), [Path(path) for path in paths]
        return make_page(results, by_env, configs, run_table(results), roots)
    to_format = to_markdown if form == "markdown" else to_latex
    return "\n".join(to_format(table) for table in all_tables(results))


def all_tables(results: Results) -> list[Table]:
    """Return all tables of a report, in the order in which it shows them."""
    tables = []
    for groups in results.by_env().values():
        above, below = env_tables(groups)
        tables += [*above, *below]
    configs = config_table(results.groups)
    return [*tables, *([configs] if configs else []), run_table(results)]


def env_tables(groups: Sequence[Group]) -> tuple[list[Table], list[Table]]:
    """Return an environment's tables: those above its charts, and those below."""
    tails = common_tails(groups)
    values = [(group, seed_values(group, tails)) for group in groups]
    above = [_delivered_table(groups), _result_table(values), _winner_table(groups)]
    below = [_env_metrics_table(values), _interquartile_table(values)]
    below.append(_training_table(groups))
    return [x for x in above if x is not None], [x for x in below if x is not None]


def _delivered_table(groups: Sequence[Group]) -> Table | None:
    """Return a table of the policies that the runs deliver; None if no run has one."""
    rows = []
    for group in groups:
        for run in group.runs:
            policy, config = run.delivered, run.config
            if policy is None:
                continue
            risks = [
                f"{'' if c.name == 'cost' else f'{c.name}: '}{number(risk)} "
                f"({config.limited_measure(c)}, limit {c.limit:g})"
                for c, risk in zip(config.constraints, policy.risk, strict=True)
            ]
            certificate = "not certified" if policy.refused else "none"
            if policy.bounds:
                bounds = " and ".join(map(round_up, policy.bounds))
                certificate = (
                    f"below {bounds} with {percent(policy.confidence)} % confidence"
                )
            rows.append(
                (
                    group.label,
                    str(config.seed),
                    "; ".join(risks) or "no limit",
                    "yes" if policy.within_limits else "no",
                    f"{policy.episodes:,}",
                    number(policy.reward),
                    f"{policy.step:,}",
                    certificate,
                )
            )
    columns = (
        *("agent", "seed", "measured risk", "within the limits", "episodes"),
        *("reward", "policy of step", "certificate"),
    )
    note = (
        "Each row is the policy that a run delivers, with the risk measured on whole "
        "episodes. The command orac certify RUN chooses one of the run's best policies and "
        "certifies it on fresh episodes."
    )
    title = f"Delivered policies in {groups[0].env_id}"
    return Table(title, columns, tuple(rows), (note,)) if rows else None


def _result_table(values: Values) -> Table:
    groups = [group for group, _ in values]
    metrics = summary_metrics(groups)
    rows = []
    for group, known in values:
        steps = span([run.evaluation_steps[-1] for run in group.evaluated])
        first = group.label, _seeds_cell(group), _limits_cell(group, known)
        cells = _mean_cells(metrics, group, known)
        rows.append((*first, *cells, "–" if group.is_rule else steps))
    columns = ("agent", "seeds", "limit", *(x.title for x in metrics), "steps")
    note = (
        "The numbers are means over seeds of each seed's last evaluation, with "
        f"{100 * LEVEL:g} % intervals; each seed is one sample. There is no interval for one "
        "seed, or if all seeds have the same value. The column limit says within if the whole "
        "interval of the risk is at or below the limit, broken if the whole interval is above "
        "it, and undecided otherwise; without an interval, it says on which side of the limit "
        "the risk is. Intervals of shares are clipped to [0, 1]. Intervals of costs that were "
        "never negative are clipped at 0, and intervals of costs and lengths at the maximum "
        "that the environment declares."
    )
    return Table(f"Results in {groups[0].env_id}", columns, tuple(rows), (note,))


def _seeds_cell(group: Group) -> str:
    runs = group.evaluated
    broken = sum(not run.last_evaluation_is_finite for run in runs)
    return f"{len(runs)}{f' ({broken} not finite)' if broken else ''}"


def _limits_cell(group: Group, values: SeedValues) -> str:
    """Return a text with each limit, and whether the constrained risk is within it."""
    parts = []
    for constraint in group.config.constraints:
        risk = seed_mean(values, f"{cost_column(constraint.name)}/risk", group)
        name = "" if constraint.name == "cost" else f"{constraint.name}: "
        verdict = f": {_limit_verdict(risk, constraint.limit)}" if risk else ""
        parts.append(f"{name}{constraint.limit:g} on {constraint.measure}{verdict}")
    return "; ".join(parts) or "none"


def _limit_verdict(risk: Interval, limit: float) -> str:
    if risk.low is None or risk.high is None:
        side = "below" if risk.estimate <= limit else "above"
        return f"{side}, {'one seed' if risk.n == 1 else f'same value for all {risk.n} seeds'}"
    if risk.high <= limit:
        return "within"
    return "broken" if risk.low > limit else "undecided"


def _winner_table(groups: Sequence[Group]) -> Table | None:
    if sum(bool(group.evaluated) for group in groups) < 2:
        return None
    wins = find_wins(groups)
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
        "An agent is clearly ahead if the interval of the difference excludes 0, at "
        f"{100 * LEVEL:g} % for all pairs of a row together (Bonferroni). If all seeds of "
        "each agent have the same value, there is no interval and a rank test decides. The "
        "rank test needs at least five seeds, or more if there are more than two agents. With "
        "one seed, no agent is clearly ahead."
    )
    columns = ("metric", "best", "mean", "clearly ahead of", "not clearly ahead of")
    title, notes = f"Who wins where in {groups[0].env_id}", (describe_wins(wins), note)
    return Table(title, columns, rows, notes)


def _env_metrics_table(values: Values) -> Table | None:
    env_id = values[0][0].env_id
    found = env_metrics(env_id, [known for _, known in values])
    metrics = [Metric("length/mean", "length", ""), *found]
    rows = [(x[0].label, *_mean_cells(metrics, *x)) for x in values if x[1]]
    title = f"Means of the environment's own metrics in {env_id}"
    columns = ("agent", *(x.title for x in metrics))
    return Table(title, columns, tuple(rows)) if rows else None


def _interquartile_table(values: Values) -> Table | None:
    """Return a table of interquartile means of the reward and the constrained risks.

    The table has only groups with several trained seeds. Returns None if there is no such
    group.
    """
    metrics = objective_metrics([group for group, _ in values])
    rows = []
    for group, known in values:
        if len(group.evaluated) > 1 and not group.is_rule:
            keys = [metric.key for metric in metrics]
            found = [seed_mean(known, key, group, interquartile_mean) for key in keys]
            rows.append((group.label, _seeds_cell(group), *map(cell, found)))
    note = (
        "The interquartile mean is the mean of the middle half of the seeds, so one failed "
        "seed hardly changes it. With fewer than four seeds, no seed is left out, so the "
        "interquartile mean is the mean. There is no row for hand-coded policies or for "
        "agents with one seed. Intervals are clipped as in the table of results."
    )
    columns = ("agent", "seeds", *(x.title for x in metrics))
    title = f"Interquartile means in {values[0][0].env_id}"
    return Table(title, columns, tuple(rows), (note,)) if rows else None


def _mean_cells(
    metrics: Sequence[Metric], group: Group, values: SeedValues
) -> list[str]:
    return [cell(seed_mean(values, x.key, group)) for x in metrics]


def _training_table(groups: Sequence[Group]) -> Table | None:
    """Return a table of the training: steps, episodes, costs, minutes and speed.

    Groups that have only saved evaluations are left out. Returns None if no group is left.
    """
    env_id = groups[0].env_id
    groups = [g for g in groups if not all(run.is_saved_evaluation for run in g.runs)]
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
            cells.append(cell(seed_mean(values, key, group)))
        train, evaluate, speeds = (
            [run.timings.get(name, np.empty(0)) for run in group.runs]
            for name in ("train_seconds", "evaluate_seconds", "steps_per_second")
        )
        seconds = [
            float(x.sum() + y.sum()) for x, y in zip(train, evaluate, strict=True)
        ]
        minutes = span([round(x / 60, 1) for x in seconds])
        speed = np.concatenate(speeds)
        median = number(np.round(np.median(speed) if len(speed) else 0.0))
        steps = span([run.steps for run in group.runs])
        rows.append((group.label, steps, *cells, minutes, median))
    last = "minutes", "steps per second, median"
    columns = ("agent", "steps", *titles.values(), *last)
    return Table(f"Training in {env_id}", columns, tuple(rows))


def run_table(results: Results) -> Table:
    """Return a table with one row per run: path, seed, steps, versions and machine."""
    versions, machine = ("orac", "jax", "python"), ("platform", "threads", "commit")
    rows = []
    for run in results.runs:
        facts = (run.meta.get("versions") or {}) | {x: run.meta.get(x) for x in machine}
        cells = [facts.get(name) for name in (*versions, *machine)]
        cells = ["–" if fact is None else str(fact) for fact in cells]
        steps = f"{run.steps:,} of {run.config.training.total_steps:,}"
        first = str(run.path), str(run.config.seed), "rule" if run.rule else steps
        rows.append((*first, *cells))
    columns = ("run", "seed", "steps", *versions, *machine)
    return Table("What was run where", columns, tuple(rows), results.notes)


def _to_long_csv(results: Results) -> str:
    """Return CSV text for other programs, with one row per group and metric."""
    columns = ("env", "agent", "seeds", "measure", "mean", "low", "high", "level")
    rows: list[tuple[object, ...]] = []
    for env_id, groups in results.by_env().items():
        tails = common_tails(groups)
        for group in groups:
            known = seed_values(group, tails)
            for key, values in known.items():
                mean = seed_mean(known, key, group)
                # Cells are empty if a seed does not have this metric.
                bounds = (mean.estimate, mean.low, mean.high) if mean else [None] * 3
                rows.append((env_id, group.label, len(values), key, *bounds, LEVEL))
    return to_csv(columns, rows)
