"""What a run ran on: versions, platform, threads, commit. For `meta.json`.

Bits depend on these: XLA splits sums by the number of threads it may use. Nothing here
writes to disk.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = {
    "orac": "orac-rl",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "numpy": "numpy",
    "optax": "optax",
    "gymnasium": "gymnasium",
}
THREAD_VARIABLES = ("XLA_FLAGS", "NPROC", "OMP_NUM_THREADS")

DECISIVE = ("versions", "machine", "threads", "thread_variables")
"""Fields of which a difference can change the bits of a resumed run."""


def describe_machine() -> dict[str, Any]:
    """Everything about this process that a reader of its results may ask for."""
    return {
        "versions": {
            **{name: _version(package) for name, package in PACKAGES.items()},
            "python": platform.python_version(),
        },
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": count_threads(),
        "thread_variables": {
            name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ
        },
        "commit": _commit(Path(__file__).parent) or _commit(Path.cwd()),
    }


def count_threads() -> int:
    """How many processors this process may use, which is how many threads XLA takes."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of(run_dir: str | os.PathLike[str]) -> int | None:
    """The number of threads a run was started with, if it says."""
    try:
        meta = json.loads((Path(run_dir) / "meta.json").read_text())
    except (OSError, ValueError):
        return None
    return meta.get("threads") if isinstance(meta, dict) else None


def machine_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One sentence for each difference that may change the bits of a resumed run."""
    sentences = []
    for field in DECISIVE:
        old, new = then.get(field), now.get(field)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            names = dict.fromkeys([*old, *new])
            pairs = [(name, old.get(name), new.get(name)) for name in names]
        else:
            pairs = [(field, old, new)]
        sentences += [
            f"The run was started with {name} {_say(was)} and goes on with {_say(is_)}: "
            "it may not end bit-identical to an uninterrupted one."
            for name, was, is_ in pairs
            if was != is_
        ]
    return sentences


def _say(value: Any) -> str:
    return "unset" if value is None else str(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> str | None:
    """The commit of the repository that a folder is in, marked when files were changed."""
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=5,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None
