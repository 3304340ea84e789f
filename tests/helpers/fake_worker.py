"""A script that replaces the worker process: it counts steps and saves when it is stopped.

After a few steps, a run with seed 7 fails, and a run with seed 8 kills itself the first time.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

# This file runs as a script, so its own folder is where Python looks first.
from manifests import write_manifest


def start():
    """Read the task as a worker does.

    Returns the task; the list `asked`, which gets an entry when the parent closes stdin; the
    folder of the run; its file `saved`; and the step in this file.
    """
    asked = []

    def listen():
        while os.read(0, 1024):
            pass
        asked.append(1)

    task = json.loads(sys.stdin.readline())
    threading.Thread(target=listen, daemon=True).start()
    config = task["config"]
    place = config["env"]["id"].replace("/", "-"), config["algo"], task["name"]
    folder = Path(task["out"]).joinpath(*place, f"seed-{config['seed']:03d}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    saved = folder / "saved"
    return task, asked, folder, saved, int(saved.read_text()) if saved.exists() else 0


def write_journal(task, line):
    with open(Path(task["out"]) / "journal", "a") as journal:
        journal.write(f"{line}\n")


def write_step(folder, step):
    with open(folder / "metrics.csv", "a") as metrics:
        metrics.write("" if metrics.tell() else "env_steps\n")
        metrics.write(f"{step}\n")


def main():
    task, asked, folder, saved, first = start()
    seed, total = task["config"]["seed"], task["config"]["training"]["total_steps"]
    step = first
    write_journal(task, f"+ {seed} {first}")
    while step < total and not asked:
        time.sleep(0.05)
        step += 100
        write_step(folder, step)
        if seed == 7 and step >= 300:
            print("the seventh seed always fails")
            sys.exit(1)
        if seed == 8 and step >= 300 and first == 0:
            saved.write_text("200")
            os.kill(os.getpid(), signal.SIGKILL)
    saved.write_text(str(step))
    if step >= total:
        write_manifest(folder / "checkpoints", step)
    write_journal(task, f"- {seed} {step}")
    sys.exit(0 if step >= total else 130)


if __name__ == "__main__":
    main()
