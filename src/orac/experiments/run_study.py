"""Carry a study out: run what is missing, then render whatever is there.

Both `orac reproduce` and `orac sweep` end here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orac import envs
from orac.config.validation import check_choice
from orac.experiments.artifacts import record, write_figure, write_tables
from orac.experiments.curves import BANDS
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import Backend, Outcome, run_all
from orac.experiments.study import Study, collect, plan
from orac.reports.html.tables import to_text

BACKENDS = ("processes", "ray")
UNFINISHED = 3
"""Exit code of a study that stopped in time: the same command goes on."""


@dataclass(frozen=True)
class Orders:
    """How a study is to be carried out."""

    out: Path
    seeds: tuple[int, ...] | None = None
    """None: as many as the paper has."""
    jobs: int | None = None
    threads: int = 1
    budget_hours: float = math.inf
    backend: str = "processes"
    address: str | None = None
    trackers: tuple[str, ...] = ()
    band: str = "interval"
    render_only: bool = False
    record: Path | None = None


def carry_out(study: Study, orders: Orders, say: Callable[[str], None] = print) -> int:
    """Run, render and record; returns the exit code."""
    check_choice("--band", orders.band, BANDS)
    if orders.record and orders.record.exists() and not orders.record.is_dir():
        raise ValueError(
            f"--record must be a folder to write to, got the file {orders.record}."
        )
    planned = plan(study, orders.seeds, orders.out)
    outcomes: list[Outcome] = []
    if not orders.render_only:
        check_worlds(study)
        backend = make_backend(orders)
        outcomes = run_all(planned, backend, 3600 * orders.budget_hours, say)
    # Seeds that nobody asked for are not missing.
    asked = [] if orders.render_only and orders.seeds is None else planned
    found = collect(study.cases, orders.out, asked)
    tables = study.make_tables(found)
    for table in tables:
        say(to_text(table))
    folder = orders.out / study.name
    write_tables(tables, folder)
    write_figure(study, found, orders.band, folder)
    say(f"Tables and figure: {folder}")
    if orders.record:
        record(study, found, tables, orders.band, orders.record)
        say(f"Recorded: {orders.record}")
    return conclude(outcomes, say)


def check_worlds(study: Study) -> None:
    """Refuse a setting that an environment does not know now, not once for each run."""
    for env in dict.fromkeys(case.config.env for case in study.cases):
        if envs.has_jax_form(env.id):
            envs.make(env.id, **dict(env.params))


def make_backend(orders: Orders) -> Backend:
    """Processes of this machine, or tasks of a Ray cluster."""
    check_choice("--backend", orders.backend, BACKENDS)
    if orders.backend == "ray":
        from orac.experiments.launcher.ray_cluster import RayTasks

        return RayTasks(orders.address, orders.jobs, orders.threads, orders.trackers)
    if orders.address is not None:
        raise ValueError(
            f"--address {orders.address} is that of a Ray cluster; add --backend ray."
        )
    return Processes(orders.jobs, orders.threads, orders.trackers)


def conclude(outcomes: Sequence[Outcome], say: Callable[[str], None]) -> int:
    """Say what failed and what is left; the exit code."""
    failed = [o for o in outcomes if o.status == "failed"]
    stopped = [o for o in outcomes if o.status == "stopped"]
    for outcome in failed:
        say(f"failed: {outcome.run}: {outcome.error}")
    if stopped:
        say(
            f"{len(stopped)} of {len(outcomes)} runs are not finished, all saved: the "
            "same command goes on."
        )
    if failed:
        return 1
    return UNFINISHED if stopped else 0
