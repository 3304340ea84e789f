"""Worker processes of this machine, as a backend of `schedule`.

Choice: one thread a worker. Measured on two cores (`benchmarks/seeds.py`), two workers
with a thread each make 63 to 77 updates a second of the maze's learner, one worker with
both threads 70 to 79; with 256 x 256 networks it is 68 against 64. With no clear winner,
one thread it is: results then do not depend on how many workers there are, and what is
not an update (host environments, compilation, evaluation) runs side by side too.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orac.experiments.launcher.schedule import Outcome, PlannedRun
from orac.experiments.launcher.worker import FINISHED, STOPPED, Task
from orac.runs.machine import count_threads

WORKER = (sys.executable, "-m", "orac.experiments.launcher.worker")


class Child:
    """A worker process that does one run; its words go to log.txt beside the run."""

    def __init__(self, folder: Path, task: Task, program: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log.txt"
        with open(self.log, "ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches us alone, and we hang up.
            self.process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # A worker that died at once says why in its log.
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.write(task.to_line().encode())
            self.process.stdin.flush()

    def stop(self) -> None:
        """Hang up: a worker that is left alone saves and stops, also one that just starts.

        A signal would end one that does not listen yet, or be lost on it.
        """
        self._hang_up()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._hang_up()

    def result(self) -> tuple[str, str] | None:
        """Status and error once it has ended."""
        code = self.process.poll()
        if code is None:
            return None
        self._hang_up()
        if code == FINISHED:
            return "finished", ""
        if code == STOPPED:
            return "stopped", ""
        if code < 0:
            return "failed", (
                f"its process was killed by signal {-code}; the same command goes on "
                "from its last checkpoint"
            )
        return "failed", f"{last_line(self.log)} ({self.log})"

    def _hang_up(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


def last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").split("\n") if file.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Processes:
    """Worker processes of this machine, as many at a time as there are processors."""

    def __init__(
        self,
        jobs: int | None = None,
        threads: int = 1,
        trackers: Sequence[str] = (),
        program: Sequence[str] = WORKER,
    ) -> None:
        """`threads` are a worker's; without `jobs`, processors are shared out by it."""
        self._jobs = jobs or max(1, count_threads() // threads)
        self._threads, self._trackers, self._program = threads, trackers, program
        self._children: dict[PlannedRun, tuple[Child, float]] = {}

    @property
    def free(self) -> bool:
        return len(self._children) < self._jobs

    @property
    def running(self) -> Sequence[PlannedRun]:
        return [*self._children]

    def start(self, run: PlannedRun) -> None:
        task = run.task(self._threads, self._trackers)
        child = Child(run.path, task, self._program)
        self._children[run] = child, time.monotonic()

    def ended(self) -> list[Outcome]:
        found = []
        for run, (child, started) in [*self._children.items()]:
            result = child.result()
            if result is not None:
                del self._children[run]
                found.append(
                    Outcome(run, result[0], time.monotonic() - started, result[1])
                )
        return found

    def stop(self) -> None:
        for child, _ in self._children.values():
            child.stop()

    def close(self) -> None:
        for child, _ in self._children.values():
            child.kill()
        self._children.clear()
