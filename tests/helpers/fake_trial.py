"""A quick stand-in for a worker process of `orac tune`: it trains nothing.

Its reward is 100 minus the distance of agent.kappa from 1, and its cost is 10 times
agent.polyak. A run with a reward below 90 waits for a while before its last step. A run
with agent.n_step 7 fails, and one with 5 is killed the first time.
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
agent, total = config["agent"], config["training"]["total_steps"]
place = config["env"]["id"].replace("/", "-"), config["algo"], task["name"]
folder = out.joinpath(*place, f"seed-{config['seed']:03d}")
saved = folder / "saved"
step = int(saved.read_text()) if saved.exists() else 0
with open(out / "journal", "a") as journal:
    journal.write(f"{task['name']} {step}\n")
(folder / "config.yaml").write_text(json.dumps(config))
(folder / "meta.json").write_text("{}")
reward, cost = 100 - abs(agent["kappa"] - 1), 10 * agent["polyak"]
if agent["n_step"] == 7:
    print("ArithmeticError: the loss is not finite at step 300.")
    sys.exit(1)
if agent["n_step"] == 5 and not step:
    saved.write_text("100")
    os.kill(os.getpid(), signal.SIGKILL)
evaluations = folder / "evaluations.csv"
if not evaluations.exists():
    evaluations.write_text("env_steps,episode,reward,cost,length\n")
pause = float(os.environ.get("FAKE_TRIAL_SECONDS", "0"))
while step < total and not asked:
    time.sleep(pause)
    for _ in range(30 if reward < 90 and step + 100 == total else 0):
        time.sleep(0 if asked else 0.1)
    if asked:
        break
    step += 100
    with open(evaluations, "a") as file:
        file.write(f"{step},0,{reward},{cost},10\n")
    with open(folder / "metrics.csv", "a") as metrics:
        metrics.write("" if metrics.tell() else "env_steps\n")
        metrics.write(f"{step}\n")
saved.write_text(str(step))
if step < total:
    sys.exit(130)
assert task["fresh_episodes"] >= 100
summary = {"reward/mean": reward, "cost/risk": cost}
(folder / "fresh_evaluation.json").write_text(json.dumps(summary))
