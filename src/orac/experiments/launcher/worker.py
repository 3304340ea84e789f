"""One run in a process of its own: begun, or resumed from its last checkpoint.

`python -m orac.experiments.launcher.worker` reads its task as one line of JSON and then keeps
listening: when
whoever started it is gone, its input ends, and it saves and stops. Its processors are its
own (`runs/processors.py`). Knows nothing of tables, grids or clusters.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orac.runs.cpu_affinity import claim_processors

FINISHED, FAILED, STOPPED = 0, 1, 130
"""Exit codes."""
LOCK_SECONDS = 300.0
"""How long to wait for a run that its last process has not given back yet."""


@dataclass(frozen=True)
class Task:
    """What a worker is asked to do; `config` is in dict form."""

    out: str
    name: str
    config: dict[str, Any]
    threads: int = 1
    trackers: tuple[str, ...] = ()

    def to_line(self) -> str:
        return json.dumps(self.__dict__) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Task":
        fields = json.loads(line)
        return cls(**fields | {"trackers": tuple(fields["trackers"])})


def main() -> int:
    """Do the task on standard input; the exit code says how it ended."""
    # A process begun in the background ignores Ctrl-C from birth; this one must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    task, alone = Task.from_line(sys.stdin.readline()), threading.Event()
    claim_processors(task.threads)
    threading.Thread(target=listen, args=(alone,), daemon=True).start()
    try:
        return FINISHED if carry_out(task, alone) else STOPPED
    except KeyboardInterrupt:
        return STOPPED


def listen(alone: threading.Event) -> None:
    """Wait for the end of standard input: whoever began this hung up, or is gone.

    An event and no signal: one that meets an import may be lost on it.
    """
    # The descriptor itself: a buffered stream must not be read while Python shuts down.
    while os.read(0, 1024):
        pass
    alone.set()


def carry_out(task: Task, alone: threading.Event) -> bool:
    """Begin or resume the run until it ends or `alone` is set; whether it came to its end."""
    # Imported late: XLA counts the processors when JAX starts.
    from orac.api import Agent
    from orac.config import serialization as config_text
    from orac.loading import resume
    from orac.runs.directory import run_path
    from orac.training.xla import keep_compiled_programs

    if alone.is_set():
        return False
    keep_compiled_programs()
    config = config_text.from_dict(task.config)
    path = run_path(task.out, config.env.id, config.algo, config.seed, task.name)
    options: dict[str, Any] = {
        "progress_bar": False,
        "trackers": task.trackers,
        "callback": lambda event: not alone.is_set(),
    }
    if (path / "config.yaml").exists():
        agent = _when_free(lambda: resume(path, **options), alone)
    else:
        agent = Agent(config.env.id, config)
        agent.learn(out=task.out, name=task.name, **options)
    agent.close()
    return agent.num_timesteps >= config.training.total_steps


def _when_free(begin: Callable[[], Any], alone: threading.Event) -> Any:
    """A lost worker's process may still be saving: wait for it a while."""
    from orac.runs.directory import RunInUse

    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return begin()
        except RunInUse:
            if time.monotonic() > until:
                raise
            if alone.wait(1):
                raise KeyboardInterrupt from None


if __name__ == "__main__":
    sys.exit(main())
