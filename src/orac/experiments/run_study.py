"""Run a study: train the runs that are missing, then make tables and figures of all runs.

`orac reproduce` runs one of `STUDIES`, and `orac sweep` runs the study of a grid file. The
tables are written to table.md and table.tex, and the figure to figure.png and figure.pdf. If
the study has a record, such as `results/table1/`, these files are in the same folder as the
numbers from which they were made (see `records`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orac.config.validation import check_choice
from orac.envs import registry
from orac.envs.user_code import check_env_module, cost_fn_from_file
from orac.experiments import ablations, limit, table1, tables_2_and_3
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import (
    Backend,
    Log,
    Outcome,
    PlannedRun,
    run_all,
    stop_signals,
)
from orac.experiments.records import collect, read_record, read_row, update_record
from orac.experiments.study import Study, plan
from orac.reports.matplotlib_figures import figure_bytes
from orac.reports.report_metrics import BANDS
from orac.reports.tables import Table, to_latex, to_markdown, to_text
from orac.runs.atomic_io import make_directory, write_bytes, write_text
from orac.training.encoder_loading import encoder_of_file

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        table1.TABLE1,
        table1.TABLE1_IQN,
        tables_2_and_3.TABLE2,
        tables_2_and_3.TABLE3,
        tables_2_and_3.TABLE2_FAST,
        tables_2_and_3.TABLE3_FAST,
        ablations.IQN_VS_LINEAR,
        ablations.COST_OPTIMISM,
        ablations.REWARD_OPTIMISM,
        ablations.ENSEMBLE,
        table1.FIGURE1,
        tables_2_and_3.FIGURE2,
        limit.LIMIT,
    )
}
"""The studies of `orac reproduce` by name."""
BACKENDS = ("processes", "ray")
UNFINISHED = 3
"""Exit code of a study that was stopped because its time budget was used up. The same command
continues it. `cli.main.main` lists all exit codes."""


@dataclass(frozen=True)
class StudyOptions:
    """Options of `orac reproduce` and `orac sweep` that do not change the runs' configs."""

    out: Path
    """Root of the run directories."""
    seeds: tuple[int, ...] | None = None
    """Seeds of every case; None means the default seeds of each case."""
    jobs: int | None = None
    """Maximum number of runs at a time; None means as many as there are processors for."""
    threads: int = 1
    """Threads of each run."""
    budget_hours: float = math.inf
    """Hours after which the study is stopped."""
    backend: str = "processes"
    """One of `BACKENDS`."""
    address: str | None = None
    """Address of the Ray cluster."""
    trackers: tuple[str, ...] = ()
    band: str = "interval"
    """One of `report_metrics.BANDS`."""
    render_only: bool = False
    """Whether to train nothing, and only make tables and figures of the existing runs."""
    record: Path | None = None
    """Folder of the record, if there is one. Runs that are finished in the record are not
    trained again. All other runs are added to it."""


def run(study: Study, options: StudyOptions, log: Log = print) -> int:
    """Train and record a study, make its tables and figure, and return the exit code."""
    check_choice("--band", options.band, BANDS)
    if options.record and options.record.exists() and not options.record.is_dir():
        raise ValueError(
            f"--record must be a folder to write to, got the file {options.record}."
        )
    planned = plan(study, options.seeds, options.out)
    outcomes: list[Outcome] = []
    signals: list[int] = []
    if not options.render_only:
        with stop_signals() as signals:
            outcomes = train(study, planned, options, log, signals)
    # With --render-only and without --seeds, no seed counts as missing.
    wanted = [] if options.render_only and options.seeds is None else planned
    results = collect(study, options.out, wanted, options.record)
    evaluated = any(result.evaluated for result in results)
    if signals and not evaluated:
        # A table without any number would hide how to continue.
        log("No run was evaluated yet, so there are no tables.")
        code = exit_code(outcomes, log)
        return 128 + signals[0] if code == UNFINISHED else code
    if options.record and not evaluated:
        raise ValueError(
            f"there is nothing to record in {options.record}: no run was evaluated yet. Is "
            "--out the folder of the runs?"
        )
    tables = study.make_tables(results)
    for table in tables:
        log(to_text(table))
    figure = None
    if study.make_figure is not None and evaluated:
        figure = study.make_figure(results, options.band)
    folder = options.record or options.out / study.name
    write_rendering(tables, to_files(figure), folder)
    log(f"{'Record' if options.record else 'Tables and figure'}: {folder}")
    code = exit_code(outcomes, log)
    return 128 + signals[0] if signals and code == UNFINISHED else code


