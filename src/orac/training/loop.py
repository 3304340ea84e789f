"""The training loop: advance, log, evaluate, save, and stop when asked to.

Acting, stepping and updating are in `device_loop.py`, `host_loop.py` and `train_step.py`.
Writing files and talking to the user happens here, between two stretches of rounds, and
does not affect what is learned. Evaluations and checkpoints are made at log rows.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from orac.config.schema import Config
from orac.core import agent as agent_core
from orac.core.agent import Learner, PolicyState
from orac.envs.base import EnvSpec
from orac.evaluation.result import cost_column, summarise
from orac.evaluation.rollout import Episodes
from orac.runs.progress import Progress
from orac.training import delivery, measurement, notes
from orac.training.health import check_parameters, check_report
from orac.training.run_logger import Logger, episode_rows, metrics_row
from orac.training.state import NEW_ACTOR
from orac.training.train_step import StepReport, TrainState

STOPPING = b"\nStopping at the next log row, with a checkpoint. Ctrl-C stops at once.\n"


@runtime_checkable
class Runner(Protocol):
    """Interface of `DeviceRunner` and `HostRunner`, which the loop calls."""

    spec: EnvSpec
    config: Config
    learner: Learner
    state: TrainState

    def advance(self, rounds: int, capacity: int) -> StepReport:
        """Run this many rounds; the report holds NumPy arrays with one entry per round."""
        ...

    def evaluate(
        self,
        policy: PolicyState,
        episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        sample: int = 0,
    ) -> Episodes:
        """Play whole episodes of a policy; `seed` replaces the run's key.

        Samples with different numbers consist of different episodes.
        """
        ...

    def host_state(self) -> dict[str, Any] | None:
        """Return the environment's state for a checkpoint; None if it cannot be saved."""
        ...

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to a checkpoint; return False if the episodes had to start again."""
        ...

    def configure(self, config: Config) -> None:
        """Continue under another config of the same problem and networks."""
        ...

    def close(self) -> None:
        """Release the environments."""
        ...


@dataclass(frozen=True)
class Event:
    """The argument of a callback, at each log row and each evaluation."""

    step: int
    metrics: Mapping[str, float]
    """The row of metrics.csv; NaN for values that have not been measured yet."""
    evaluation: list[dict[str, float]] | None
    """One row per episode if an evaluation was made at this step, otherwise None."""
    agent: Any
    """The `orac.api.Agent` that is being trained."""


Callback = Callable[[Event], Any]


@dataclass
class Counters:
    """Sums over the run so far; part of every checkpoint."""

    episodes: int = 0
    cumulative_cost: list[float] = field(default_factory=list)
    violations: list[int] = field(default_factory=list)
    last_reward: float = math.nan
    last_cost: list[float] = field(default_factory=list)
    evaluated: dict[str, Any] = field(default_factory=dict)
    """Step, reward, risk per constraint and episodes of the last evaluation."""
    least_risk: list[float] = field(default_factory=list)
    """Risk per constraint of the evaluation with the lowest risk relative to the limits."""


class Schedule:
    """When logging, evaluation and checkpoints are due, in rounds of all environments."""

    def __init__(self, runner: Runner) -> None:
        training, evaluation = runner.config.training, runner.config.evaluation
        num_envs = training.num_envs
        self.total = math.ceil(training.total_steps / num_envs)
        self.log = max(1, math.ceil(training.log_every / num_envs))
        self.checkpoint = self._rows(training.checkpoint_every, num_envs)
        self.evaluate = (
            self._rows(evaluation.every, num_envs) if evaluation.every else 0
        )

    def _rows(self, every: int, num_envs: int) -> int:
        """Convert steps to rounds, rounded up to whole log rows."""
        return self.log * max(1, math.ceil(every / num_envs / self.log))

    def stretch(self, rounds: int) -> int:
        """Return the number of rounds until the next log row."""
        return min(self.log - rounds % self.log, self.total - rounds)

    def due(self, every: int, rounds: int) -> bool:
        return rounds == self.total or bool(every and rounds % every == 0)


def run_loop(
    runner: Runner,
    logger: Logger,
    counters: Counters,
    *,
    callback: Callback | None = None,
    agent: Any = None,
    progress: Progress | None = None,
) -> int | None:
    """Train until the total number of steps, unless a callback or a signal stops the run.

    A callback stops it by returning False. The signals are Ctrl-C and SIGTERM. Returns the
    number of the signal that stopped the run, or None.
    """
    schedule = Schedule(runner)
    num_envs = runner.config.training.num_envs
    rounds = int(runner.state.rounds)
    with interruptible() as signals:
        while rounds < schedule.total:
            started = time.perf_counter()
            length = schedule.stretch(rounds)
            report = runner.advance(length, schedule.log)
            trained = time.perf_counter()
            first, rounds = rounds, rounds + length
            step = rounds * num_envs
            check_report(report, first, num_envs, logger.last_good())
            metrics = metrics_row(report, counters, step, runner)
            rows = summary = episodes = None
            if schedule.due(schedule.evaluate, rounds):
                check_parameters(runner.state.agent, step, logger.last_good())
                rows, summary, episodes = evaluate(runner, step)
                notes.record_evaluation(counters, episodes, step, runner.config)
            if runner.config.agent.follows_episodes:
                metrics |= steer_run(runner, report, episodes, step)
            logger.write_metrics(metrics)
            logger.write_episodes(episode_rows(report, first, runner))
            if rows is not None and summary is not None:
                logger.write_evaluation(rows, summary, step)
            evaluated = time.perf_counter()
            stop = callback is not None and (
                callback(Event(step, metrics, rows, agent)) is False
            )
            stop = stop or bool(signals)
            if stop or schedule.due(schedule.checkpoint, rounds):
                check_parameters(runner.state.agent, step, logger.last_good())
                logger.save(step, runner, counters)
            logger.write_timings(
                step, length * num_envs, trained - started, evaluated - trained
            )
            if progress:
                progress.update(step, progress_values(metrics, runner, counters))
                if episodes is not None:
                    every = schedule.evaluate or rounds
                    previous = (rounds - every) * num_envs
                    progress.notes(
                        notes.evaluation_notes(
                            counters, episodes, step, previous, runner.config
                        )
                    )
            if stop:
                break
    return signals[0] if signals else None


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Let the first Ctrl-C or SIGTERM stop the run at the next log row; the second raises.

    Yields a list of the signals received. Clusters send SIGTERM before they kill a job.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def ask(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if received:
            os._exit(128 + number)
        received.append(number)
        # Printing could interrupt a print; a write to the descriptor cannot.
        with suppress(OSError):
            os.write(2, STOPPING)

    before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def evaluate(
    runner: Runner, step: int
) -> tuple[list[dict[str, float]], dict[str, float], Episodes]:
    """Evaluate the deployed policy: one row per episode, the summary, and the episodes."""
    settings, agent = runner.config.evaluation, runner.state.agent
    policy = agent_core.deployed_policy(agent)
    episodes = runner.evaluate(policy, settings.episodes, uses_mean(runner))
    spec = runner.spec
    rows = [{"env_steps": step, **row} for row in episodes.rows(spec.cost_names)]
    constraints = runner.config.constraints
    summary = summarise(episodes, constraints, spec.cost_names, spec.metrics)
    return rows, summary, episodes


def uses_mean(runner: Runner) -> bool:
    """Return whether the deployed policy acts with its mean action."""
    if runner.config.agent.follows_episodes:
        return not bool(runner.state.agent.steering.samples)
    return runner.config.evaluation.deterministic


def steer_run(
    runner: Runner, report: StepReport, episodes: Episodes | None, step: int
) -> dict[str, float]:
    """Add new episodes of the deployed policy to the window, and adjust the run to it.

    Returns the metrics of the measurement. `episodes` are those of an evaluation at this
    step, if there was one.
    """
    config, spec = runner.config, runner.spec
    state, measured = runner.state, runner.state.measured
    # Environments on the host that act with the deployed policy.
    played = np.zeros((0, len(config.constraints)))
    if not isinstance(report.deployed, tuple):
        played = np.asarray(report.totals.cost[report.ended & report.deployed])
        measured = measurement.add(measured, played, step)
    if episodes is not None:
        measured = measurement.count_steps(measured, episodes)
    if episodes is not None and step >= config.training.learning_starts:
        candidates, agent = state.candidates, state.agent
        policy = agent_core.deployed_policy(agent)

        def play(count: int) -> Episodes:
            nonlocal measured
            more = runner.evaluate(policy, count, uses_mean(runner), sample=1)
            measured = measurement.count_steps(measured, more)
            return more

        measured = measurement.add(measured, episodes.cost, step)
        candidates = delivery.consider(
            candidates, agent, episodes, step, config, spec.episode_length, play
        )
        state = state._replace(candidates=candidates)
        if measurement.compares_actions(measured, step, config):
            other = runner.evaluate(
                policy, len(episodes), not uses_mean(runner), sample=2
            )
            measured = measurement.count_steps(measured, other)
            if delivery.is_better(other, episodes, config):
                steering = agent.steering
                steering = steering._replace(samples=~steering.samples)
                state = state._replace(agent=agent._replace(steering=steering))
                measured = measurement.emptied(measured)._replace(switched=np.True_)
    reading = None
    if len(played) or episodes is not None:
        key = jax.random.fold_in(jax.random.key(config.seed), NEW_ACTOR)
        length = config.env.episode_length or spec.episode_length or 1
        agent, measured, reading = measurement.steer(
            key, state.agent, measured, step, runner.learner, config, length
        )
        state = state._replace(agent=agent)
    else:
        reading = measurement.read(measured, step, config)
    # An evaluation in the environment of training may have restarted its episodes, so only
    # these fields are replaced.
    runner.state = runner.state._replace(
        agent=state.agent, candidates=state.candidates, measured=measured
    )
    return measurement.metrics(measured, reading, step, state.agent, config)


def progress_values(
    metrics: Mapping[str, float], runner: Runner, counters: Counters
) -> dict[str, float]:
    """Return the numbers of the progress bar, including those of the first constraint.

    The measured risk is that of the window of episodes, or of the last evaluation if the
    multiplier follows the critics.
    """
    config, reward = runner.config, {"reward": metrics["train/reward"]}
    if runner.spec.cost_names:
        column = cost_column(runner.spec.cost_names[0])
        reward["cost"] = metrics[f"train/{column}"]
    if not config.constraints:
        return reward
    constraint = config.constraints[0]
    name = constraint.name
    if config.agent.follows_episodes:
        risk, episodes = metrics[f"measured/risk/{name}"], metrics["measured/episodes"]
    else:
        risk = counters.evaluated.get("risk", [math.nan])[0]
        episodes = counters.evaluated.get("episodes", 0)
    return {
        "measured risk": risk,
        "limit": constraint.limit,
        "episodes": episodes,
        **reward,
        "critics' risk": metrics[f"constraint/risk/{name}"],
        "critics' limit": metrics[f"constraint/limit/{name}"],
        "multiplier": metrics[f"constraint/multiplier/{name}"],
    }
