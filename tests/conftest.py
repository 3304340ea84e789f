"""Under ORAC_REQUIRE_ALL=1 a skipped test is a failed one: green means that all ran."""

import os
from pathlib import Path

import pytest

# Compiling is most of what these tests do; a second run, or a subprocess, reuses it.
CACHE = Path(__file__).parent.parent / ".cache" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

REQUIRE_ALL = os.environ.get("ORAC_REQUIRE_ALL") == "1"


def _forbid_skip(report):
    if REQUIRE_ALL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"Skipped while ORAC_REQUIRE_ALL=1: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _forbid_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _forbid_skip((yield))
