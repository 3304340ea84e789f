"""Backend of `schedule` that runs the workers as tasks of a Ray cluster.

A task starts the same worker process as `processes.py`. So on the same kind of machine and with
the same number of threads, the two backends give bit-identical results. Checkpoints are
written below `out`, which must be a path that every node can reach. If a node or a Ray
worker is lost, Ray starts the task again, and the run continues from its last
checkpoint. Ray is an optional dependency (extra `ray`) and is imported only when this backend
is used.
"""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orac.config.validation import import_extra
from orac.experiments.launcher.processes import WORKER, WorkerProcess
from orac.experiments.launcher.schedule import POLL_SECONDS, Outcome, PlannedRun

RETRIES = 10
"""Maximum number of times that Ray starts a task again after its Ray worker was lost."""


def supervise(folder: str, order_json: str, stop_file: str) -> tuple[str, str]:
    """Run one worker process inside a Ray task; stop it when `stop_file` appears.

    Returns the status of the run and its error message.
    """
    worker, stopping = WorkerProcess(Path(folder), order_json, WORKER), False
    while (result := worker.result()) is None:
        if not stopping and Path(stop_file).exists():
            stopping = True
            worker.stop()
        time.sleep(POLL_SECONDS)
    return result


class RayTasks:
    """Backend that runs `jobs` tasks at a time, by default as many as fit on the cluster."""

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        threads: int = 1,
        trackers: Sequence[str] = (),
    ) -> None:
        """Connect to the cluster at `address`.

        With None, Ray looks for a cluster (`RAY_ADDRESS`, or one that `ray start` started
        here), and starts one on this machine if there is none. If Ray is already
        initialised in this process, its cluster is used.
        """
        self._ray = import_extra("The backend ray", "ray", "ray")
        self._started_ray = not self._ray.is_initialized()
        if self._started_ray:
            self._ray.init(address=address, log_to_driver=False, logging_level="error")
        self._jobs, self._threads, self._trackers = jobs, threads, trackers
        self._tasks: dict[Any, tuple[PlannedRun, float]] = {}
        self._stop_file: Path | None = None

    @property
    def free(self) -> bool:
        processors = self._ray.cluster_resources().get("CPU", 1)
        jobs = self._jobs or max(1, int(processors) // self._threads)
        return len(self._tasks) < jobs

    @property
    def running(self) -> Sequence[PlannedRun]:
        return [run for run, _ in self._tasks.values()]

    def start(self, run: PlannedRun) -> None:
        if self._stop_file is None:
            self._stop_file = run.out.resolve() / f"stop-{uuid.uuid4().hex}"
        threads = run.threads(self._threads)
        order_json = run.to_order_json(threads, self._trackers)
        remote = self._ray.remote(num_cpus=threads, max_retries=RETRIES)(supervise)
        task = remote.remote(str(run.path.resolve()), order_json, str(self._stop_file))
        self._tasks[task] = run, time.monotonic()

    def ended(self) -> list[Outcome]:
        if not self._tasks:
            return []
        tasks, outcomes = [*self._tasks], []
        ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        for task in ready:
            run, started = self._tasks.pop(task)
            try:
                status, error = self._ray.get(task)
            except self._ray.exceptions.RayError as lost:
                status, error = "failed", str(lost).strip().split("\n")[-1]
            outcomes.append(Outcome(run, status, time.monotonic() - started, error))
        return outcomes

    def stop(self) -> None:
        # Tasks on other machines cannot receive a signal, but they can see a file.
        if self._stop_file is not None:
            self._stop_file.touch()

    def close(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task, force=True)
        if self._stop_file is not None:
            self._stop_file.unlink(missing_ok=True)
        if self._started_ray:
            self._ray.shutdown()
