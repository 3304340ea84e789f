"""Measure how much of the training time a checkpoint every 10,000 steps takes.

    python benchmarks/checkpoints.py [maze] [safety]

The shares are ratios within one run on one machine. `maze` trains with the settings of
`orac demo`, whose steps are the fastest. `safety` uses ORAC in SafetyPointGoal1 with a
full replay of a million transitions: it measures the time of a step over 300 steps, and saves
checkpoints that have 10,000 new rows each.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from orac.api import Agent
from orac.config import presets
from orac.training.run_logger import RunLogger

EVERY = 10_000


class Stopwatch:
    """Calls a method and records how many seconds each call takes."""

    def __init__(self, method):
        self.method, self.seconds = method, []

    def __call__(self, *arguments):
        started = time.perf_counter()
        result = self.method(*arguments)
        self.seconds.append(time.perf_counter() - started)
        return result


def maze(steps: int = 60_000) -> None:
    """Train with the settings of `orac demo`, and time the checkpoints of the run."""
    config = presets.preset("orac", "orac/GuardedMaze-v0", "fast")
    training = replace(config.training, total_steps=steps, checkpoint_every=EVERY)
    evaluation = replace(config.evaluation, every=0, episodes=1)
    config = replace(config, training=training, evaluation=evaluation)
    agent = Agent(config.env.id, config)
    advance = Stopwatch(agent.runner.advance)
    agent.runner.advance = advance
    watch = Stopwatch(RunLogger.save)
    original, RunLogger.save = RunLogger.save, lambda *all: watch(*all)
    try:
        with tempfile.TemporaryDirectory() as out:
            agent.learn(out=out, progress_bar=False, trackers=())
    finally:
        RunLogger.save = original
    # The first intervals between log rows are left out: one of them includes the compilation,
    # and before learning starts there are no updates.
    learning = config.training.learning_starts // config.training.log_every + 1
    step = statistics.median(advance.seconds[learning:]) / config.training.log_every
    report("demo in the maze", watch.seconds, step)


def safety(rows: int = 1_000_000, steps: int = 300, saves: int = 8) -> None:
    """Time checkpoints of ORAC in SafetyPointGoal1 with a full replay."""
    config = presets.preset("orac", "orac/SafetyPointGoal1-v0")
    training = replace(config.training, buffer_size=rows, learning_starts=0)
    agent = Agent(config.env.id, replace(config, training=training))
    runner = agent.runner
    # The replay is allocated when training starts.
    runner.advance(5, 5)
    full = runner.state.replay._replace(inserted=jnp.int32(rows))
    runner.state = runner.state._replace(replay=full)
    started = time.perf_counter()
    runner.advance(steps, steps)
    step = (time.perf_counter() - started) / steps
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(runner.state.replay))
    print(f"replay of {rows:,} rows, {size / 1e6:,.0f} MB; a step {step * 1e3:.1f} ms")
    with tempfile.TemporaryDirectory() as out:
        watch = save_again_and_again(agent, Path(out), saves)
    first, *later = watch.seconds
    print(f"the first checkpoint writes everything: {first:.1f} s")
    report("orac in SafetyPointGoal1, replay full", later, step)


def save_again_and_again(agent: Agent, out: Path, saves: int) -> Stopwatch:
    """Save a checkpoint of everything, and then one for every 10,000 new rows."""
    from orac.runs.checkpoint import Checkpoints

    checkpoints = Checkpoints(out / "checkpoints")
    watch, state = Stopwatch(checkpoints.save), agent.runner.state
    for i in range(saves + 1):
        inserted = state.replay.inserted + i * EVERY
        ring = state.replay._replace(inserted=inserted)
        watch(i * EVERY, state._replace(replay=()), ring, {})
    return watch


def report(name: str, seconds: list[float], step: float) -> None:
    """Print the share of the time that checkpoints take. `step` has the seconds of a step."""
    save = statistics.median(seconds)
    share = save / (EVERY * step + save)
    print(
        f"{name}: {EVERY:,} steps train for {EVERY * step:.1f} s, a checkpoint takes "
        f"{save * 1e3:.0f} ms (worst of {len(seconds)}: {max(seconds) * 1e3:.0f}): "
        f"{share:.2%}"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ["maze", "safety"]:
        {"maze": maze, "safety": safety}[name]()
