"""Run a study: train the runs that are missing, then render the results that exist.

`orac reproduce` runs one of `STUDIES`, `orac sweep` the study of a grid file.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orac.config.validation import check_choice
from orac.envs import registry
from orac.experiments import ablations, table1, table2, table3
from orac.experiments.artifacts import to_files, write_record, write_rendering
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import Backend, Log, Outcome, run_all
from orac.experiments.study import Study, collect, plan
from orac.reports.seed_statistics import BANDS
from orac.reports.tables import to_text

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        table1.TABLE1,
        table2.TABLE2,
        table3.TABLE3,
        ablations.IQN_VS_LINEAR,
        ablations.COST_OPTIMISM,
        ablations.REWARD_OPTIMISM,
        ablations.ENSEMBLE,
        table1.FIGURE1,
        table2.FIGURE2,
    )
}
"""The paper's studies by their names on the command line."""
BACKENDS = ("processes", "ray")
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
    if not options.render_only:
        # Check the environments' parameters once, before any worker starts.
        for env in dict.fromkeys(case.config.env for case in study.cases):
            if registry.has_jax_form(env.id):
                registry.make(env.id, **dict(env.params))
        backend = make_backend(options)
        outcomes = run_all(planned, backend, 3600 * options.budget_hours, log)
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
    return exit_code(outcomes, log)


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
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    stopped = [outcome for outcome in outcomes if outcome.status == "stopped"]
    for outcome in failed:
        log(f"failed: {outcome.run}: {outcome.error}")
    if stopped:
        log(
            f"{len(stopped)} of {len(outcomes)} runs are not finished. All are saved: run "
            "the same command again to continue."
        )
    if failed:
        return 1
    return UNFINISHED if stopped else 0
