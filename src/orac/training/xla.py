"""How programs are compiled: options that measured faster, and a cache between processes.

Nothing here changes what is computed beyond the last bits.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import jax

from orac.runs.machine import count_threads

OPTIONS: dict[str, Any] = {
    # XLA's CPU backend hands sums and element-wise work to a library that needs every
    # operand written out; with products alone left to it an update takes half the time.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


@cache
def compiler_options() -> dict[str, Any]:
    """Options for `jax.jit`, or none where the installed XLA does not know them."""
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS)(0.0)
    except Exception:
        return {}
    return OPTIONS


def keep_compiled_programs() -> None:
    """Let JAX cache what it compiles, unless the user has said where or that it must not.

    One folder per number of threads: XLA splits its loops by it, and a program that was
    compiled for another number could give other bits.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = root / "orac" / f"xla-{count_threads()}-threads"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
