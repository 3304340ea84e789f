"""Describe the computer of a run for `meta.json`, claim processors and check the memory.

The bits of a result depend on the machine and on the versions of packages. They also depend
on the number of threads, because XLA splits a sum into parts according to the number of
processors that a process may use. A run whose number of threads is fixed, such as a run of a
study, claims processors by locking one file per processor. So two such runs of one user do
not share a processor while there is an idle one.
"""

import json
import os
import platform
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from orac.config.reading import read_text
from orac.config.validation import check_count, check_range
from orac.runs.atomic_io import open_to_write, private_directory, try_lock

MAX_PROCESSES = 10_000
"""Maximum number of processes, and of threads of a process, that a command may start."""
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "gymnasium")
MAX_META_BYTES = 1 << 20
THREAD_VARIABLES = ("XLA_FLAGS", "NPROC", "OMP_NUM_THREADS")

REPRODUCIBILITY_FIELDS = ("versions", "machine", "threads", "thread_variables")
"""Fields of meta.json that can change the bits of a resumed run if they differ."""


def count_threads() -> int:
    """Return how many processors this process may use. XLA starts as many threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


PROCESSORS_AT_START = count_threads()
"""Number of processors that this process could use before it claimed some of them."""


def describe_machine() -> dict[str, Any]:
    """Describe this process: versions, platform, processor, threads and commit."""
    return {
        "versions": {
            "orac": _version("orac-rl"),
            **{name: _version(name) for name in PACKAGES},
            "python": platform.python_version(),
        },
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": processor_name(),
        "cpu_count": os.cpu_count(),
        "usable_cpus": PROCESSORS_AT_START,
        "threads": count_threads(),
        "thread_variables": {
            name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ
        },
        "commit": _commit(Path(__file__).parent) or _commit(Path.cwd()),
    }


def machine_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare the machine at the start of a run (`then`) with the present machine (`now`).

    Returns one sentence per difference that may change the bits of the resumed run.
    """
    sentences = []
    for field in REPRODUCIBILITY_FIELDS:
        old, new = then.get(field), now.get(field)
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            old, new = {field: old}, {field: new}
        for name in {**old, **new}:
            values = (old.get(name), new.get(name))
            if values[0] != values[1]:
                was, is_now = ("unset" if v is None else v for v in values)
                sentences.append(
                    f"The run was started with {name} {was} and continues with {is_now}: "
                    "its results may not be bit-identical to those of an uninterrupted run."
                )
    return sentences


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> str | None:
    """Return the commit of a folder's repository; it ends in -dirty if files were changed.

    Returns None if git does not find a repository.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        options: Any = {"capture_output": True, "text": True, "timeout": 5}
        run = subprocess.run(command, cwd=folder, **options)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None


def processor_name() -> str | None:
    """Return the name of the processor, or None if the system does not report it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def check_resources(jobs: int | None, threads: int, budget_hours: float) -> None:
    """Raise an error if `--jobs`, `--threads` or `--budget` is out of range."""
    if jobs is not None:
        check_count("--jobs", jobs, high=MAX_PROCESSES)
    check_count("--threads", threads, high=MAX_PROCESSES)
    advice = "It is a number of hours. Leave it out to run to the end."
    # An infinite budget is valid.
    hours = min(budget_hours, 1e9)
    check_range("--budget", hours, 0, open_low=True, advice=advice)


def threads_of(run_dir: str | os.PathLike[str]) -> int | None:
    """Return the number of threads with which a run was started, or None if unknown."""
    try:
        meta = json.loads(read_text(Path(run_dir) / "meta.json", MAX_META_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    threads = meta.get("threads") if isinstance(meta, dict) else None
    return threads if type(threads) is int and threads > 0 else None


def limit_threads(threads: int | None) -> None:
    """Use at most this many processors; None means no limit. Call this before JAX starts.

    A run that was started with fewer threads can then compute the same bits when it resumes.
    """
    if threads and threads < count_threads():
        claim_processors(threads)


def claim_processors(threads: int, folder: Path | None = None) -> list[int]:
    """Use only `threads` processors, if possible those that no other run has claimed.

    Returns the numbers of these processors. The kernel releases a claim however the process
    ends. If too few processors are free, busy ones are shared evenly. On systems without
    CPU affinity (macOS), nothing is done and the list is empty.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    folder = folder or Path(tempfile.gettempdir()) / f"orac-processors-{os.getuid()}"
    # All users can write to the system's temporary folder, so the folder in it must be
    # private.
    claimable = allowed if private_directory(folder) else []
    chosen = []
    for processor in claimable:
        if len(chosen) == threads:
            break
        # The descriptor of a claimed file stays open until the process ends.
        descriptor = open_to_write(folder / str(processor), os.O_RDWR)
        if try_lock(descriptor):
            chosen.append(processor)
        else:
            os.close(descriptor)
    # Processes start at different busy processors, so that all are shared evenly.
    start = os.getpid() % len(allowed)
    busy = [p for p in allowed[start:] + allowed[:start] if p not in chosen]
    chosen += busy[: threads - len(chosen)]
    os.sched_setaffinity(0, chosen)
    return sorted(chosen)


class MemoryNeed(NamedTuple):
    """Bytes of memory that one setting of a run needs."""

    setting: str
    value: Any
    num_bytes: int


def check_memory(needs: Sequence[MemoryNeed], available: int | None = None) -> None:
    """Raise an error, before anything is allocated, if a run does not fit into memory.

    The error names the setting that needs most. If its value is a whole number, the error
    also gives the largest value that fits.
    """
    available = available_memory() if available is None else available
    total = sum(need.num_bytes for need in needs)
    if available is None or total <= available:
        return
    most = max(needs, key=lambda need: need.num_bytes)
    left = available - (total - most.num_bytes)
    advice = "Lower it."
    if isinstance(most.value, int) and left > 0:
        # The value is rounded down to two digits, because the estimate is not more precise.
        fitting = most.value * left // most.num_bytes
        unit = 10 ** max(0, len(str(fitting)) - 2)
        advice = f"About {fitting // unit * unit:,} would fit."
    raise ValueError(
        f"{most.setting} of {most.value} needs {_gigabytes(most.num_bytes)} of memory, and "
        f"the run {_gigabytes(total)} in all, but only {_gigabytes(available)} are free. "
        f"{advice}"
    )


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"


def available_memory() -> int | None:
    """Return the bytes that this process can still allocate, or None if unknown."""
    limits = []
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(1024 * int(line.split()[1]))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        limits.append(limit - int((group / "memory.current").read_text()))
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY:
        limits.append(allowed)
    return max(0, min(limits)) if limits else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that Python or the device of JAX is out of memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
