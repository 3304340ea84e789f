"""Settings for short runs of a study, backends for tests, and synthetic runs."""

import json
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from helpers.certificates import write_certificate
from helpers.manifests import write_manifest
from helpers.memory import drop_compiled_programs
from helpers.synthetic_runs import write_run
from orac.experiments.launcher.schedule import Outcome
from orac.experiments.launcher.worker import train_or_resume
from orac.experiments.run_study import StudyOptions, run
from orac.experiments.study import plan
from orac.runs.machine import claim_processors

STEPS = 2_000
SETTINGS = {
    # The limit is so low that pivots lie below the costs. At the paper's limit, 2,000 steps
    # do not leave the region of the dual form in which optimism about cost has no effect.
    "constraints.0.limit": 0.01,
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "agent.pivot.every": 400,
    "training.num_envs": 8,
    "training.gradient_steps": 0.125,
    "training.batch_size": 32,
    "training.learning_starts": 200,
    "training.buffer_size": 3000,
    "training.log_every": 200,
    "training.checkpoint_every": 400,
    "evaluation.every": 2000,
    "evaluation.episodes": 1,
}
"""Settings with which a run of 2,000 steps learns within seconds."""


def write_synthetic_runs(study, out, seeds=2, **options):
    """Write made-up runs of every case."""
    for planned in plan(study, range(seeds), out):
        write_run(out, planned.config, name=planned.name, rows=4, **options)


class FakeTraining:
    """Backend that writes a synthetic run at once. Starting run `killed_at` raises Ctrl-C."""

    def __init__(self, killed_at=None):
        self.trained, self.killed_at = [], killed_at
        self._new = []

    def start(self, run):
        if len(self.trained) == self.killed_at:
            raise KeyboardInterrupt
        write_run(run.out, run.config, name=run.name, rows=4, evaluations=2, episodes=8)
        if run.certifies:
            write_certificate(run.path)
        write_manifest(run.path / "checkpoints", run.total_steps)
        self.trained.append((run.label, run.config.seed))
        self._new.append(run)

    @property
    def free(self):
        return not self._new

    @property
    def running(self):
        return self._new

    def ended(self):
        ended, self._new = self._new, []
        return [Outcome(run, "finished") for run in ended]

    def stop(self):
        """Do nothing, because no run is in progress."""

    def close(self):
        """Do nothing, because there are no processes."""


def render(study, out, record=None, **options):
    """Render the runs that exist and return what was logged."""
    lines = []
    options = StudyOptions(out, render_only=True, record=record, **options)
    assert run(study, options, lines.append) == 0
    return "\n".join(lines)


class WorkerPool:
    """Backend with two processes that train one run after the other.

    With `Processes`, every run imports JAX and compiles its programs, which takes most of the
    time of a small run. These two processes do so only once.
    """

    def __init__(self):
        self._pool = ProcessPoolExecutor(
            2, get_context("spawn"), initializer=claim_processors, initargs=(1,)
        )
        self._futures = {}

    @property
    def free(self):
        return len(self._futures) < 2

    @property
    def running(self):
        return [*self._futures]

    def start(self, run):
        self._futures[run] = self._pool.submit(train_in_pool, run.to_order_json(1, ()))

    def ended(self):
        done = [run for run, future in self._futures.items() if future.done()]
        return [Outcome(run, self._futures.pop(run).result()) for run in done]

    def stop(self):
        """Do nothing, because no test stops these runs."""

    def close(self):
        """Do nothing, because the next study uses the same processes."""

    def shut_down(self):
        self._pool.shutdown(cancel_futures=True)


def train_in_pool(order_json):
    """Train the run that `PlannedRun.to_order_json` describes, and return its status."""
    finished = train_or_resume(json.loads(order_json), threading.Event())
    drop_compiled_programs()
    return "finished" if finished else "stopped"
