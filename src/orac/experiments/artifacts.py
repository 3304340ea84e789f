"""A study's findings as small files: tables, figure, runs, curves, configs, commit.

`results/<study>/` holds table.md, table.tex, runs.csv (a row a run), curves.csv (a row an
evaluation), config.yaml (what all cases share, and what sets each apart), commit (which
code made the runs) and the figure as PNG and PDF. Nothing in them depends on where the
runs were.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from orac.config import serialization as config_text
from orac.core.risk import cvar
from orac.evaluation.result import cost_column
from orac.experiments.convergence import long_path_curve
from orac.experiments.study import Found, Study
from orac.reports.html.tables import Table, to_csv, to_latex, to_markdown
from orac.reports.metrics import common_tails
from orac.reports.run_reader import Run, cost_names
from orac.reports.seed_statistics import evaluation_curve, seed_values
from orac.runs.atomic_io import write_text


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """table.md and table.tex."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "table.md", folder / "table.tex"
    for path, spell in zip(paths, (to_markdown, to_latex), strict=True):
        write_text(path, "\n".join(spell(table) for table in tables))
    return [*paths]


def write_figure(study: Study, found: Sequence[Found], band: str, folder: Path) -> None:
    """figure.png and figure.pdf, where the study has a figure and there is a curve."""
    if study.make_figure is None or not any(case.evaluated for case in found):
        return
    figure = study.make_figure(found, band)
    if figure is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "figure.png", dpi=150)
    # No date inside: the same runs give the same file.
    figure.savefig(folder / "figure.pdf", metadata={"CreationDate": None})


def record(
    study: Study, found: Sequence[Found], tables: Sequence[Table], band: str, to: Path
) -> None:
    """Write everything that is worth keeping of a study."""
    _check_loses_nothing(found, to)
    write_tables(tables, to)
    write_figure(study, found, band, to)
    write_text(to / "runs.csv", _csv(_run_rows(study, found)))
    write_text(to / "curves.csv", _csv(_curve_rows(found)))
    write_text(to / "config.yaml", _configs(study, found))
    commits = Counter(_commits(run) for case in found for run in case.runs)
    lines = [f"{commit}  {count} runs\n" for commit, count in commits.items()]
    write_text(to / "commit", "".join(lines))


def _commits(run: Run) -> str:
    """The code that began a run, and whatever other code went on with it."""
    later = run.meta.get("resumed_at_commits", [])
    return ", then ".join(map(str, [run.meta.get("commit"), *later]))


def _check_loses_nothing(found: Sequence[Found], to: Path) -> None:
    """Refuse to record nothing, or to replace runs that are recorded by none."""
    ours = {(c.case.label, str(run.config.seed)) for c in found for run in c.evaluated}
    if not ours:
        raise ValueError(
            f"there is nothing to record in {to}: no run was evaluated yet. Is --out the "
            "folder of the runs?"
        )
    if not (to / "runs.csv").exists():
        return
    with (to / "runs.csv").open(newline="") as file:
        kept = {
            (str(row.get("case")), str(row.get("seed"))) for row in csv.DictReader(file)
        }
    if kept - ours:
        case, seed = min(kept - ours)
        raise ValueError(
            f"{to} records {len(kept - ours)} runs that are not among these, such as "
            f"{case}, seed {seed}. Record to another folder, or delete that one."
        )


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    return to_csv(columns, [[row.get(name) for name in columns] for row in rows])


def _run_rows(study: Study, found: Sequence[Found]) -> list[dict[str, Any]]:
    rows = []
    tails = common_tails([case.group for case in found if case.runs])
    for case in found:
        for run in case.runs:
            row: dict[str, Any] = {
                "case": case.case.label,
                "env": run.config.env.id,
                "algo": run.config.algo,
                "seed": run.config.seed,
                "steps": run.steps,
                "of": run.config.training.total_steps,
                "gradient_steps": _last(run, "gradient_steps"),
                "minutes": round(_seconds(run) / 60, 1),
                "threads": run.meta.get("threads"),
            }
            if len(run.evaluated_at):
                row["evaluated_at"] = int(run.evaluated_at[-1])
                values = seed_values(replace(case.group, runs=(run,)), tails)
                row |= {name: float(f"{v[0]:.6g}") for name, v in values.items()}
            rows.append(row | study.run_columns(run))
    return rows


def _last(run: Run, name: str) -> int | None:
    values = run.metrics.get(name, np.empty(0))
    return int(values[-1]) if len(values) else None


def _seconds(run: Run) -> float:
    columns = ("train_seconds", "evaluate_seconds")
    return float(sum(run.timings.get(name, np.zeros(1)).sum() for name in columns))


def _curve_rows(found: Sequence[Found]) -> list[dict[str, Any]]:
    rows = []
    tails = common_tails([case.group for case in found if case.runs])
    for case in found:
        for run in case.evaluated:
            columns: dict[str, Any] = {"reward": evaluation_curve(run, "reward")}
            for name in cost_names(run):
                column = cost_column(name)
                columns[column] = evaluation_curve(run, column)
                for tail in tails.get(name, ()):
                    risk = evaluation_curve(run, column, cvar(tail))
                    columns[f"{column}/cvar_{tail:g}"] = risk
            if "path" in run.evaluations:
                columns["long_path"] = long_path_curve(run)
            for i, step in enumerate(columns["reward"][0]):
                row = {"case": case.case.label, "seed": run.config.seed}
                row |= {"env_steps": int(step)}
                row |= {name: float(f"{v[1][i]:.5g}") for name, v in columns.items()}
                rows.append(row)
    return rows


def _configs(study: Study, found: Sequence[Found]) -> str:
    """Fields that all cases share once, the others by case."""
    flat = {}
    for case in found:
        config = case.runs[0].config if case.runs else case.case.config
        fields = config_text.flatten(config_text.to_dict(config))
        flat[case.case.label] = {k: v for k, v in fields.items() if k != "seed"}
    first = next(iter(flat.values()), {})
    shared = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in flat.values())
    }
    cases = {
        label: {name: value for name, value in fields.items() if name not in shared}
        for label, fields in flat.items()
    }
    content = {"study": study.name, "all": shared, "cases": cases}
    return yaml.safe_dump(content, sort_keys=False, width=88)
