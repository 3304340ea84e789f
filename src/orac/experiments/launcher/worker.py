"""Train one run in its own process: start it, or resume it from its last checkpoint.

`python -m orac.experiments.launcher.worker` reads one line of JSON, made by
`PlannedRun.to_order_json`, from standard input. When standard input ends, because the parent
process closed it or died, the worker saves a checkpoint and stops. The worker claims its
processors (`runs.machine`) before it imports JAX.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orac.runs.machine import claim_processors, is_out_of_memory

if TYPE_CHECKING:
    from orac.api import Agent

FINISHED, STOPPED, OUT_OF_MEMORY = 0, 130, 137
"""Exit codes of a worker; any other code means that the run failed. Shells also report 137 for
a process that the system killed because memory ran out."""
FRESH_FILE = "fresh_evaluation.json"
"""File with a summary of the fresh episodes of `PlannedRun.fresh_episodes`."""
LOCK_SECONDS = 300.0
"""Maximum time to wait for an earlier process of the same run to release its directory."""


def main() -> int:
    """Train the run that standard input describes and return the exit code."""
    # A process that was started in the background ignores SIGINT unless it sets a handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The training loop replaces this handler with one that saves a checkpoint first.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(STOPPED))
    order, parent_gone = json.loads(sys.stdin.readline()), threading.Event()
    claim_processors(order["threads"])
    threading.Thread(target=watch_parent, args=(parent_gone,), daemon=True).start()
    try:
        return FINISHED if train_or_resume(order, parent_gone) else STOPPED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        print(f"There is not enough memory: {error}", file=sys.stderr)
        return OUT_OF_MEMORY


def watch_parent(parent_gone: threading.Event) -> None:
    """Set the event when standard input ends because the parent closed it or died.

    The parent does not send a signal, because a signal that arrives during an import can
    get lost.
    """
    # Read the file descriptor, because a buffered stream must not be read while Python
    # shuts down.
    while os.read(0, 1024):
        pass
    parent_gone.set()


def train_or_resume(order: dict[str, Any], parent_gone: threading.Event) -> bool:
    """Train until the run is finished or the event is set; return whether it is finished."""
    # These modules import JAX, which counts the processors when it starts. So `main` claims
    # the processors before this.
    from orac.api.agent import Agent
    from orac.api.environments import choose_env
    from orac.config import serialization
    from orac.envs.user_code import allow_module
    from orac.runs.atomic_io import write_text
    from orac.runs.directory import read_meta, run_path, write_meta
    from orac.training.xla import enable_compilation_cache

    if parent_gone.is_set():
        return False
    enable_compilation_cache()
    for module in order["imports"]:
        allow_module(module)
    out, name = order["out"], order["name"]
    config = serialization.from_dict(order["config"])
    path = run_path(out, config.env.id, config.algo, config.seed, name)
    cost_bound, cost_fn = order.get("cost_bound"), order.get("cost_fn")
    options: dict[str, Any] = {
        "progress_bar": False,
        "trackers": tuple(order["trackers"]),
        "callback": lambda event: not parent_gone.is_set(),
    }
    if (path / "config.yaml").exists():
        options |= {"cost_bound": cost_bound, "cost_fn": cost_fn}
        agent = _resume_when_free(path, options, parent_gone)
    else:
        host_options = {} if cost_bound is None else {"cost_bound": cost_bound}
        agent = Agent(
            choose_env(config, None),
            config,
            cost_fn=cost_fn,
            host_options=host_options,
        )
        agent.learn(out=out, name=name, **options)
    finished = agent.num_timesteps >= config.training.total_steps
    if finished and order.get("certify"):
        started = time.monotonic()
        agent.certify()  # writes certificate.json
        seconds = round(time.monotonic() - started, 1)
        write_meta(path, {**read_meta(path), "certificate_seconds": seconds})
    if finished and order.get("fresh_episodes"):
        fresh = agent.evaluate(order["fresh_episodes"], seed=order["fresh_seed"])
        write_text(path / FRESH_FILE, json.dumps(fresh.summary, indent=2) + "\n")
    agent.close()
    return finished


def _resume_when_free(
    path: Path, options: dict[str, Any], parent_gone: threading.Event
) -> "Agent":
    """Resume a run. Wait first if an earlier process is still saving it."""
    from orac.api import resume
    from orac.runs.directory import RunInUse

    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return resume(path, **options)
        except RunInUse:
            if time.monotonic() > deadline:
                raise
            if parent_gone.wait(1):
                raise KeyboardInterrupt from None


if __name__ == "__main__":
    sys.exit(main())
