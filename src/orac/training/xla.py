"""Compiler options that make updates faster, and the compilation cache."""

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
"""Largest size of the compilation cache; a run needs about 10 MB of it."""
OPTIONS: dict[str, Any] = {
    # XLA's CPU backend gives sums and element-wise work to a library that needs every
    # operand in memory. With only products left to it, an update takes half the time.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


@cache
def compiler_options() -> dict[str, Any]:
    """Return options for `jax.jit`, or none if the installed XLA does not have them."""
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS)(0.0)
    except Exception:
        return {}
    return OPTIONS


def keep_compiled_programs() -> None:
    """Turn on JAX's compilation cache, unless the user has configured it.

    `ORAC_CACHE=off` leaves it off. Only the user may have access to the folder; otherwise
    the cache stays off with a message. There is one folder per number of threads: XLA
    splits its loops by that number, so a program compiled for another number could give
    other bits.
    """
    chosen = getattr(jax.config, "jax_compilation_cache_dir", None)
    if chosen or not cache_is_wanted():
        return
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "orac"
    folder = root / f"xla-{count_threads()}-threads"
    # The cache holds machine code, which only the user may be able to put there.
    if not (private_directory(root) and private_directory(folder)):
        print(
            f"The compilation cache is off, because {folder} is not a folder that only you "
            "can write to. Delete it, or set XDG_CACHE_HOME.",
            file=sys.stderr,
        )
        return
    remove_incomplete(folder)
    # JAX then locks the folder while it reads or writes, so that processes can share it,
    # and deletes the programs that were not used for the longest time.
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # JAX decides at the first compilation whether there is a cache; let it decide again.
    compilation_cache.reset_cache()


def cache_is_wanted() -> bool:
    """Return whether the environment variables allow orac to set up the cache."""
    setting = os.environ.get("ORAC_CACHE", "on")
    check_choice("ORAC_CACHE", setting, ("on", "off"))
    return setting == "on" and "JAX_COMPILATION_CACHE_DIR" not in os.environ


def remove_incomplete(folder: Path) -> None:
    """Delete programs that a process which was killed had not finished writing.

    JAX writes the time of a program's last use after the program, and cannot delete old
    programs if such a time is missing.
    """
    with suppress(OSError), FileLock(folder / ".lockfile", timeout=10):
        for program in folder.glob("*-cache"):
            used = program.with_name(program.name.removesuffix("-cache") + "-atime")
            if not used.exists() or used.stat().st_size != 8:
                program.unlink(missing_ok=True)
                used.unlink(missing_ok=True)
