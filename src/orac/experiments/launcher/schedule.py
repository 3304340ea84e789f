"""Train many runs, several at a time, until all are finished or a time budget is used up.

`run_all` drives a `Backend`: worker processes on this machine (`processes`) or tasks of a
Ray cluster (`ray_cluster`). A run that fails does not stop the others. On Ctrl-C, or at the
end of the time budget, every worker saves a checkpoint and stops. A later call with the
same runs continues from the checkpoints and skips the runs that are finished.
"""

import json
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from orac.config import overrides, serialization
from orac.config.schema import Config
from orac.envs.user_code import ALLOWED_MODULES
from orac.experiments.launcher.worker import FRESH_FILE
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import read_config, run_path, valid_certificate
from orac.runs.machine import threads_of
from orac.runs.progress import Progress, clock_text

POLL_SECONDS = 0.2
PROGRESS_SECONDS = 60.0

Log = Callable[[str], None]
"""Function that prints a line, such as `print`."""


@dataclass(frozen=True)
class PlannedRun:
    """One run to train: its config and its place in the directory tree."""

    label: str
    """Name of the run in messages, without the seed."""
    config: Config
    name: str
    """Name of the directory that contains the directories of the seeds."""
    out: Path
    """Root of the directory tree."""
    certifies: bool = False
    """Whether the delivered policy is certified after training."""
    cost_bound: float | tuple[float, ...] | None = None
    """Maximum cost of an episode, for an environment that does not declare it."""
    fresh_episodes: int = 0
    """Number of fresh episodes of the delivered policy that are played after training and
    summarised in the file `FRESH_FILE`."""
    fresh_seed: int = 0
    """Seed of the fresh episodes."""
    cost_fn: str | None = None
    """Name of the cost function that was given on the command line, so that the worker may
    import it."""

    @property
    def path(self) -> Path:
        config = self.config
        return run_path(self.out, config.env.id, config.algo, config.seed, self.name)

    @property
    def total_steps(self) -> int:
        return self.config.training.total_steps

    def __str__(self) -> str:
        return f"{self.label}, seed {self.config.seed}"

    def is_complete(self) -> bool:
        """Return whether the run is finished and has the requested files.

        A finished run has a checkpoint of its last step. If the run is to be certified, it
        also has a certificate. If it is to play fresh episodes, it also has their summary.
        """
        newest = Checkpoints(self.path / "checkpoints").newest()
        certified = not self.certifies or valid_certificate(self.path) is not None
        played = not self.fresh_episodes or (self.path / FRESH_FILE).is_file()
        finished = newest is not None and newest.step >= self.total_steps
        return finished and certified and played

    def step(self) -> int:
        """Return the step in the last complete row of metrics.csv, or 0 without such a row."""
        try:
            # Without O_NONBLOCK, opening a pipe would wait for a writer.
            descriptor = os.open(self.path / "metrics.csv", os.O_RDONLY | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                file.seek(max(0, file.seek(0, 2) - 20_000))
                rows = file.read().split(b"\n")
            return int(float(rows[-2].split(b",")[0]))
        except (OSError, ValueError, IndexError):
            return 0

    def threads(self, default: int) -> int:
        """Return the number of threads with which the run was started; `default` for a new run."""
        return threads_of(self.path) or default

    def to_order_json(self, threads: int, trackers: Sequence[str]) -> str:
        """Return a line of JSON that tells a worker process what to train."""
        order = {
            "out": str(self.out.resolve()),
            "name": self.name,
            "config": serialization.to_dict(self.config),
            "threads": threads,
            "trackers": [*trackers],
            "imports": sorted(ALLOWED_MODULES),
            "certify": self.certifies,
            "cost_bound": self.cost_bound,
            "fresh_episodes": self.fresh_episodes,
            "fresh_seed": self.fresh_seed,
            "cost_fn": self.cost_fn,
        }
        return json.dumps(order) + "\n"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `status` is "finished", "stopped", "failed" or "killed".

    A stopped run can be continued. A run counts as killed if a signal ended its process, or
    if memory ran out.
    """

    run: PlannedRun
    status: str
    seconds: float = 0.0
    error: str = ""


@runtime_checkable
class Backend(Protocol):
    """Interface of an object that starts and stops workers, each of which trains one run."""

    @property
    def free(self) -> bool:
        """Whether another run can start now."""
        ...

    @property
    def running(self) -> Sequence[PlannedRun]: ...

    def start(self, run: PlannedRun) -> None: ...

    def ended(self) -> list[Outcome]:
        """Return the outcomes of the runs that ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask every worker to save a checkpoint and stop, without waiting for it."""
        ...

    def close(self) -> None:
        """Kill the workers that are still running, without saving."""
        ...


REPEAT_SETTINGS = (
    "Repeat the settings of the existing run, choose another --out, or move the "
    "existing run."
)
"""Advice if a folder already has a run with other settings."""


def check_plan(runs: Sequence[PlannedRun], advice: str = REPEAT_SETTINGS) -> None:
    """Raise a `ValueError` if the directories of the runs conflict.

    Every run needs its own directory. The runs in one folder, including those that are
    already there, must differ only in their seeds, because a table shows them as one row.
    `advice` says what to do if they differ in more.
    """
    planned: dict[Path, PlannedRun] = {}
    on_disk: dict[Path, dict[Path, Config]] = {}
    for run in runs:
        if (other := planned.setdefault(run.path, run)) is not run:
            raise ValueError(
                f"every run needs its own directory, but {other} and {run} both use "
                f"{run.path}. Give them different names or seeds."
            )
        folder = run.path.parent
        if folder not in on_disk:
            on_disk[folder] = {
                path: serialization.from_dict(read_config(path))
                for path in run_directories(folder)
            }
        check_same_settings(str(run), run.config, on_disk[folder], advice)


def run_directories(folder: Path) -> list[Path]:
    """Return the directories of the runs in a folder, in the order of their seeds."""
    return sorted(path.parent for path in folder.glob("seed-*/config.yaml"))


def check_same_settings(
    subject: str,
    config: Config,
    others: Mapping[Path, Config],
    advice: str = REPEAT_SETTINGS,
) -> None:
    """Raise a `ValueError` if a config differs from others in more than the seed.

    `subject` names the run with this config in the message. `others` has the configs of other
    runs by their paths.
    """
    for path, other in others.items():
        changes = overrides.difference(config, replace(other, seed=config.seed))
        if changes:
            name, (ours, theirs) = next(iter(changes.items()))
            fields = f"{len(changes)} fields, such as " if len(changes) > 1 else ""
            if [*changes] == ["training.total_steps"] and ours > theirs:
                from orac.api.environments import run_arguments

                command = f"orac resume {run_arguments(path, other)}"
                advice += f" To train it further, type: {command} --total-steps {ours}"
            raise ValueError(
                f"{path} holds other settings than {subject} ({fields}{name}: {theirs} "
                f"there, {ours} here), but runs in one folder must differ only in their "
                f"seed. {advice}"
            )


def run_all(
    runs: Sequence[PlannedRun],
    backend: Backend,
    budget_seconds: float = math.inf,
    log: Log = print,
    signals: list[int] | None = None,
    bar: Progress | None = None,
    when_finished: Callable[[PlannedRun], None] = lambda run: None,
) -> list[Outcome]:
    """Train all runs that are not finished, and return the outcomes in the order of `runs`.

    A run whose process is killed is started once more from its last checkpoint. If this call
    is inside `with stop_signals()`, `signals` is the list that it yields. The progress is
    shown by `bar`, or logged if `bar` is None. `when_finished` is called first with the runs
    that were finished before, and then with every run as soon as it is finished.
    """
    check_plan(runs)
    outcomes = [Outcome(run, "finished") for run in runs if run.is_complete()]
    done = {outcome.run.path for outcome in outcomes}
    waiting = deque(run for run in runs if run.path not in done)
    if outcomes:
        log(f"{len(outcomes)} of {len(runs)} runs are finished already.")
    for outcome in outcomes:
        when_finished(outcome.run)
    progress = ProgressLog([*waiting], log) if bar is None else ProgressBar(runs, bar)
    started, stopping = time.monotonic(), ""
    killed: set[Path] = set()
    with stop_signals() if signals is None else nullcontext(signals) as received:
        try:
            while backend.running or (waiting and not stopping):
                if not stopping:
                    over = time.monotonic() - started >= budget_seconds
                    stopping = (
                        "interrupted" if received else "time budget used up" * over
                    )
                    if stopping:
                        again = " Ctrl-C again stops them without saving."
                        log(
                            f"Stopping ({stopping}). Each worker first saves a "
                            f"checkpoint.{again * bool(received)}"
                        )
                        backend.stop()
                while waiting and not stopping and backend.free:
                    run = waiting.popleft()
                    step = run.step()
                    log(f"started   {run}{f' at step {step:,}' if step else ''}")
                    backend.start(run)
                for outcome in backend.ended():
                    log(outcome_line(outcome))
                    run = outcome.run
                    again = outcome.status == "killed" and run.path not in killed
                    if again and not stopping:
                        killed.add(run.path)
                        waiting.appendleft(run)
                    else:
                        outcomes.append(outcome)
                        if outcome.status == "finished":
                            when_finished(run)
                if not (stopping and backend.running):
                    progress.update(backend.running, outcomes)
                time.sleep(POLL_SECONDS)
        finally:
            backend.close()
    outcomes += [Outcome(run, "stopped") for run in waiting]
    order = {run.path: i for i, run in enumerate(runs)}
    return sorted(outcomes, key=lambda outcome: order[outcome.run.path])


def outcome_line(outcome: Outcome) -> str:
    """Return one line about a run that ended."""
    run = outcome.run
    line = f"{outcome.status:<9} {run}"
    if outcome.status == "stopped":
        step = run.step()
        line += f" at step {step:,} of {run.total_steps:,}" if step else " at its start"
    line += f", {clock_text(outcome.seconds)}"
    return f"{line}: {outcome.error}" if outcome.error else line


class ProgressLog:
    """Logs one line every minute: the progress of the runs, the speed and the time left."""

    def __init__(self, unfinished: Sequence[PlannedRun], log: Log) -> None:
        self._unfinished, self._log = unfinished, log
        self._started = self._last_line = time.monotonic()
        self._first_steps = {run.path: run.step() for run in unfinished}

    def update(
        self, running: Sequence[PlannedRun], outcomes: Sequence[Outcome]
    ) -> None:
        """Log the line if it is due."""
        now = time.monotonic()
        if now - self._last_line < PROGRESS_SECONDS:
            return
        self._last_line = now
        steps = {run.path: run.step() for run in self._unfinished}
        made = sum(steps[path] - first for path, first in self._first_steps.items())
        left = sum(max(0, r.total_steps - steps[r.path]) for r in self._unfinished)
        rate = made / (now - self._started)
        shown = ", ".join(
            f"{run} at {steps[run.path] / run.total_steps:.0%}" for run in running
        )
        statuses = [outcome.status for outcome in outcomes]
        killed = statuses.count("killed")
        line = (
            f"{statuses.count('finished')} finished, {statuses.count('failed')} failed, "
            f"{f'{killed} killed, ' if killed else ''}running: {shown or 'none'}"
        )
        if rate > 0:
            line += f"; {rate:,.0f} steps/s, about {clock_text(left / rate)} left"
        self._log(line)


class ProgressBar:
    """Shows the steps of all runs together in one bar, and the progress of each run."""

    def __init__(self, runs: Sequence[PlannedRun], bar: Progress) -> None:
        self._runs, self._bar = runs, bar
        self._shown_at = -math.inf

    def update(
        self, running: Sequence[PlannedRun], outcomes: Sequence[Outcome]
    ) -> None:
        """Show the progress, at most once per second while runs are running."""
        now = time.monotonic()
        if running and now - self._shown_at < 1:
            return
        self._shown_at = now
        # The last round of the parallel environments may go beyond the total.
        steps = [min(run.step(), run.total_steps) for run in self._runs]
        shown = {
            f"seed {run.config.seed}": f"{step / run.total_steps:.0%}"
            for run, step in zip(self._runs, steps, strict=True)
        }
        self._bar.update(sum(steps), shown)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect the signals SIGINT and SIGTERM in a list, instead of ending the process.

    A Ctrl-C after another signal raises KeyboardInterrupt.
    """
    received: list[int] = []

    def receive(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    previous = {s: signal.signal(s, receive) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
