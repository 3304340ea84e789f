"""Write the results of a study as files: tables, figure, runs, curves, configs, commit.

A record, such as `results/table1/`, holds table.md, table.tex, runs.csv (one row per run),
curves.csv (one row per evaluation), config.yaml (the fields that all cases share, and those
of each case), commit (the code that made the runs) and the figure as PNG and PDF. None of
them depends on the place of the runs.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from orac.config import serialization
from orac.core.risk import cvar
from orac.envs.registry import metrics_of
from orac.evaluation.result import cost_column
from orac.experiments.study import CaseResults, Study, label_curve
from orac.reports.run_reader import Run
from orac.reports.seed_statistics import common_tails, evaluation_curve, seed_values
from orac.reports.tables import Table, to_csv, to_latex, to_markdown
from orac.runs.atomic_io import write_text


def to_files(figure: Any) -> dict[str, bytes]:
    """Return a figure as PNG and PDF by file name; nothing for None."""
    if figure is None:
        return {}
    png, pdf = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    # Without the date, the same runs give the same file.
    figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    return {"figure.png": png.getvalue(), "figure.pdf": pdf.getvalue()}


def write_rendering(
    tables: Sequence[Table], figure_files: Mapping[str, bytes], folder: Path
) -> None:
    """Write table.md, table.tex and the files of the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, convert in (("table.md", to_markdown), ("table.tex", to_latex)):
        write_text(folder / name, "\n".join(map(convert, tables)))
    for name, content in figure_files.items():
        (folder / name).write_bytes(content)


def write_record(
    study: Study,
    results: Sequence[CaseResults],
    tables: Sequence[Table],
    figure_files: Mapping[str, bytes],
    folder: Path,
) -> None:
    """Write all files of a record."""
    _check_replaces_no_other_runs(results, folder)
    write_rendering(tables, figure_files, folder)
    write_text(folder / "runs.csv", _csv(_run_rows(study, results)))
    write_text(folder / "curves.csv", _csv(_curve_rows(results)))
    write_text(folder / "config.yaml", _configs(study, results))
    commits = Counter(_commits(run) for result in results for run in result.runs)
    lines = [f"{commit}  {count} runs\n" for commit, count in commits.items()]
    write_text(folder / "commit", "".join(lines))


def _commits(run: Run) -> str:
    """Return the commit that started a run and those that resumed it."""
    later = run.meta.get("resumed_at_commits", [])
    return ", then ".join(map(str, [run.meta.get("commit"), *later]))


def _check_replaces_no_other_runs(results: Sequence[CaseResults], folder: Path) -> None:
    """Raise a `ValueError` if there is nothing to record, or a recorded run would be lost."""
    present = {
        (result.case.label, str(run.config.seed))
        for result in results
        for run in result.evaluated
    }
    if not present:
        raise ValueError(
            f"there is nothing to record in {folder}: no run was evaluated yet. Is --out "
            "the folder of the runs?"
        )
    if not (folder / "runs.csv").exists():
        return
    with (folder / "runs.csv").open(newline="") as file:
        rows = csv.DictReader(file)
        recorded = {(str(row.get("case")), str(row.get("seed"))) for row in rows}
    if recorded - present:
        case, seed = min(recorded - present)
        raise ValueError(
            f"{folder} records {len(recorded - present)} runs that are not among these, "
            f"such as {case}, seed {seed}. Record to another folder, or delete that one."
        )


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    return to_csv(columns, [[row.get(name) for name in columns] for row in rows])


def _tails(results: Sequence[CaseResults]) -> dict[str, list[float]]:
    return common_tails([result.group for result in results if result.runs])


def _run_rows(study: Study, results: Sequence[CaseResults]) -> list[dict[str, Any]]:
    rows, tails = [], _tails(results)
    for result in results:
        for run in result.runs:
            gradient_steps = run.metrics.get("gradient_steps", np.empty(0))
            seconds = sum(
                run.timings.get(name, np.zeros(1)).sum()
                for name in ("train_seconds", "evaluate_seconds")
            )
            row: dict[str, Any] = {
                "case": result.case.label,
                "env": run.config.env.id,
                "algo": run.config.algo,
                "seed": run.config.seed,
                "steps": run.steps,
                "of": run.config.training.total_steps,
                "gradient_steps": int(gradient_steps[-1])
                if len(gradient_steps)
                else None,
                "minutes": round(float(seconds) / 60, 1),
                "threads": run.meta.get("threads"),
            }
            if len(run.evaluation_steps):
                row["evaluated_at"] = int(run.evaluation_steps[-1])
                values = seed_values(replace(result.group, runs=(run,)), tails)
                row |= {name: float(f"{v[0]:.6g}") for name, v in values.items()}
            rows.append(row | study.run_columns(run))
    return rows


def _curve_rows(results: Sequence[CaseResults]) -> list[dict[str, Any]]:
    rows, tails = [], _tails(results)
    for result in results:
        for run in result.evaluated:
            columns: dict[str, Any] = {"reward": evaluation_curve(run, "reward")}
            for name in run.cost_names:
                column = cost_column(name)
                columns[column] = evaluation_curve(run, column)
                for tail in tails.get(name, ()):
                    risk = evaluation_curve(run, column, cvar(tail))
                    columns[f"{column}/cvar_{tail:g}"] = risk
            for metric in metrics_of(run.config.env.id):
                # The first label is the one to follow, such as the maze's long path.
                for label in metric.labels[:1]:
                    curve = label_curve(run, metric.name, label.name)
                    if len(curve[0]):
                        columns[f"{label.name}_{metric.name}"] = curve
            for i, step in enumerate(columns["reward"][0]):
                row = {
                    "case": result.case.label,
                    "seed": run.config.seed,
                    "env_steps": int(step),
                }
                row |= {name: float(f"{c[1][i]:.5g}") for name, c in columns.items()}
                rows.append(row)
    return rows


def _configs(study: Study, results: Sequence[CaseResults]) -> str:
    """Return YAML with the fields that all cases share, and the other fields by case."""
    fields = {}
    for result in results:
        flat = serialization.flatten(serialization.to_dict(result.config))
        fields[result.case.label] = {k: v for k, v in flat.items() if k != "seed"}
    first = next(iter(fields.values()), {})
    shared = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in fields.values())
    }
    cases = {
        label: {name: value for name, value in flat.items() if name not in shared}
        for label, flat in fields.items()
    }
    content = {"study": study.name, "all": shared, "cases": cases}
    return yaml.safe_dump(content, sort_keys=False, width=88)
