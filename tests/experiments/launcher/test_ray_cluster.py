"""On a real Ray cluster: a lost worker's run resumes, and the bits are those of here."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import CACHE
from helpers.study_examples import SETTINGS, STEPS
from orac.experiments.launcher import ray_cluster as schedule_ray
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import run_all
from orac.experiments.study import plan
from orac.experiments.sweep import parse_grid

FILES = ("metrics.csv", "evaluations.csv", "episodes.csv")


def planned(out):
    settings = {**SETTINGS, "training.total_steps": 2 * STEPS}
    study, seeds = parse_grid({"algos": ["wcsac"], "seeds": 2, "set": settings})
    return plan(study, seeds, out)


def kill_in_mid_run(run, killed):
    """SIGKILL the run's process and the Ray worker that watches it, once it has learned."""
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
    """Ray gives its own parts 15 seconds to come up, too few on a busy machine."""
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
    """Two workers on this machine; one thread each, so a cache of their own."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE.parent / "xla-1-thread"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    start(ray)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_sweep_that_loses_a_worker_ends_as_one_that_does_not(cluster, tmp_path):
    here = planned(tmp_path / "here")
    assert {o.status for o in run_all(here, Processes(2))} == {"finished"}
    there, killed = planned(tmp_path / "there"), []
    killer = threading.Thread(
        target=kill_in_mid_run, args=(there[0], killed), daemon=True
    )
    killer.start()
    outcomes = run_all(there, schedule_ray.RayTasks(), say=print)
    killer.join()
    assert [o.status for o in outcomes] == ["finished"] * 2, outcomes
    assert STEPS // 2 <= killed[0] < 2 * STEPS, "it was killed in mid-run"
    for local, remote in zip(here, there, strict=True):
        for name in FILES:
            ours, theirs = (run.path / name for run in (local, remote))
            assert ours.read_bytes() == theirs.read_bytes(), name
    assert not [*(tmp_path / "there").glob("stop-*")]


def test_without_ray_its_name_and_the_way_to_get_it_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[ray\]"'):
        schedule_ray.RayTasks()
