"""Runs as tasks of a Ray cluster; the driving loop is that of `schedule`.

A task starts the very worker process that this machine would start, so results are the
same bits at the same number of threads. Its checkpoints are below `out`, which must be a
path that every node sees. When a node or a Ray worker is lost, Ray begins the task again
elsewhere, and the run goes on from its last checkpoint. Needs the extra `ray`, which is
imported here alone and only when it is used.
"""

import importlib
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orac.experiments.launcher.processes import WORKER, Child
from orac.experiments.launcher.schedule import POLL_SECONDS, Outcome, PlannedRun
from orac.experiments.launcher.worker import Task

RETRIES = 10
"""How often Ray begins a task again after its worker was lost."""


def import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(
            'The backend ray needs Ray: pip install "orac-rl[ray]"'
        ) from error


def supervise(folder: str, task: Task, stop_file: str) -> tuple[str, str]:
    """The body of a Ray task: one worker process, until it ends or all are to stop."""
    child, told = Child(Path(folder), task, WORKER), False
    while (result := child.result()) is None:
        if not told and Path(stop_file).exists():
            told = True
            child.stop()
        time.sleep(POLL_SECONDS)
    return result


class RayTasks:
    """As many tasks at a time as the cluster has processors for, or `jobs` of them."""

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        threads: int = 1,
        trackers: Sequence[str] = (),
    ) -> None:
        """Without an address Ray starts, and ends, a cluster on this machine."""
        self._ray = import_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._ray.init(address=address, log_to_driver=False, logging_level="error")
        self._jobs, self._threads, self._trackers = jobs, threads, trackers
        self._refs: dict[Any, tuple[PlannedRun, float]] = {}
        self._stop_file: Path | None = None

    @property
    def free(self) -> bool:
        known = self._ray.cluster_resources().get("CPU", 1)
        jobs = self._jobs or max(1, int(known) // self._threads)
        return len(self._refs) < jobs

    @property
    def running(self) -> Sequence[PlannedRun]:
        return [run for run, _ in self._refs.values()]

    def start(self, run: PlannedRun) -> None:
        if self._stop_file is None:
            self._stop_file = run.out.resolve() / f"stop-{uuid.uuid4().hex}"
        task = run.task(self._threads, self._trackers)
        remote = self._ray.remote(num_cpus=task.threads, max_retries=RETRIES)(supervise)
        ref = remote.remote(str(run.path.resolve()), task, str(self._stop_file))
        self._refs[ref] = run, time.monotonic()

    def ended(self) -> list[Outcome]:
        found = []
        if not self._refs:
            return found
        ready, _ = self._ray.wait([*self._refs], num_returns=len(self._refs), timeout=0)
        for ref in ready:
            run, started = self._refs.pop(ref)
            try:
                status, error = self._ray.get(ref)
            except self._ray.exceptions.RayError as lost:
                status, error = "failed", str(lost).strip().split("\n")[-1]
            found.append(Outcome(run, status, time.monotonic() - started, error))
        return found

    def stop(self) -> None:
        # Tasks on other machines see the file, and no signal of ours.
        if self._stop_file is not None:
            self._stop_file.touch()

    def close(self) -> None:
        for ref in self._refs:
            self._ray.cancel(ref, force=True)
        if self._stop_file is not None:
            self._stop_file.unlink(missing_ok=True)
        if self._ours:
            self._ray.shutdown()
