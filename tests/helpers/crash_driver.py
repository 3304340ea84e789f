"""Kill a process that writes checkpoints, many times, and check the files. Run as a script.

The writers are forked, so that a new one needs no imports. Nothing here starts JAX's threads,
which would not survive a fork. The script prints one line of JSON with the results.
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

from run_examples import assert_same_bits, make_replay, make_state

warnings.filterwarnings("ignore", message=r"os\.fork")

from orac.runs.directory import RunDirectory  # noqa: E402

CAPACITY = 60
COLUMNS = ("step", "reward")


def resume(run):
    """Load, check every bit against the examples of that step, and truncate the log."""
    checkpoints = run.checkpoints()
    loaded = checkpoints.load_latest(make_state(0), make_replay(0, CAPACITY))
    step = loaded.step if loaded else 0
    if loaded:
        assert loaded.warnings == (), loaded.warnings
        assert_same_bits(loaded.state, make_state(step))
        assert_same_bits(loaded.replay, make_replay(step, CAPACITY))
    run.truncate_logs(loaded.extra["logs"] if loaded else {})
    return checkpoints, step


def write_on(path, last, report, save_every=4):
    """Resume the run and save every few steps until `last`."""
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
                    make_replay(step, CAPACITY),
                    {"logs": run.log_sizes()},
                )
                os.write(report, f"{step}\n".encode())


def in_child(action):
    """Run `action` in a fork. Return its process id and the pipe from which to read its report."""
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


def check(path, reported):
    """Check that the newest checkpoint is complete, and at least as new as the reported step."""
    with RunDirectory.open(path) as run:
        _, step = resume(run)
    assert step >= reported, f"step {reported} was reported as saved, {step} was found"
    return step


def kill_at_random_moments(path, kills):
    """Kill a writer, which would never end by itself, at random moments."""
    generator = random.Random(0)
    reported, died_mid_save = 0, 0
    for _ in range(kills):
        child, reader = in_child(lambda report: write_on(path, math.inf, report))
        time.sleep(generator.uniform(0.0, 0.12))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer failed before it was killed"
        reported = max([reported, *steps_reported(reader)])
        files = [
            name for _, _, names in os.walk(path / "checkpoints") for name in names
        ]
        died_mid_save += any(name.startswith(".tmp-") for name in files)
        reported = check(path, reported)
    return {"reached": reported, "died_mid_save": died_mid_save}


def die_at_every_call(base, last):
    """Exit before the n-th call that changes the disk, for every n."""
    finish(base, last - 4)
    count, code = 0, 7
    while code:
        count += 1
        path = base.with_name(f"seed-{count:03d}")
        shutil.copytree(base, path)
        left = iter(range(count - 1))

        def write_and_exit(report, path=path, left=left):
            for name in ("write", "fsync", "replace", "unlink", "open", "truncate"):
                setattr(os, name, counted(getattr(os, name), left))
            write_on(path, last, report)

        child, reader = in_child(write_and_exit)
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
    for name in ("killed", "uninterrupted", "calls"):
        with RunDirectory.create(
            root, "probe", "none", 0, {"kills": kills}, name
        ) as run:
            runs.append(run.path)
    killed, uninterrupted, calls = runs
    report = kill_at_random_moments(killed, kills)
    last = report["reached"] + 50
    finish(killed, last)
    finish(uninterrupted, last)
    assert (killed / "metrics.csv").read_bytes() == (
        uninterrupted / "metrics.csv"
    ).read_bytes()
    report |= die_at_every_call(calls, 12)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
