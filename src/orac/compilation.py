"""Keep compiled programs between processes: a resumed run starts in seconds."""

import os
from pathlib import Path

from orac.runs.machine import count_threads


def keep_compiled_programs() -> None:
    """Let JAX cache what it compiles, unless the user has said where or that it must not.

    One folder per number of threads: XLA splits its loops by it, and a program that was
    compiled for another number could give other bits.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = root / "orac" / f"xla-{count_threads()}-threads"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
