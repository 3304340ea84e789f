"""A worker has processors of its own, and stops when nobody is left to work for."""

import os
import subprocess
import sys

import pytest

from orac.experiments.launcher.worker import Task

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
ALONE = """
import threading
from orac.worker import listen
alone = threading.Event()
threading.Thread(target=listen, args=(alone,), daemon=True).start()
print("waiting", alone.wait(0.5), flush=True)
print("stopped", alone.wait(60))
"""

needs_two = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)


def start(code, **settings):
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", code]
    env = {**os.environ, **settings}
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=env)


def claims(folder, threads):
    process = start(CLAIM.format(threads=threads, folder=str(folder)))
    return process, process.stdout.readline().split()


@needs_two
def test_two_workers_take_different_processors_and_give_them_back(tmp_path):
    first, one = claims(tmp_path, 1)
    second, other = claims(tmp_path, 1)
    assert len(one) == len(other) == 1 and one != other
    first.communicate()
    third, again = claims(tmp_path, 1)
    assert again == one
    for process in (second, third):
        process.communicate()


def test_a_worker_that_wants_more_than_is_free_shares(tmp_path):
    everything = len(os.sched_getaffinity(0))
    first, mine = claims(tmp_path, everything)
    second, shared = claims(tmp_path, 1)
    assert len(mine) == everything and len(shared) == 1
    for process in (first, second):
        process.communicate()


@needs_two
def test_two_runs_that_are_resumed_side_by_side_do_not_share_a_processor(tmp_path):
    pair = [start(LIMIT.format(threads=1), TMPDIR=str(tmp_path)) for _ in range(2)]
    first, second = [process.stdout.readline().split() for process in pair]
    assert len(first) == len(second) == 1 and first != second
    for process in pair:
        process.communicate()


def test_whoever_may_use_all_processors_claims_none(tmp_path):
    everything = sorted(map(str, os.sched_getaffinity(0)))
    process = start(LIMIT.format(threads=len(everything)), TMPDIR=str(tmp_path))
    assert process.stdout.readline().split() == everything
    process.communicate()
    assert not any(tmp_path.iterdir())


def test_a_worker_stops_when_whoever_started_it_is_gone():
    process = start(ALONE)
    assert process.stdout.readline() == "waiting False\n"
    told, _ = process.communicate(timeout=30)
    assert told == "stopped True\n"


def test_a_task_survives_its_journey():
    task = Task("out", "name", {"seed": 3, "agent": {"kappa": 0.5}}, 2, ("mlflow",))
    assert Task.from_line(task.to_line()) == task
    assert task.to_line().count("\n") == 1
