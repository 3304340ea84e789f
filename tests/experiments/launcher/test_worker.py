"""Tests of a worker process: its processors, its order, and how it stops."""

import json
import os
import subprocess
import sys

import pytest

from helpers.synthetic_runs import make_config
from orac.config import serialization
from orac.envs.user_code import ALLOWED_MODULES
from orac.experiments.launcher.schedule import PlannedRun

CLAIM = """
import sys
from pathlib import Path
from orac.runs.machine import claim_processors
print(*claim_processors({threads}, Path({folder!r})), flush=True)
sys.stdin.read()
"""
LIMIT = """
import os, sys
from orac.runs.machine import limit_threads
limit_threads({threads})
print(*sorted(os.sched_getaffinity(0)), flush=True)
sys.stdin.read()
"""
WATCH = """
import threading
from orac.experiments.launcher.worker import watch_parent
parent_gone = threading.Event()
threading.Thread(target=watch_parent, args=(parent_gone,), daemon=True).start()
print("waiting", parent_gone.wait(0.5), flush=True)
print("stopped", parent_gone.wait(60))
"""

needs_two = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)


def start(code, **settings):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    env = {**os.environ, **settings}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)


def claims(folder, threads):
    process = start(CLAIM.format(threads=threads, folder=str(folder)))
    return process, process.stdout.readline().split()


@needs_two
def test_two_workers_claim_different_processors_and_release_them(tmp_path):
    first, one = claims(tmp_path, 1)
    second, other = claims(tmp_path, 1)
    assert len(one) == len(other) == 1 and one != other
    first.communicate()
    third, again = claims(tmp_path, 1)
    assert again == one
    for process in (second, third):
        process.communicate()


def test_worker_shares_a_processor_when_none_is_free(tmp_path):
    everything = len(os.sched_getaffinity(0))
    first, mine = claims(tmp_path, everything)
    second, shared = claims(tmp_path, 1)
    assert len(mine) == everything and len(shared) == 1
    for process in (first, second):
        process.communicate()


@needs_two
def test_two_resumed_runs_do_not_share_a_processor(tmp_path):
    pair = [start(LIMIT.format(threads=1), TMPDIR=str(tmp_path)) for _ in range(2)]
    first, second = [process.stdout.readline().split() for process in pair]
    assert len(first) == len(second) == 1 and first != second
    for process in pair:
        process.communicate()


def test_run_with_all_processors_claims_none(tmp_path):
    everything = sorted(map(str, os.sched_getaffinity(0)))
    process = start(LIMIT.format(threads=len(everything)), TMPDIR=str(tmp_path))
    assert process.stdout.readline().split() == everything
    process.communicate()
    assert not any(tmp_path.iterdir())


def test_worker_notices_that_its_parent_is_gone():
    process = start(WATCH)
    assert process.stdout.readline() == "waiting False\n"
    output, _ = process.communicate(timeout=30)
    assert output == "stopped True\n"


def test_order_of_a_run_is_one_line_of_json(tmp_path):
    config = make_config("orac", 3, changes=["agent.kappa=0.5"])
    line = PlannedRun("label", config, "name", tmp_path).to_order_json(2, ("mlflow",))
    order = json.loads(line)
    assert line.count("\n") == 1
    assert serialization.from_dict(order.pop("config")) == config
    assert order == {
        "out": str(tmp_path),
        "name": "name",
        "threads": 2,
        "trackers": ["mlflow"],
        "imports": sorted(ALLOWED_MODULES),
        "certify": False,
        "cost_bound": None,
        "cost_fn": None,
        "fresh_episodes": 0,
        "fresh_seed": 0,
    }
