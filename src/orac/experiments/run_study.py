"""Run a study: train the runs that are missing, then render the results that exist.

`orac reproduce` runs one of `STUDIES`, `orac sweep` the study of a grid file. The results
are files: a record, such as `results/table1/`, holds table.md, table.tex, runs.csv (one row
per run), curves.csv (one row per evaluation), config.yaml (the fields that all cases share,
and those of each case), commit (the code that made the runs) and the figure as PNG and PDF.
No file depends on where the runs are.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from orac.config.validation import check_choice, read_text
from orac.core.risk import cvar
from orac.envs import registry
from orac.envs.gym_adapter.costs import check_env_module, cost_fn_of_file
from orac.evaluation.result import cost_column
from orac.experiments import ablations, limit, table1, tables_2_and_3
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import (
    Backend,
    Log,
    Outcome,
    run_all,
    stop_signals,
)
from orac.experiments.study import CaseResults, Study, collect, label_curve, plan
from orac.reports.run_reader import Run, flat_config
from orac.reports.seed_statistics import (
    BANDS,
    common_tails,
    evaluation_curve,
    seed_values,
)
from orac.reports.tables import Table, to_csv, to_latex, to_markdown, to_text
from orac.runs.atomic_io import write_text
from orac.training.encoder_loading import encoder_of_file

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        table1.TABLE1,
        tables_2_and_3.TABLE2,
        tables_2_and_3.TABLE3,
        ablations.IQN_VS_LINEAR,
        ablations.COST_OPTIMISM,
        ablations.REWARD_OPTIMISM,
        ablations.ENSEMBLE,
        table1.FIGURE1,
        tables_2_and_3.FIGURE2,
        limit.LIMIT,
    )
}
"""The paper's studies by their names on the command line."""
BACKENDS = ("processes", "ray")
MAX_RECORD_BYTES = 1 << 24
"""Largest runs.csv of a record."""
UNFINISHED = 3
"""Exit code of a study that was stopped; the same command continues it."""


@dataclass(frozen=True)
class StudyOptions:
    """Options of `orac reproduce` and `orac sweep` that do not change the runs' configs."""

    out: Path
    """Root of the run directories."""
    seeds: tuple[int, ...] | None = None
    """None trains as many seeds as the paper."""
    jobs: int | None = None
    threads: int = 1
    budget_hours: float = math.inf
    backend: str = "processes"
    address: str | None = None
    """Address of the Ray cluster."""
    trackers: tuple[str, ...] = ()
    band: str = "interval"
    render_only: bool = False
    """Train nothing and render the results that exist."""
    record: Path | None = None
    """Folder for the record; None: do not record."""


def run(study: Study, options: StudyOptions, log: Log = print) -> int:
    """Train, render and record a study, and return the exit code."""
    check_choice("--band", options.band, BANDS)
    if options.record and options.record.exists() and not options.record.is_dir():
        raise ValueError(
            f"--record must be a folder to write to, got the file {options.record}."
        )
    planned = plan(study, options.seeds, options.out)
    outcomes: list[Outcome] = []
    signals: list[int] = []
    if not options.render_only:
        # Check the environments' parameters once, before any worker starts.
        for case in study.cases:
            if isinstance(encoder := case.config.agent.encoder, str):
                encoder_of_file(encoder)
        for env in dict.fromkeys(case.config.env for case in study.cases):
            check_env_module(env.id)
            if env.cost_fn is not None:
                cost_fn_of_file(env.cost_fn)
            if registry.has_jax_form(env.id):
                registry.make(env.id, **dict(env.params))
        backend = make_backend(options)
        seconds = 3600 * options.budget_hours
        with stop_signals() as signals:
            outcomes = run_all(planned, backend, seconds, log, signals)
    # With --render-only and no --seeds, report no seed as missing.
    wanted = [] if options.render_only and options.seeds is None else planned
    results = collect(study.cases, options.out, wanted)
    tables = study.make_tables(results)
    for table in tables:
        log(to_text(table))
    figure = None
    if study.make_figure is not None and any(result.evaluated for result in results):
        figure = study.make_figure(results, options.band)
    files, folder = to_files(figure), options.out / study.name
    write_rendering(tables, files, folder)
    log(f"Tables and figure: {folder}")
    if options.record:
        write_record(study, results, tables, files, options.record)
        log(f"Recorded: {options.record}")
    code = exit_code(outcomes, log)
    return 128 + signals[0] if signals and code == UNFINISHED else code


def make_backend(options: StudyOptions) -> Backend:
    """Return the backend that the options name."""
    check_choice("--backend", options.backend, BACKENDS)
    jobs, threads, trackers = options.jobs, options.threads, options.trackers
    if options.backend == "ray":
        from orac.experiments.launcher.ray_cluster import RayTasks

        return RayTasks(options.address, jobs, threads, trackers)
    if options.address is not None:
        raise ValueError(
            f"--address {options.address} is only for a Ray cluster; add --backend ray."
        )
    return Processes(jobs, threads, trackers)


def exit_code(outcomes: Sequence[Outcome], log: Log) -> int:
    """Log the failed and the unfinished runs and return the exit code."""
    failed = [x for x in outcomes if x.status in ("failed", "killed")]
    stopped = [outcome for outcome in outcomes if outcome.status == "stopped"]
    for outcome in failed:
        log(f"{outcome.status}: {outcome.run}: {outcome.error}")
    if stopped:
        log(
            f"{len(stopped)} of {len(outcomes)} runs are not finished. All are saved: run "
            "the same command again to continue."
        )
    if failed:
        return 1
    return UNFINISHED if stopped else 0


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
    text = read_text(folder / "runs.csv", MAX_RECORD_BYTES)
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        recorded = {(str(row.get("case")), str(row.get("seed"))) for row in rows}
    except csv.Error as error:
        raise ValueError(
            f"{folder / 'runs.csv'} must be a table of runs, but: {error}. Restore it, or "
            "record to another folder."
        ) from error
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
            for metric in registry.metrics_of(run.config.env.id):
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
        fields[result.case.label] = flat_config(result.config)
        del fields[result.case.label]["seed"]
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
