"""An agent as users hold it: it learns, predicts, is evaluated, certified and saved.

A thin shell: an environment and a config become a runner, which the loop drives. Names
follow Stable-Baselines3 where it has them. `making.py` has the words that make one.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.config.validation import check_seed
from orac.core.agent import mean_action, sampled_action
from orac.core.cost_models import Problem
from orac.envs.base import EnvSpec, to_box
from orac.envs.gym_adapter.costs import CostFn
from orac.evaluation.certificates import Certificate
from orac.evaluation.result import Evaluation, certify
from orac.evaluation.rollout import Episodes, summarise
from orac.options import check_callback, checked_tails
from orac.policy import observation_rows
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory
from orac.runs.loggers import check_trackers
from orac.runs.progress import Progress
from orac.training import saving
from orac.training.loop import Callback, Counters, run_loop
from orac.training.run_logger import NoRecords, Records, RunRecords
from orac.training.runners import HostRunner
from orac.training.state import problem_of
from orac.wiring import is_id, make_runner, with_cost_fn


class NothingLearned(UserWarning):
    """The warning that a run will end before its learning starts."""


class NotRecorded(UserWarning):
    """The warning that an agent trains on beside its run directory."""


def nothing_learned(config: Config) -> str:
    """The sentence of that warning; empty when the run will learn."""
    start, total = config.training.learning_starts, config.training.total_steps
    if start < total:
        return ""
    return (
        f"learning starts at step {start:,} and the run ends at {total:,}: it only acts "
        "at random. Set training.learning_starts lower, or train longer."
    )


class Agent:
    """An agent in its environment. Make one with `orac.ORAC` and its siblings."""

    def __init__(
        self,
        env: Any,
        config: Config,
        *,
        cost_fn: CostFn | str | None = None,
        host_options: Mapping[str, Any] | None = None,
    ) -> None:
        presets.check_algorithm(config)
        self.config, cost_function = with_cost_fn(config, cost_fn)
        self.runner = make_runner(env, self.config, cost_function, host_options)
        # It knows what a factory without a name makes.
        self.config = self.runner.config
        self.run_path: Path | None = None
        self._counters = Counters()

    def __repr__(self) -> str:
        config = self.config
        return f"<{config.algo} in {config.env.id} after {self.num_timesteps:,} steps>"

    @property
    def spec(self) -> EnvSpec:
        """What the environment says of itself: sizes, boxes, names of costs."""
        return self.runner.spec

    @property
    def problem(self) -> Problem:
        """Sizes, constraints, and their limits in the critics' units."""
        return problem_of(self.spec, self.config)

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken so far."""
        return int(self.runner.state.rounds) * self.config.training.num_envs

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Callback | None = None,
        progress_bar: bool = True,
        out: str | Path | None = None,
        name: str = "default",
        trackers: Sequence[str] = ("tensorboard",),
    ) -> "Agent":
        """Train until `total_timesteps` environment steps were taken in all.

        The steps of earlier calls count: `learn(1000)`, then `learn(3000)`, takes 3000.
        With `out` everything is kept in a run directory below it, and `orac.resume` goes
        on from there after any stop. A callback gets an `Event` at each log row and each
        evaluation; the run stops when it returns False.
        """
        check_callback(callback)
        self._set_total(total_timesteps)
        sentence = nothing_learned(self.config)
        if sentence:
            warnings.warn(sentence, NothingLearned, stacklevel=2)
        records: Records = NoRecords()
        if out is None and self.run_path is not None:
            warnings.warn(
                f"these steps are not recorded in {self.run_path}, which ends where it is. "
                "orac.resume goes on with it, and records.",
                NotRecorded,
                stacklevel=2,
            )
        if out is not None:
            if self.num_timesteps:
                raise ValueError(
                    "out must be given at the first call of learn, got it after "
                    f"{self.num_timesteps:,} steps, whose records would be missing. "
                    "Make a new agent, or save this one with save(); orac.resume goes on "
                    "with a run directory."
                )
            check_trackers(trackers)
            run = RunDirectory.create(
                out,
                self.config.env.id,
                self.config.algo,
                self.config.seed,
                config_text.to_dict(self.config),
                name,
            )
            self.run_path = run.path
            records = RunRecords(run, self.runner, trackers)
        self._train(records, callback, progress_bar)
        return self

    def _set_total(self, total_timesteps: int | None) -> None:
        training, taken = self.config.training, self.num_timesteps
        if total_timesteps is not None:
            training = replace(training, total_steps=total_timesteps)
        total = training.total_steps
        if total <= taken:
            raise ValueError(
                "total_timesteps is the grand total of all calls of learn and must be above "
                f"the {taken:,} steps taken so far, got {total:,}. For {total:,} more, pass "
                f"{taken + total:,}."
            )
        if training != self.config.training:
            self.config = replace(self.config, training=training)
            self.runner.configure(self.config)

    def _train(
        self, records: Records, callback: Callback | None, progress_bar: bool
    ) -> None:
        total = self.config.training.total_steps
        try:
            with Progress(total, self.num_timesteps, quiet=not progress_bar) as bar:
                run_loop(
                    self.runner,
                    records,
                    self._counters,
                    callback=callback,
                    agent=self,
                    progress=bar,
                )
        except Exception as error:
            if self.run_path is not None:
                error.add_note(self._way_back(self.run_path))
            raise
        finally:
            records.close()

    def _way_back(self, path: Path) -> str:
        """How to go on after an error: from a checkpoint, since logs end at those too."""
        env, steps = self.config.env, Checkpoints(path / "checkpoints").steps()
        saved = f"Saved up to step {steps[-1]:,}." if steps else "Nothing is saved yet."
        if not is_id(env.id):
            return f"{saved} Go on with: orac.resume({str(path)!r}, env=...)"
        words = f" --env-id {env.id}" if ":" in env.id else ""
        words += f" --cost-fn {env.cost_fn}" if env.cost_fn else ""
        return f"{saved} Go on with: orac resume {path}{words}"

    def predict(
        self,
        observation: Any,
        state: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch of them, in the environment's box.

        A dict or a tuple, as the environment returns it, is flattened. `state` is for
        symmetry with Stable-Baselines3: policies here have none. Without `deterministic`
        the action is drawn with `seed`.
        """
        if isinstance(self.runner, HostRunner) and is_nested(observation):
            observation = self.runner.env.flatten(observation)
        size = self.spec.observation_size
        rows = observation_rows(observation, size)
        batch = jnp.asarray(rows.reshape(-1, size))
        agent = self.runner.state.agent
        if deterministic:
            action = mean_action(agent, batch, self.config.agent)
        else:
            seed = np.random.randint(2**31) if seed is None else seed
            check_seed("seed", seed)
            key = jax.random.key(seed)
            action = sampled_action(key, agent, batch, self.config.agent)
        action = np.asarray(to_box(self.spec, action))
        return (action[0] if rows.ndim == 1 else action), state

    def evaluate(
        self,
        episodes: int = 100,
        deterministic: bool = True,
        tails: float | Sequence[float] = (),
        seed: int | None = None,
    ) -> Evaluation:
        """Whole episodes of the present policy, and what they say about its risk.

        Without a seed the same call plays the same episodes again. A seed chooses others;
        the same seed stands for the same starts, whatever the policy.
        """
        tails = checked_tails(tails)
        rolled = self.runner.evaluate(episodes, deterministic, seed)
        summary = summarise(
            rolled, self.config.constraints, self.spec.cost_names, tails
        )
        return Evaluation(summary, rolled)

    def certify(
        self, episodes: Episodes, confidence: float = 0.95
    ) -> list[Certificate]:
        """What such episodes prove, constraint by constraint, beyond sampling error."""
        return certify(episodes, self.config.constraints, self.spec, confidence)

    def save(self, path: str | Path) -> None:
        """Write the agent (not its replay) to one file; `orac.load` reads it back."""
        saving.save(path, self.config, self.spec, self.runner.state.agent)

    def export(self, path: str | Path) -> None:
        """Write the policy for deployment: `orac.policy.load` runs it with NumPy alone."""
        saving.export(path, self.config, self.spec, self.runner.state.agent)

    def close(self) -> None:
        """Close the environment."""
        self.runner.close()


def is_nested(observation: Any) -> bool:
    """Whether this is an observation of a Dict or Tuple space, not numbers already."""
    if isinstance(observation, tuple):
        return any(np.ndim(part) > 0 for part in observation)
    return isinstance(observation, Mapping)
