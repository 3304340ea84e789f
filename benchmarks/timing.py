"""Medians of repeated runs, compile time apart."""

import statistics
import time
from collections.abc import Callable


def median_ms(call: Callable[[], object], repeats: int = 9, calls: int = 20) -> float:
    """Milliseconds per call: the median over repeats of the mean over calls."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - started) / calls * 1e3)
    return statistics.median(times)
