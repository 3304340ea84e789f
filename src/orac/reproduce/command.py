"""Carry a study out: run what is missing, then render whatever is there.

Both `orac reproduce` and `orac sweep` end here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orac.checks import check_choice
from orac.processes import Processes
from orac.report.tables import to_text
from orac.reproduce.curves import BANDS
from orac.reproduce.recording import record, write_figure, write_tables
from orac.reproduce.study import Study, collect, plan
from orac.schedule import Backend, Outcome, run_all

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
    budget_hours: float | None = None
    backend: str = "processes"
    address: str | None = None
    trackers: tuple[str, ...] = ()
    band: str = "interval"
    render_only: bool = False
    record: Path | None = None


def carry_out(study: Study, orders: Orders, say: Callable[[str], None] = print) -> int:
    """Run, render and record; returns the exit code."""
    check_choice("--band", orders.band, BANDS)
    planned = plan(study, orders.seeds, orders.out)
    outcomes: list[Outcome] = []
    if not orders.render_only:
        hours = orders.budget_hours
        seconds = None if hours is None else 3600 * hours
        backend = make_backend(orders)
        outcomes = run_all(planned, backend, seconds, say)
    found = collect(study.cases, orders.out, [] if orders.render_only else planned)
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


def make_backend(orders: Orders) -> Backend:
    """Processes of this machine, or tasks of a Ray cluster."""
    check_choice("--backend", orders.backend, BACKENDS)
    if orders.backend == "ray":
        from orac.schedule_ray import RayTasks

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
