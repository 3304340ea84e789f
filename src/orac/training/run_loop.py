"""The training loop: train until the next log row, then log, evaluate, save and maybe stop.

A round is one step of every environment, and a stretch is the rounds between two log rows.
A runner (`device_loop.py` or `host_loop.py`) trains one stretch per call; both runners store
steps and update the agent with `train_step.store_and_update`. After each
stretch, this module evaluates the policy, writes files and informs the user. This affects
what is learned in two cases. If the multiplier follows episodes, `steer_run` adjusts the run
to the measured risk. If policies are evaluated in the training environment, and its state
cannot be restored, an evaluation ends the running episodes. Evaluations and checkpoints are
made only at log rows.
"""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from orac.config.schema import Config
from orac.core import agent as agent_core
from orac.core.agent import Learner, PolicyState
from orac.envs.base import EnvSpec
from orac.evaluation.episodes import cost_column, summarise
from orac.evaluation.rollout import Episodes
from orac.runs.progress import Progress
from orac.training import delivery, measurement, notes
from orac.training.health import check_parameters, check_report
from orac.training.run_logger import Logger, episode_rows, metrics_row
from orac.training.state import COMPARE, MEASURE, NEW_ACTOR, RETEST
from orac.training.train_step import StepReport, TrainState

STOPPING = (
    b"\nStopping at the next log row, with a checkpoint if the run has a directory. "
    b"Press Ctrl-C to stop at once.\n"
)


