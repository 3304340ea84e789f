"""Backend of `schedule` that runs worker processes on this machine.

Choice: one thread per worker. Measured on two cores (`docs/scaling.md`), two workers
with one thread each make 63 to 77 updates per second of the maze's learner, and one worker
with two threads makes 70 to 79. With 256 x 256 networks, two workers make 68 and one worker
makes 64. There is no clear winner. With one thread per worker, the results do not depend on
the number of workers. Host environments, compilation and evaluations of different runs are
executed in parallel too.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orac.experiments.launcher.schedule import Outcome, PlannedRun
from orac.experiments.launcher.worker import FINISHED, OUT_OF_MEMORY, STOPPED
from orac.runs.atomic_io import disk_errors, open_to_write
from orac.runs.machine import count_threads

LAST_BYTES = 10_000
"""Number of bytes at the end of a log that are read to find its last line."""
WORKER = (sys.executable, "-m", "orac.experiments.launcher.worker")


class WorkerProcess:
    """A process that trains one run and writes its output to log.txt in the run directory."""

    def __init__(self, folder: Path, order_json: str, program: Sequence[str]) -> None:
        """Start the program and send it `order_json`, from `PlannedRun.to_order_json`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log.txt"
        with disk_errors(self.log, "write"):
            descriptor = open_to_write(self.log, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "ab") as log:
            # In a new session, Ctrl-C in the terminal reaches only this process, which
            # then closes the worker's input.
            self.process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # If the worker has already died, its log has the reason.
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.write(order_json.encode())
            self.process.stdin.flush()

    def stop(self) -> None:
        """Close the worker's input, so that the worker saves a checkpoint and stops.

        This also works while the worker is still importing modules. At that time, a signal
        would kill the worker or get lost.
        """
        if self.process.stdin is not None:
            # A worker that was killed no longer reads.
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def kill(self) -> None:
        """End the process at once."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.stop()

    def result(self) -> tuple[str, str] | None:
        """Return the status and error message of the process; None while it is running."""
        code = self.process.poll()
        if code is None:
            return None
        self.stop()
        if code == FINISHED:
            return "finished", ""
        if code == STOPPED:
            return "stopped", ""
        if code < 0 or code == OUT_OF_MEMORY:
            cause = " (often: out of memory)" if -code == signal.SIGKILL else ""
            how = f"its process was ended by signal {-code}{cause}"
            if code == OUT_OF_MEMORY:
                how = f"its process was out of memory ({self.log})"
            return "killed", (
                f"{how}; the run continues from its last checkpoint, now or when you run the "
                "same command again"
            )
        with open(self.log, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
            text = log.read().decode(errors="replace")
        lines = [line for line in text.split("\n") if line.strip()]
        last = lines[-1] if lines else "it printed nothing"
        # The traceback of an error of orac itself starts with the module of its class.
        last = re.sub(r"^orac\.[\w.]+: ", "", last)
        return "failed", f"{last} ({self.log})"


class Processes:
    """Backend that runs up to `jobs` worker processes at a time."""

    def __init__(
        self,
        jobs: int | None = None,
        threads: int = 1,
        trackers: Sequence[str] = (),
        program: Sequence[str] = WORKER,
    ) -> None:
        """Run up to `jobs` workers with `threads` threads each.

        By default, there are as many workers as this process has processors for.
        """
        self._jobs = jobs or max(1, count_threads() // threads)
        self._threads, self._trackers, self._program = threads, trackers, program
        self._workers: dict[PlannedRun, tuple[WorkerProcess, float]] = {}

    @property
    def free(self) -> bool:
        return len(self._workers) < self._jobs

    @property
    def running(self) -> Sequence[PlannedRun]:
        return [*self._workers]

    def start(self, run: PlannedRun) -> None:
        order_json = run.to_order_json(run.threads(self._threads), self._trackers)
        worker = WorkerProcess(run.path, order_json, self._program)
        self._workers[run] = worker, time.monotonic()

    def ended(self) -> list[Outcome]:
        outcomes = []
        for run, (worker, started) in [*self._workers.items()]:
            if (result := worker.result()) is not None:
                del self._workers[run]
                seconds = time.monotonic() - started
                outcomes.append(Outcome(run, result[0], seconds, result[1]))
        return outcomes

    def stop(self) -> None:
        for worker, _ in self._workers.values():
            worker.stop()

    def stop_run(self, run: PlannedRun) -> None:
        """Ask the worker of one run to save a checkpoint and stop."""
        self._workers[run][0].stop()

    def close(self) -> None:
        for worker, _ in self._workers.values():
            worker.kill()
        self._workers.clear()
