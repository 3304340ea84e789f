"""Set compiler options that make updates faster, and turn on the compilation cache."""

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
from filelock import FileLock
from jax.experimental.compilation_cache import compilation_cache

from orac.config.validation import check_choice
from orac.runs.atomic_io import private_directory
from orac.runs.machine import count_threads

CACHE_BYTES = 1 << 30
"""Maximum size of the compilation cache; the programs of a run need about 10 MB."""
OPTIONS: dict[str, Any] = {
    # By default, XLA's CPU backend gives sums and element-wise operations to a library that
    # needs every operand in memory. If the library gets only matrix products, an update
    # takes half the time.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


@cache
def compiler_options() -> dict[str, Any]:
    """Return options for `jax.jit`, or {} if the installed XLA does not have them."""
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS)(0.0)
    except Exception:
        return {}
    return OPTIONS


def enable_compilation_cache() -> None:
    """Turn on JAX's compilation cache, unless the user has configured it.

    `ORAC_CACHE=off` leaves the cache off. The cache also stays off, with a message, if its
    folder cannot be made or other users can write to it. There is one folder per number of
    threads: XLA splits loops by the number of threads, so a program that was compiled for
    another number could round differently.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    setting = os.environ.get("ORAC_CACHE", "on")
    check_choice("ORAC_CACHE", setting, ("on", "off"))
    if setting == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "orac"
    folder = root / f"xla-{count_threads()}-threads"
    # The cache contains machine code, so nobody else may be able to write to the folder.
    if not (private_directory(root) and private_directory(folder)):
        print(
            f"The compilation cache is off, because {folder} is not a folder that only you "
            f"can write to. Delete {root}, or set XDG_CACHE_HOME to another folder.",
            file=sys.stderr,
        )
        return
    remove_incomplete(folder)
    # If there is a maximum size, JAX locks the folder while it reads or writes, so that
    # processes can share it. JAX then also deletes the programs that were not used for the
    # longest time.
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # JAX decides at the first compilation whether to use a cache. This resets the decision.
    compilation_cache.reset_cache()


def remove_incomplete(folder: Path) -> None:
    """Delete programs that were not written completely because a process was killed.

    JAX first writes a program, and then a second file with the time of its last use. If a
    second file is missing, JAX cannot delete old programs.
    """
    with suppress(OSError), FileLock(folder / ".lockfile", timeout=10):
        for program in folder.glob("*-cache"):
            used = program.with_name(program.name.removesuffix("-cache") + "-atime")
            if not used.exists() or used.stat().st_size != 8:
                program.unlink(missing_ok=True)
                used.unlink(missing_ok=True)
