"""Delete compiled programs before a process of the tests has too many of them."""

import sys
from pathlib import Path

STATUS, MAX_BYTES = Path("/proc/self/statm"), 2_500_000_000
MAPS, MAX_MAPS = Path("/proc/self/maps"), 30_000
"""A compiled program has several memory maps, and Linux allows 65,530 of them by default."""
PAGE = 4096


def drop_compiled_programs():
    """Clear JAX's caches if this process has much memory or many memory maps."""
    if not STATUS.exists() or "jax" not in sys.modules:
        return
    resident = int(STATUS.read_text().split()[1]) * PAGE
    if resident > MAX_BYTES or MAPS.read_bytes().count(b"\n") > MAX_MAPS:
        sys.modules["jax"].clear_caches()
