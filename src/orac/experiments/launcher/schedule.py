"""Many runs, several at a time: which are left, who does them, and when to stop.

The same loop drives processes of this machine (`processes`) and a Ray cluster
(`schedule_ray`). A run that fails does not stop the others. Ctrl-C, or the end of the
budget, lets every worker save; the same call later goes on from there, and finished runs
are skipped. Knows nothing of what the runs are for.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.experiments.launcher.worker import Task
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import read_config, run_path
from orac.runs.machine import threads_of

POLL_SECONDS = 0.2
SUMMARY_SECONDS = 60.0


@dataclass(frozen=True)
class PlannedRun:
    """One run to be made, and where: `name` is that of its directory."""

    label: str
    """For people, without the seed."""
    config: Config
    name: str
    out: Path

    @property
    def path(self) -> Path:
        config = self.config
        return run_path(self.out, config.env.id, config.algo, config.seed, self.name)

    @property
    def total(self) -> int:
        return self.config.training.total_steps

    def __str__(self) -> str:
        return f"{self.label}, seed {self.config.seed}"

    def is_finished(self) -> bool:
        """Whether its last checkpoint is that of its last step."""
        steps = Checkpoints(self.path / "checkpoints").steps()
        return bool(steps) and steps[-1] >= self.total

    def step(self) -> int:
        """How far it is, by the last whole row of its metrics."""
        try:
            with open(self.path / "metrics.csv", "rb") as file:
                file.seek(max(0, file.seek(0, 2) - 20_000))
                rows = file.read().split(b"\n")
            return int(float(rows[-2].split(b",")[0]))
        except (OSError, ValueError, IndexError):
            return 0

    def task(self, threads: int, trackers: Sequence[str]) -> Task:
        """What to ask a worker for; a run keeps the threads that it began with."""
        threads = threads_of(self.path) or threads
        out, plain = str(self.out.resolve()), config_text.to_dict(self.config)
        return Task(out, self.name, plain, threads, tuple(trackers))


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, stopped (it can go on) or failed (`error` says why)."""

    run: PlannedRun
    status: str
    seconds: float = 0.0
    error: str = ""


@runtime_checkable
class Backend(Protocol):
    """Whoever does the runs."""

    @property
    def free(self) -> bool:
        """Whether another run may start now."""
        ...

    @property
    def running(self) -> Sequence[PlannedRun]: ...

    def start(self, run: PlannedRun) -> None: ...

    def ended(self) -> list[Outcome]:
        """Runs that ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask every worker to save and stop; they end soon after."""
        ...

    def close(self) -> None:
        """End what still runs, at once."""
        ...


def check_plan(runs: Sequence[PlannedRun]) -> None:
    """Refuse two runs in one place, and a place beside runs of other settings.

    Runs that differ in their seed alone are neighbours; others would be one row of a table.
    """
    seen: dict[Path, PlannedRun] = {}
    there: dict[Path, dict[Path, Config]] = {}
    for run in runs:
        if seen.setdefault(run.path, run) is not run:
            raise ValueError(
                f"runs must have places of their own, but {seen[run.path]} and {run} "
                f"both go to {run.path}. Give them different names or seeds."
            )
        folder = run.path.parent
        if folder not in there:
            there[folder] = _configs_below(folder)
        for path, config in there[folder].items():
            _check_alike(run, path, replace(config, seed=run.config.seed))


def _configs_below(folder: Path) -> dict[Path, Config]:
    paths = sorted(path.parent for path in folder.glob("seed-*/config.yaml"))
    return {path: config_text.from_dict(read_config(path)) for path in paths}


def _check_alike(run: PlannedRun, path: Path, there: Config) -> None:
    changes = config_text.difference(run.config, there)
    if changes:
        name, (ours, theirs) = next(iter(changes.items()))
        more = f" and {len(changes) - 1} fields more" if len(changes) > 1 else ""
        raise ValueError(
            f"{path} holds a run with {name} {theirs}, and {ours} is asked for{more}. "
            "Repeat the settings it was begun with, or choose another --out."
        )


def run_all(
    runs: Sequence[PlannedRun],
    backend: Backend,
    budget_seconds: float = math.inf,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Do all runs that are not finished yet; how each of them ended, in their order."""
    check_plan(runs)
    outcomes = [Outcome(run, "finished") for run in runs if run.is_finished()]
    done = {outcome.run.path for outcome in outcomes}
    waiting = deque(run for run in runs if run.path not in done)
    if outcomes:
        say(f"{len(outcomes)} of {len(runs)} runs are finished already.")
    summary = Summary([*waiting], say, clock)
    started, stopping = clock(), ""
    with stop_signals() as asked:
        try:
            while backend.running or (waiting and not stopping):
                if not stopping:
                    over = clock() - started >= budget_seconds
                    stopping = "asked to" if asked else "budget used" if over else ""
                    if stopping:
                        say(f"Stopping ({stopping}): every worker saves first.")
                        backend.stop()
                while waiting and not stopping and backend.free:
                    run = waiting.popleft()
                    begun = run.step()
                    say(f"started   {run}{f' at step {begun:,}' if begun else ''}")
                    backend.start(run)
                for outcome in backend.ended():
                    outcomes.append(outcome)
                    say(describe(outcome))
                summary.update(backend.running, outcomes)
                time.sleep(POLL_SECONDS)
        finally:
            backend.close()
    outcomes += [Outcome(run, "stopped") for run in waiting]
    place = {run.path: i for i, run in enumerate(runs)}
    return sorted(outcomes, key=lambda outcome: place[outcome.run.path])


def describe(outcome: Outcome) -> str:
    """One line about a run that ended."""
    line = f"{outcome.status:<9} {outcome.run}"
    if outcome.status == "stopped":
        line += f" at step {outcome.run.step():,} of {outcome.run.total:,}"
    line += f", {clock_text(outcome.seconds)}"
    return f"{line}: {outcome.error}" if outcome.error else line


def clock_text(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


class Summary:
    """How far everything is, in a line every minute."""

    def __init__(
        self,
        left: Sequence[PlannedRun],
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._left, self._say, self._clock = left, say, clock
        self._began = self._told = clock()
        self._before = {run.path: run.step() for run in left}

    def update(self, running: Sequence[PlannedRun], ended: Sequence[Outcome]) -> None:
        now = self._clock()
        if now - self._told < SUMMARY_SECONDS:
            return
        self._told = now
        at = {run.path: run.step() for run in self._left}
        made = sum(at[path] - before for path, before in self._before.items())
        todo = sum(max(0, run.total - at[run.path]) for run in self._left)
        rate = made / (now - self._began)
        shown = ", ".join(f"{run} at {at[run.path] / run.total:.0%}" for run in running)
        counts = [o.status for o in ended]
        told = f"{counts.count('finished')} finished, {counts.count('failed')} failed"
        told += f", running: {shown or 'none'}"
        if rate > 0:
            told += f"; {rate:,.0f} steps/s, about {clock_text(todo / rate)} left"
        self._say(told)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM is noted in the list; the second Ctrl-C is as usual."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
