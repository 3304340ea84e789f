"""Tests on a real Ray cluster: the run of a lost worker resumes with bit-identical results."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import CACHE
from helpers.study_examples import SETTINGS, STEPS
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.ray_cluster import RayTasks
from orac.experiments.launcher.schedule import run_all
from orac.experiments.study import plan
from orac.experiments.sweep import parse_grid

FILES = ("metrics.csv", "evaluations.csv", "episodes.csv")


def planned(out):
    settings = {**SETTINGS, "training.total_steps": 2 * STEPS}
    study, seeds = parse_grid({"algos": ["wcsac"], "seeds": 2, "set": settings})
    return plan(study, seeds, out)


def kill_in_mid_run(run, killed):
    """Kill the run's process and its Ray worker while the run is learning."""
    until = time.monotonic() + 500
    while not STEPS // 2 <= run.step() < 2 * STEPS:
        if time.monotonic() > until:
            return
        time.sleep(0.02)
    process = int((run.path / "lock").read_text().split()[1])
    parent = int(
        Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
    )
    for number in (parent, process):
        os.kill(number, signal.SIGKILL)
    killed.append(run.step())


def start(ray, attempts=3):
    """Start Ray, which fails on a busy machine when its parts take more than 15 seconds."""
    for left in reversed(range(attempts)):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        except Exception:
            ray.shutdown()
            if not left:
                raise
        else:
            return


@pytest.fixture
def cluster(monkeypatch):
    """Start Ray with two workers of one thread each, which have their own XLA cache."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE.parent / "xla-1-thread"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    start(ray)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sweep_that_loses_a_worker_gives_the_same_results(cluster, tmp_path):
    here = planned(tmp_path / "here")
    assert {o.status for o in run_all(here, Processes(2))} == {"finished"}
    there, killed = planned(tmp_path / "there"), []
    killer = threading.Thread(
        target=kill_in_mid_run, args=(there[0], killed), daemon=True
    )
    killer.start()
    outcomes = run_all(there, RayTasks())
    killer.join()
    assert [o.status for o in outcomes] == ["finished"] * 2, outcomes
    assert STEPS // 2 <= killed[0] < 2 * STEPS, "it was killed while it was running"
    for local, remote in zip(here, there, strict=True):
        for name in FILES:
            ours, theirs = (run.path / name for run in (local, remote))
            assert ours.read_bytes() == theirs.read_bytes(), name
    assert not [*(tmp_path / "there").glob("stop-*")]


def test_missing_ray_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[ray\]"'):
        RayTasks()