@runtime_checkable
class Runner(Protocol):
    """The interface that the loop needs. `DeviceRunner` and `HostRunner` implement it."""

    spec: EnvSpec
    config: Config
    learner: Learner
    state: TrainState

    def advance(self, rounds: int, capacity: int) -> StepReport:
        """Run this many rounds and return NumPy arrays with one entry per round.

        `capacity` is the largest number of rounds that any call in this run asks for.
        """
        ...

    def evaluate(
        self,
        policy: PolicyState,
        episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        sample: int = MEASURE,
    ) -> Episodes:
        """Play whole episodes of a policy and return their totals.

        The random numbers are made from `seed`, or from the run's key if `seed` is None.
        Calls with different values of `sample` play different episodes.
        """
        ...

    def host_state(self) -> dict[str, Any] | None:
        """Return the environment's state for a checkpoint, or None if it cannot be saved."""
        ...

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to a checkpoint. Return False if new episodes had to be started."""
        ...

    def configure(self, config: Config) -> None:
        """Use another config from now on. It must have the same problem and networks."""
        ...

    def close(self) -> None:
        """Release the environments."""
        ...


@dataclass(frozen=True)
class Event:
    """The argument that a callback receives at each log row."""

    step: int
    metrics: Mapping[str, float]
    """The row of metrics.csv, with NaN for missing values."""
    evaluation: list[dict[str, float]] | None
    """One row per episode if the policy was evaluated at this step, otherwise None."""
    agent: Any
    """The `orac.api.Agent` that is being trained."""


Callback = Callable[[Event], Any]


@dataclass
class Counters:
    """Sums and last values of the run so far, which are saved in every checkpoint."""

    episodes: int = 0
    cumulative_cost: list[float] = field(default_factory=list)
    violations: list[int] = field(default_factory=list)
    """For each cost, the number of training episodes that cost more than the limit."""
    last_reward: float = math.nan
    """Mean reward of the training episodes in the last stretch in which any ended."""
    last_cost: list[float] = field(default_factory=list)
    """For each cost, the mean over the same episodes."""
    evaluated: dict[str, Any] = field(default_factory=dict)
    """Step, reward, risk per constraint and number of episodes of the last evaluation."""
    least_risk: list[float] = field(default_factory=list)
    """Risk per constraint in the evaluation whose risk was lowest relative to the limits."""
    largest_cost: list[float] = field(default_factory=list)
    """For each cost, the largest cost of an episode of training or of its evaluations. It is
    empty if it is not known."""

    def include_costs(self, costs: np.ndarray) -> None:
        """Include costs of the shape (episode, cost) in `largest_cost`."""
        known = self.largest_cost or [0.0] * costs.shape[1]
        self.largest_cost = np.vstack([known, costs]).max(axis=0).tolist()


class Schedule:
    """The numbers of rounds between log rows, between evaluations and between checkpoints."""

    def __init__(self, runner: Runner) -> None:
        training, evaluation = runner.config.training, runner.config.evaluation
        num_envs = training.num_envs
        self.total = math.ceil(training.total_steps / num_envs)
        self.log = max(1, math.ceil(training.log_every / num_envs))
        self.checkpoint = self._rounds(training.checkpoint_every, num_envs)
        self.evaluate = (
            self._rounds(evaluation.every, num_envs) if evaluation.every else 0
        )

    def _rounds(self, every: int, num_envs: int) -> int:
        """Convert a number of steps to rounds, rounded up to a multiple of `log`."""
        return self.log * max(1, math.ceil(every / num_envs / self.log))

    def stretch(self, rounds: int) -> int:
        """Return the number of rounds until the next log row."""
        return min(self.log - rounds % self.log, self.total - rounds)

    def due(self, every: int, rounds: int) -> bool:
        """Return whether `rounds` is a multiple of `every`, or the end of the run."""
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
    """Train until the total number of steps, unless the callback or a signal stops the run.

    The callback stops the run by returning False. The signals are SIGINT (Ctrl-C) and
    SIGTERM. Returns the number of the signal that stopped the run, or None.
    """
    schedule = Schedule(runner)
    num_envs = runner.config.training.num_envs
    rounds = int(runner.state.rounds)
    with interruptible() as signals:
        while rounds < schedule.total:
            started = time.perf_counter()
            length = schedule.stretch(rounds)
            # `advance` may overwrite the arrays of the state, so this is a copy.
            running_cost = np.array(runner.state.totals.cost)
            report = runner.advance(length, schedule.log)
            trained = time.perf_counter()
            first, rounds = rounds, rounds + length
            step = rounds * num_envs
            check_report(
                report, first, num_envs, logger.newest_checkpoint(), running_cost
            )
            metrics = metrics_row(report, counters, step, runner)
            # These are also the costs of episodes that have not ended yet.
            counters.include_costs(np.asarray(report.totals.cost).max(axis=1))
            rows = summary = episodes = None
            previous = 0
            if schedule.due(schedule.evaluate, rounds):
                check_parameters(runner.state.agent, step, logger.newest_checkpoint())
                rows, summary, episodes = evaluate(runner, step)
                counters.include_costs(episodes.cost)
                previous = counters.evaluated.get("step", 0)
                notes.record_evaluation(counters, episodes, step, runner.config)
            if runner.config.agent.follows_episodes:
                metrics |= steer_run(runner, report, episodes, step, counters)
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
                check_parameters(runner.state.agent, step, logger.newest_checkpoint())
                logger.save(step, runner, counters)
            logger.write_timings(
                step, length * num_envs, trained - started, evaluated - trained
            )
            if progress:
                names = runner.spec.cost_names
                values = progress_values(metrics, runner.config, names, counters)
                progress.update(step, values)
                if episodes is not None:
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
    """Collect Ctrl-C and SIGTERM in a list, so that the run stops at the next log row.

    Yields the list, to which each signal adds its number. After the first signal, another
    Ctrl-C raises a `KeyboardInterrupt`, and a SIGTERM ends the process at once. Clusters send
    SIGTERM before they kill a job. Outside of the main thread, where Python cannot handle
    signals, the list stays empty.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def on_signal(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if received:
            os._exit(128 + number)
        received.append(number)
        # The signal may have interrupted a print, and a second print inside it would fail.
        with suppress(OSError):
            os.write(2, STOPPING)

    def on_unraisable(ignored: Any) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            again = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            previous_hook(ignored)

    # Python ignores errors in finalizers and in callbacks of weak references and of the
    # garbage collector. A Ctrl-C that arrives there is sent again.
    previous_hook, sys.unraisablehook = sys.unraisablehook, on_unraisable
    before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        sys.unraisablehook = previous_hook
        for number, handler in before.items():
            signal.signal(number, handler)


def evaluate(
    runner: Runner, step: int
) -> tuple[list[dict[str, float]], dict[str, float], Episodes]:
    """Evaluate the deployed policy.

    Returns one row per episode for evaluations.csv, the summary, and the episodes.
    """
    settings, agent = runner.config.evaluation, runner.state.agent
    policy = agent_core.deployed_policy(agent)
    uses_mean = delivery.uses_mean(agent, runner.config)
    episodes = runner.evaluate(policy, settings.episodes, uses_mean)
    spec = runner.spec
    rows = [{"env_steps": step, **row} for row in episodes.rows(spec.cost_names)]
    constraints = runner.config.constraints
    summary = summarise(episodes, constraints, spec.cost_names, spec.metrics)
    return rows, summary, episodes


def steer_run(
    runner: Runner,
    report: StepReport,
    episodes: Episodes | None,
    step: int,
    counters: Counters,
) -> dict[str, float]:
    """Measure the risk of the deployed policy with new episodes, and adjust the run to it.

    `episodes` are the episodes of the evaluation at this step, or None if there was no
    evaluation. The costs of the new episodes are included in `counters`. Returns the metrics
    of the measurement.
    """
    config, spec = runner.config, runner.spec
    state, measured = runner.state, runner.state.measured
    # Costs of the training episodes that were played with the deployed policy.
    played = np.zeros((0, len(config.constraints)))
    if not isinstance(report.deployed, tuple):
        played = np.asarray(report.totals.cost[report.ended & report.deployed])
        measured = measurement.add(measured, played, step)
    if episodes is not None:
        measured = measurement.count_steps(measured, episodes)
    if episodes is not None and step >= config.training.learning_starts:
        candidates, agent = state.candidates, state.agent
        policy = agent_core.deployed_policy(agent)
        uses_mean = delivery.uses_mean(agent, config)

        def play(count: int) -> Episodes:
            nonlocal measured
            more = runner.evaluate(policy, count, uses_mean, sample=RETEST)
            measured = measurement.count_steps(measured, more)
            counters.include_costs(more.cost)
            return more

        measured = measurement.add(measured, episodes.cost, step)
        candidates = delivery.consider(
            candidates, agent, episodes, step, config, spec.episode_length, play
        )
        state = state._replace(candidates=candidates)
        if measurement.compares_actions(measured, step, config):
            other = runner.evaluate(
                policy, len(episodes), not uses_mean, sample=COMPARE
            )
            measured = measurement.count_steps(measured, other)
            counters.include_costs(other.cost)
            if delivery.is_better(other, episodes, config):
                steering = agent.steering
                steering = steering._replace(samples=~steering.samples)
                state = state._replace(agent=agent._replace(steering=steering))
                measured = measured._replace(
                    added=np.zeros((), np.int32), switched=np.True_
                )
    window = None
    if len(played) or episodes is not None:
        key = jax.random.fold_in(jax.random.key(config.seed), NEW_ACTOR)
        length = config.env.episode_length or spec.episode_length or 1
        agent, measured, window = measurement.steer(
            key, state.agent, measured, step, runner.learner, config, length
        )
        state = state._replace(agent=agent)
    else:
        window = measurement.window_risk(measured, step, config)
    # Replace only these fields. If the evaluation was made in the training environment, it
    # may have started new episodes, which changed other fields.
    runner.state = runner.state._replace(
        agent=state.agent, candidates=state.candidates, measured=measured
    )
    return measurement.metrics(measured, window, step, state.agent, config)


def progress_values(
    metrics: Mapping[str, float],
    config: Config,
    cost_names: Sequence[str],
    counters: Counters,
) -> dict[str, float | str]:
    """Return the values to show in the progress bar.

    They are the reward, the first cost, and for the first constraint the measured risk, the
    limit, the critics' risk and limit, and the multiplier. If the multiplier follows episodes,
    the risk is measured in the window of recent episodes, and otherwise in the last
    evaluation.
    """
    reward: dict[str, float | str] = {"reward": metrics["train/reward"]}
    if cost_names:
        column = cost_column(cost_names[0])
        reward["cost"] = metrics[f"train/{column}"]
    if not config.constraints:
        return reward
    constraint = config.constraints[0]
    name = constraint.name
    if config.agent.follows_episodes:
        risk, count = metrics[f"measured/risk/{name}"], metrics["measured/episodes"]
        episodes = f"{count:.0f} of {measurement.window_size(config)} episodes"
    else:
        risk = counters.evaluated.get("risk", [math.nan])[0]
        episodes = f"{counters.evaluated.get('episodes', 0)} episodes"
    measured = "-" if math.isnan(risk) else f"{risk:.4g}"
    return {
        "measured risk": f"{measured} ({episodes})",
        "limit": constraint.limit,
        **reward,
        "critics' risk": metrics[f"constraint/risk/{name}"],
        "critics' limit": metrics[f"constraint/limit/{name}"],
        "multiplier": metrics[f"constraint/multiplier/{name}"],
    }
