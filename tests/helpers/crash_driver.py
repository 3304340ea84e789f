"""Kill a process that writes checkpoints, again and again; run as a script.

The writers are forked, so a kill costs no start-up; nothing here starts JAX's threads,
which a fork would not survive. Prints one JSON line with what happened.
"""

import json
import math
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

from run_examples import assert_same_bits, make_ring, make_state

warnings.filterwarnings("ignore", message=r"os\.fork")

from orac.runs.directory import RunDirectory  # noqa: E402

CAPACITY = 60
COLUMNS = ("step", "reward")


def resume(run):
    """Load, check every bit against what the step alone says, cut the log back."""
    checkpoints = run.checkpoints()
    loaded = checkpoints.load_latest(make_state(0), make_ring(0, CAPACITY))
    step = loaded.step if loaded else 0
    if loaded:
        assert loaded.warnings == (), loaded.warnings
        assert_same_bits(loaded.state, make_state(step))
        assert_same_bits(loaded.replay, make_ring(step, CAPACITY))
    run.cut_logs(loaded.extra["logs"] if loaded else {})
    return checkpoints, step


def write_on(path, last, report, save_every=4):
    """Go on from where the run is, saving now and then, until `last`."""
    with RunDirectory.open(path) as run:
        checkpoints, step = resume(run)
        metrics = run.log("metrics", COLUMNS)
        while step < last:
            step += 1
            metrics.append({"step": step, "reward": step / 3})
            metrics.flush()
            if step % save_every == 0 or step == last:
                checkpoints.save(
                    step,
                    make_state(step),
                    make_ring(step, CAPACITY),
                    {"logs": run.log_sizes()},
                )
                os.write(report, f"{step}\n".encode())


def in_child(action):
    """Run `action` in a fork; returns its process and the pipe it reports on."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            action(writer)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    return child, reader


def steps_reported(reader):
    with os.fdopen(reader, "rb") as file:
        return [int(line) for line in file.read().splitlines()]


def check(path, promised):
    """What a reader finds now must be whole, and no older than what was promised."""
    with RunDirectory.open(path) as run:
        _, step = resume(run)
    assert step >= promised, f"step {promised} was promised, {step} was found"
    return step


def kill_at_random_moments(path, kills):
    """The writer never ends by itself, however quick the disk is."""
    generator = random.Random(0)
    promised, died_mid_save = 0, 0
    for _ in range(kills):
        child, reader = in_child(lambda report: write_on(path, math.inf, report))
        time.sleep(generator.uniform(0.0, 0.12))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer failed before it was killed"
        promised = max([promised, *steps_reported(reader)])
        files = [
            name for _, _, names in os.walk(path / "checkpoints") for name in names
        ]
        died_mid_save += any(name.startswith(".tmp-") for name in files)
        promised = check(path, promised)
    return {"reached": promised, "died_mid_save": died_mid_save}


def die_at_every_call(base, last):
    """Leave without goodbye before the n-th call that changes the disk, for each n."""
    finish(base, last - 4)
    count, code = 0, 7
    while code:
        count += 1
        path = base.with_name(f"seed-{count:03d}")
        shutil.copytree(base, path)
        left = iter(range(count - 1))

        def dying(report, path=path, left=left):
            for name in ("write", "fsync", "replace", "unlink", "open", "truncate"):
                setattr(os, name, counted(getattr(os, name), left))
            write_on(path, last, report)

        child, reader = in_child(dying)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 7)
        check(path, max([last - 4, *steps_reported(reader)]))
        if code:
            finish(path, last + 1)
        shutil.rmtree(path)
    return {"calls": count - 1}


def counted(original, left):
    def call(*arguments, **options):
        if next(left, None) is None:
            os._exit(7)
        return original(*arguments, **options)

    return call


def finish(path, last):
    child, reader = in_child(lambda report: write_on(path, last, report, 50))
    assert steps_reported(reader)[-1] == last
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return check(path, last)


def main():
    root, kills = Path(sys.argv[1]), int(sys.argv[2])
    runs = []
    for name in ("killed", "unbroken", "calls"):
        with RunDirectory.create(
            root, "probe", "none", 0, {"kills": kills}, name
        ) as run:
            runs.append(run.path)
    killed, unbroken, calls = runs
    report = kill_at_random_moments(killed, kills)
    last = report["reached"] + 50
    finish(killed, last)
    finish(unbroken, last)
    assert (killed / "metrics.csv").read_bytes() == (
        unbroken / "metrics.csv"
    ).read_bytes()
    report |= die_at_every_call(calls, 12)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
