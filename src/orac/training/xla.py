"""Compiler options that make updates faster, and the compilation cache."""

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax

from orac.runs.atomic_io import private_directory
from orac.runs.machine import count_threads

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

    Only the user may have access to the folder; otherwise the cache stays off with a
    message. There is one folder per number of threads: XLA splits its loops by that number,
    so a program compiled for another number could give other bits.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "orac"
    folder = root / f"xla-{count_threads()}-threads"
    # The cache holds machine code, which only the user may be able to put there.
    if not (private_directory(root) and private_directory(folder)):
        print(
            f"Programs are compiled anew each time, because {folder} does not belong to "
            "you alone. Delete it, or set XDG_CACHE_HOME.",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
