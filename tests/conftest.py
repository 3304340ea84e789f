"""Hooks and fixtures of all tests.

With ORAC_REQUIRE_ALL=1, a skipped test counts as failed, so that success means that all tests
ran. The fixtures build the wheel and virtual environments with it. This takes long, so each
is made once.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.memory import drop_compiled_programs

ROOT = Path(__file__).parent.parent
# Most of the tests' time is spent on compiling. Later runs, subprocesses and other checkouts of
# the same user reuse the compiled programs. Small programs are saved too, because a test can
# have a hundred of them. `make clean` deletes the programs.
CACHE = Path.home() / ".cache" / "orac-tests" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

LONGEST = """
test_docs_run.py training/test_probes.py training/test_resume.py test_golden.py
training/test_pendulum.py training/test_safety_commands.py test_signals.py
experiments/test_run_study.py training/test_continue.py training/test_device_loop.py
cli/test_certify.py training/test_loop.py cli/test_train.py training/test_export.py
training/test_encoder_loading.py test_cost_fn_loading.py experiments/test_records.py
test_values.py test_security.py cli/test_demo.py
"""
"""Files whose quick or slow tests take half a minute or more."""

REQUIRE_ALL = os.environ.get("ORAC_REQUIRE_ALL") == "1"


def _forbid_skip(report):
    if REQUIRE_ALL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"Skipped while ORAC_REQUIRE_ALL=1: {report.longrepr}"
    return report


def pytest_collection_modifyitems(items):
    """Put the longest files first, so that no process starts one of them at the end."""
    paths = [ROOT / "tests" / name for name in LONGEST.split()]
    assert all(path.exists() for path in paths), "LONGEST names a file that is gone"
    place = {path: i for i, path in enumerate(paths)}
    items.sort(key=lambda item: place.get(item.path, len(paths)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _forbid_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _forbid_skip((yield))


@pytest.fixture(scope="module", autouse=True)
def limit_memory():
    """Forget compiled programs after a file of tests, if there are too many."""
    yield
    drop_compiled_programs()


def run(*command, cwd="/", **variables):
    """Run a program and return its output. If it fails, the test fails with its output."""
    finished = subprocess.run(
        [str(argument) for argument in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **variables},
    )
    output = f"{command} printed:\n{finished.stdout}\n{finished.stderr}"
    assert finished.returncode == 0, output
    return finished.stdout


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """Return the folder with the source distribution and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("distributions")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    return out


@pytest.fixture(scope="session")
def wheel(distributions):
    """Return the path of the wheel."""
    return next(distributions.glob("orac_rl-*.whl"))


@pytest.fixture(scope="session")
def bare_venv(wheel, tmp_path_factory):
    """Return the `bin` folder of a virtual environment with the wheel and no extra."""
    return make_venv(tmp_path_factory.mktemp("bare"), wheel)


@pytest.fixture(scope="session")
def report_venv(wheel, tmp_path_factory):
    """Return the `bin` folder of a virtual environment with the extras report and stablehlo."""
    return make_venv(tmp_path_factory.mktemp("report"), f"{wheel}[report,stablehlo]")


def make_venv(path, package):
    run(sys.executable, "-m", "venv", path)
    run(path / "bin/pip", "install", "--quiet", package)
    return path / "bin"