def train(
    study: Study,
    planned: Sequence[PlannedRun],
    options: StudyOptions,
    log: Log,
    signals: list[int],
) -> list[Outcome]:
    """Train the runs that are not finished in the record, and add each once it is finished.

    `signals` is the list that the surrounding `with stop_signals()` yields.
    """
    missing, folder = planned, options.record
    if folder is not None:
        record = read_record(folder, study)
        for run in planned:
            record.check(run.label, str(run), run.config)
        missing = [run for run in planned if not record.is_complete(run)]
        if len(missing) < len(planned):
            recorded = len(planned) - len(missing)
            log(f"{recorded} of {len(planned)} runs are finished in {folder}.")
        if not missing:
            return []
    # Check encoders, cost functions and environments before any worker starts.
    for run in missing:
        if isinstance(encoder := run.config.agent.encoder, str):
            encoder_of_file(encoder)
    for env in dict.fromkeys(run.config.env for run in missing):
        check_env_module(env.id)
        if env.cost_fn is not None:
            cost_fn_from_file(env.cost_fn)
        if registry.is_jax_env(env.id):
            registry.make(env.id, **dict(env.params))

    def add_to_record(run: PlannedRun) -> None:
        try:
            if folder is not None:
                update_record(folder, study, [read_row(study, run)])
        except (OSError, ValueError) as error:
            # The other runs continue. The row is added at the end of the study, if possible.
            log(f"{run} is not in {folder} yet: {error}")

    backend, seconds = make_backend(options), 3600 * options.budget_hours
    return run_all(missing, backend, seconds, log, signals, when_finished=add_to_record)


def make_backend(options: StudyOptions) -> Backend:
    """Return the backend that `--backend` names."""
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
    """Log the failed and the unfinished runs, and return the exit code of the study."""
    failed = [x for x in outcomes if x.status in ("failed", "killed")]
    stopped = [outcome for outcome in outcomes if outcome.status == "stopped"]
    for outcome in failed:
        log(f"{outcome.status}: {outcome.run}: {outcome.error}")
    if stopped:
        started = sum(outcome.run.step() > 0 for outcome in stopped)
        saved = f" The steps of {started} of these are saved." if started else ""
        log(
            f"{len(stopped)} of {len(outcomes)} runs are not finished.{saved} Run the same "
            "command again to continue."
        )
    if failed:
        return 1
    return UNFINISHED if stopped else 0


def to_files(figure: Any) -> dict[str, bytes]:
    """Return the contents of figure.png and figure.pdf by name; empty without a figure."""
    if figure is None:
        return {}
    # The PDF has no date, so that the same runs always give the same file.
    undated = {"CreationDate": None}
    return {
        "figure.png": figure_bytes(figure, "png", dpi=150),
        "figure.pdf": figure_bytes(figure, "pdf", metadata=undated),
    }


def write_rendering(
    tables: Sequence[Table], figure_files: Mapping[str, bytes], folder: Path
) -> None:
    """Write table.md, table.tex and the files of the figure."""
    make_directory(folder)
    for name, convert in (("table.md", to_markdown), ("table.tex", to_latex)):
        write_text(folder / name, "\n".join(map(convert, tables)))
    for name, content in figure_files.items():
        write_bytes(folder / name, content)
