"""Processors of one's own: XLA takes as many threads as a process may use processors.

One is claimed by locking a file, so that two runs of one machine do not share one while
another is idle, whoever started them.
"""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orac.runs.machine import count_threads


def limit_threads(threads: int | None) -> None:
    """Use so many processors from here on, where there are more; before JAX starts.

    A run that began on fewer threads is then resumed with the same bits.
    """
    if threads and threads < count_threads():
        claim_processors(threads)


def claim_processors(threads: int, folder: Path | None = None) -> list[int]:
    """Use `threads` processors that no other run of this machine claims, if there are.

    The kernel gives a claim back however the process ends. A machine with too few free
    processors gives busy ones; one without affinities (macOS) is left as it is.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    folder = folder or Path(tempfile.gettempdir()) / f"orac-processors-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    chosen = []
    for processor in allowed:
        if len(chosen) < threads and _lock(folder / str(processor)):
            chosen.append(processor)
    chosen += [p for p in _rotated(allowed) if p not in chosen][: threads - len(chosen)]
    os.sched_setaffinity(0, chosen)
    return sorted(chosen)


def _lock(file: Path) -> bool:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def _rotated(processors: Sequence[int]) -> list[int]:
    """From a place that differs between processes: the busy ones are shared evenly."""
    start = os.getpid() % len(processors)
    return [*processors[start:], *processors[:start]]
