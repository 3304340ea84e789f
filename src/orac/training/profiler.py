"""Measure how long each part of a training run takes, for `orac train --profile`.

While the profiler is active, it replaces methods of the runner, the logger and a Gymnasium
environment by versions that measure their time. The loops themselves do not change. The parts
of a compiled program cannot be timed while it runs. So acting is timed separately after the
run, and so is the environment if it is compiled. The rest of the training time is counted as
storing and updating.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import monitoring

from orac.envs.base import step_batch, to_box
from orac.training.device_loop import DeviceRunner
from orac.training.run_logger import Logger
from orac.training.run_loop import Runner
from orac.training.state import without_seed
from orac.training.train_step import choose_action
from orac.training.xla import compiler_options

COMPILING = "/jax/core/compile/"
"""Start of the names of the events with which JAX reports the time of a compilation."""
ROUNDS = 100
"""Number of rounds for which acting and a compiled environment are timed after the run."""


class Profiler:
    """Context manager that measures how long each activity of a training run takes."""

    def __init__(self, runner: Runner, logger: Logger) -> None:
        self.runner, self.logger = runner, logger
        self.seconds: dict[str, float] = {}
        self.steps = 0
        self._open: list[str] = []
        self._inside = 0.0

    def __enter__(self) -> "Profiler":
        """Start timing."""
        listeners().append(self._add_compilation)
        self._first = int(self.runner.state.rounds)
        self._started = time.perf_counter()
        self._replaced: list[tuple[Any, str]] = []
        self._time(self.runner, "advance", "training")
        self._time(self.runner, "evaluate", "evaluating")
        self._time(self.logger, "save", "saving")
        env = getattr(self.runner, "env", None)
        if not isinstance(self.runner, DeviceRunner):
            self._time(env, "step", "environment")
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop timing the run. Then time acting and a compiled environment separately."""
        total = time.perf_counter() - self._started
        listeners().remove(self._add_compilation)
        for owner, name in self._replaced:
            delattr(owner, name)
        if error[0] is not None:
            return
        self.seconds["everything else"] = total - sum(self.seconds.values())
        training = self.runner.config.training
        last = int(self.runner.state.rounds)
        rounds = last - self._first
        self.steps = rounds * training.num_envs
        learning = max(self._first, -(-training.learning_starts // training.num_envs))
        parts = {"acting": max(last - learning, 0) * time_acting(self.runner)}
        if isinstance(self.runner, DeviceRunner):
            parts["environment"] = rounds * time_environment(self.runner)
        left = self.seconds.pop("training", 0.0)
        for name, seconds in parts.items():
            self.seconds[name] = min(seconds, left)
            left -= self.seconds[name]
        self.seconds["storing and updating"] = left

    def table(self) -> str:
        """Return a table of the activities and the time that each of them took."""
        order = (
            *("acting", "environment", "storing and updating", "evaluating"),
            *("saving", "compiling", "everything else"),
        )
        total = sum(self.seconds.values())
        lines = [f"Where the time of these {self.steps:,} steps went:"]
        for name in order:
            seconds = self.seconds.get(name, 0.0)
            per_step = 1e3 * seconds / max(self.steps, 1)
            share = seconds / total if total else 0.0
            lines.append(
                f"  {name:<21} {seconds:8.2f} s {per_step:9.4f} ms per step {share:5.0%}"
            )
        lines.append(f"  {'in total':<21} {total:8.2f} s")
        return "\n".join(lines)

    def _time(self, owner: Any, name: str, activity: str) -> None:
        """Replace a method of an object by a version whose time counts for this activity."""
        method = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            if "evaluating" in self._open:
                # A step of the training environment in an evaluation counts as evaluating.
                return method(*arguments, **options)
            outside, self._inside = self._inside, 0.0
            self._open.append(activity)
            started = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                seconds = time.perf_counter() - started
                self._open.pop()
                self._add(activity, seconds - self._inside)
                self._inside = outside + seconds

        setattr(owner, name, timed)
        self._replaced.append((owner, name))

    def _add(self, activity: str, seconds: float) -> None:
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def _add_compilation(self, seconds: float) -> None:
        self._add("compiling", seconds)
        self._inside += seconds


@cache
def listeners() -> list[Callable[[float], None]]:
    """Return the list of functions that are called with the seconds of each compilation.

    A listener that is registered with JAX cannot be removed, so all profilers share one.
    """
    found: list[Callable[[float], None]] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event.startswith(COMPILING):
            for listener in found:
                listener(duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
    return found


def time_acting(runner: Runner) -> float:
    """Return how many seconds the behaviour policy needs to act once in all environments."""
    config, learner, key = (
        without_seed(runner.config),
        runner.learner,
        jax.random.key(0),
    )
    state = runner.state._replace(replay=(), measured=(), candidates=())

    def act(key: Any, state: Any) -> Any:
        return choose_action(key, state, learner, config)[0]

    def act_often(state: Any) -> Any:
        def once(i: Any, total: Any) -> Any:
            # Change the observation in every round, so that the compiler cannot move acting
            # out of the loop.
            now = state._replace(observation=state.observation + 1e-9 * total)
            return total + act(jax.random.fold_in(key, i), now).mean()

        return jax.lax.fori_loop(0, ROUNDS, once, jnp.float32(0))

    if isinstance(runner, DeviceRunner):
        return time_call(act_often, state) / ROUNDS
    return time_call(partial(act, key), state, calls=ROUNDS)


def time_environment(runner: DeviceRunner) -> float:
    """Return how many seconds it takes to step all compiled environments once."""
    env, key, spec = runner.env, jax.random.key(0), runner.spec
    shape = (runner.config.training.num_envs, spec.action_size)

    def step_often(env_state: Any) -> Any:
        def once(i: Any, carry: Any) -> Any:
            step_key, act_key = jax.random.split(jax.random.fold_in(key, i))
            action = jax.random.uniform(act_key, shape, minval=-1.0, maxval=1.0)
            state, observation, step = step_batch(
                env, step_key, carry[0], to_box(spec, action)
            )
            state = jax.tree.map(
                lambda new, old: jax.lax.convert_element_type(new, old.dtype),
                state,
                carry[0],
            )
            read = step.reward.sum() + step.cost.sum() + observation.sum()
            return state, carry[1] + read

        return jax.lax.fori_loop(0, ROUNDS, once, (env_state, jnp.float32(0)))

    return time_call(step_often, runner.state.env) / ROUNDS


def time_call(function: Callable[[Any], Any], state: Any, calls: int = 1) -> float:
    """Return how many seconds one call of a function takes when it is compiled.

    The result is the mean over `calls` calls, in the fastest of five repetitions.
    """
    program = jax.jit(function, compiler_options=compiler_options())
    jax.block_until_ready(program(state))
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(program(state))
        best = min(best, (time.perf_counter() - started) / calls)
    return best
