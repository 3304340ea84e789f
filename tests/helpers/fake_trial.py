"""A script that replaces a worker process of `orac tune` and trains nothing.

Its reward is 100 minus the distance of agent.kappa from 1, and its cost is 10 times
agent.polyak. A run with a reward below 90 waits for 3 seconds before its last step. A run
with agent.n_step 7 fails, and a run with agent.n_step 5 kills itself the first time.
"""

import json
import os
import signal
import sys
import time

# This file runs as a script, so its own folder is where Python looks first.
from fake_worker import start, write_journal, write_step

task, asked, folder, saved, step = start()
agent, total = task["config"]["agent"], task["config"]["training"]["total_steps"]
write_journal(task, f"{task['name']} {step}")
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
    write_step(folder, step)
saved.write_text(str(step))
if step < total:
    sys.exit(130)
assert task["fresh_episodes"] >= 100
summary = {"reward/mean": reward, "cost/risk": cost}
(folder / "fresh_evaluation.json").write_text(json.dumps(summary))
