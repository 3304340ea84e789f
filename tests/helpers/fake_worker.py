"""A quick stand-in for the worker process: it counts to its total and saves when stopped.

Seed 7 fails, and seed 8 is killed the first time; both after a few steps.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

asked = []


def listen():
    while os.read(0, 1024):
        pass
    asked.append(1)


task = json.loads(sys.stdin.readline())
threading.Thread(target=listen, daemon=True).start()
config, out = task["config"], Path(task["out"])
seed, total = config["seed"], config["training"]["total_steps"]
place = config["env"]["id"].replace("/", "-"), config["algo"], task["name"]
folder = out.joinpath(*place, f"seed-{seed:03d}")
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.yaml").write_text(json.dumps(config))
saved = folder / "saved"
step = begun = int(saved.read_text()) if saved.exists() else 0
with open(out / "journal", "a") as journal:
    journal.write(f"+ {seed} {begun}\n")
while step < total and not asked:
    time.sleep(0.05)
    step += 100
    with open(folder / "metrics.csv", "a") as metrics:
        metrics.write("" if step > 100 else "env_steps\n")
        metrics.write(f"{step}\n")
    if seed == 7 and step >= 300:
        print("the seventh seed always fails")
        sys.exit(1)
    if seed == 8 and step >= 300 and begun == 0:
        saved.write_text("200")
        os.kill(os.getpid(), signal.SIGKILL)
saved.write_text(str(step))
if step >= total:
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / f"step-{step:012d}.json").write_text("{}")
with open(out / "journal", "a") as journal:
    journal.write(f"- {seed} {step}\n")
sys.exit(0 if step >= total else 130)
