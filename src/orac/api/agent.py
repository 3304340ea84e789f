"""The class `Agent`, with methods to train, evaluate, certify, save and export an agent."""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from orac.api.environments import (
    describe_task,
    is_env_id,
    make_runner,
    run_arguments,
    with_cost_fn,
)
from orac.api.evaluation import Evaluation, checked_tails, to_evaluation
from orac.api.options import options_to_record
from orac.config import presets, serialization
from orac.config.schema import Config, Constraint, Encoder, TrainingConfig
from orac.config.validation import (
    NonFiniteError,
    check_choice,
    check_count,
    check_flag,
    check_path,
    check_seed,
    shown,
    with_shell_text,
)
from orac.core.agent import (
    AgentState,
    PolicyState,
    deployed_policy,
    mean_action,
    sampled_action,
)
from orac.core.cost_models import Problem
from orac.envs.base import EnvSpec, to_box
from orac.envs.identity import code_record
from orac.envs.user_code import CostFn, can_be_imported, cost_fn_location, stop_script
from orac.evaluation import certification
from orac.evaluation.certification import Certification, certify_candidates
from orac.evaluation.cvar_bounds import Certificate
from orac.evaluation.episodes import (
    Episodes,
    certify,
    check_cost_bounds,
    cost_column,
    risk_phrase,
)
from orac.policy import observation_rows
from orac.reports.charts import constraint_charts, overview_charts
from orac.reports.matplotlib_figures import draw_curves
from orac.reports.run_reader import Run, group_runs, read_columns, read_run
from orac.reports.tables import Table, to_html
from orac.runs.atomic_io import shown_path, write_text
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import (
    RunDirectory,
    check_run_name,
    config_checksum,
    run_path,
)
from orac.runs.machine import check_memory
from orac.runs.progress import Progress
from orac.runs.trackers import check_trackers
from orac.training import delivery, export, measurement, notes, saving
from orac.training.delivery import Delivered, delivered, uses_mean
from orac.training.encoder_loading import (
    EncoderPair,
    check_features,
    place_of_encoder,
    with_encoder,
)
from orac.training.health import check_parameters
from orac.training.host_loop import HostRunner
from orac.training.profiler import Profiler
from orac.training.run_logger import NO_CHECKPOINTS, Logger, MemoryLogger, RunLogger
from orac.training.run_loop import Callback, Counters, run_loop
from orac.training.state import CERTIFY, REQUESTED, empty_replay, memory_needs
from orac.training.xla import enable_compilation_cache

TASK_ENTRIES = ("host_options", "env_made_from", "cost_fn")
"""Entries of meta.json, and of a saved agent, that describe the task of the training."""


class ShortRunWarning(UserWarning):
    """Warns that a run ends before its learning starts."""


class NotRecordedWarning(UserWarning):
    """Warns that training continues without writing to the agent's run directory."""


class Agent:
    """An agent together with its environment.

    Make one with `orac.ORAC`, `orac.WCSAC`, `orac.SACLagrangian` or `orac.SAC`, or load one
    with `orac.load`.

    The replay buffer is allocated when training starts, so an agent that only predicts,
    evaluates or certifies never has one.
    """

    def __init__(
        self,
        env: Any,
        config: Config,
        *,
        cost_fn: CostFn | str | None = None,
        encoder: EncoderPair | str | None = None,
        host_options: Mapping[str, Any] | None = None,
    ) -> None:
        stop_script()
        presets.check_algorithm(config)
        enable_compilation_cache()
        config, cost_function = with_cost_fn(config, cost_fn)
        config = with_encoder(config, encoder)
        self._meta: dict[str, Any] = {}
        """Additional entries for meta.json of this agent's run."""
        if cost_function is not None:
            place = cost_fn_location(config.env.cost_fn or "", cost_function)
            self._meta["cost_fn"] = {**place, **code_record(cost_function)}
        if isinstance(config.agent.encoder, Encoder):
            self._meta["encoder"] = place_of_encoder(config.agent.encoder)
        self._meta["host_options"] = options_to_record(host_options or {})
        self.env_id = env if isinstance(env, str) else config.env.id
        """Id of the environment as the user gave it, which may name its module."""
        self.runner = make_runner(env, config, cost_function, host_options or {})
        self._meta["env_made_from"] = describe_task(self.runner)
        if (host_options or {}).get("cost_bound") is not None:
            bounds = self.runner.spec.cost_bounds or ()
            self._meta["cost_bound"] = [float(bound) for bound in bounds]
        check_features(self.runner.state.agent, self.runner.state.observation, config)
        self.run_path: Path | None = None
        self._source: Path | None = None
        """File or run directory that the agent was loaded from."""
        self._new_env: str | None = None
        """Name of the present environment if a loaded agent was trained in another, or None."""
        self._new_cost_fn: str | None = None
        """Name of the present cost function if a loaded agent was trained with another, or
        None."""
        self._new_task_reason = ""
        """How the present environment or cost function differs from that of training."""
        self._not_compared = ""
        """Sentence that says why the cost function was not compared with that of training."""
        self._task: Mapping[str, Any] | None = None
        """Record of the task that a loaded agent was trained in; None if it is the present
        one."""
        self._state_digest: str | None = None
        """Digest of the checkpoint that the agent was loaded from or last wrote, or None."""
        self._counters = Counters()
        self._history = MemoryLogger()
        """Metrics and evaluations of training without `out`."""
        self._checked: tuple[Any, Any] = None, None
        """Agent state and candidates whose numbers were last checked to be finite."""
        self._certified: int | None = None
        """Index of the certified candidate, which is the delivered policy, or None."""
        self.profile: Profiler | None = None
        """Timings of the last call of `learn` if it had `profile=True`, otherwise None."""
        self.stop_signal: int | None = None
        """Number of the signal that stopped the last call of `learn`, or None."""

    def __repr__(self) -> str:
        config = self.config
        limits = " and ".join(limit_text(c, config) for c in config.constraints)
        text = f"{config.algo} in {config.env.id} after {self.num_timesteps:,} steps"
        return f"<{text}: limit {limits}>" if limits else f"<{text}>"

    def _repr_html_(self) -> str:
        config, best = self.config, self.best
        steps = f"{self.num_timesteps:,} of {config.training.total_steps:,}"
        rows = [("steps", steps)]
        rows += [("limit", limit_text(c, config)) for c in config.constraints]
        if best is not None:
            text = f"step {best.step:,}, reward {best.reward:.4g}"
            if best.risk:
                text += f", {notes.risk_text(best.risk, config)}"
            rows.append(("policy", f"{text}, measured on {best.episodes:,} episodes"))
        if self.run_path is not None:
            rows.append(("run", str(shown_path(self.run_path))))
        title = f"{config.algo} in {config.env.id}"
        return to_html(Table(title, ("agent", config.algo), tuple(rows)))

    @property
    def config(self) -> Config:
        """All settings of the agent and its run."""
        return self.runner.config

    @property
    def config_of_env(self) -> Config:
        """The config, with the present environment's id even if training used another one."""
        if self._new_env is None:
            return self.config
        return replace(self.config, env=replace(self.config.env, id=self._new_env))

    @property
    def _has_own_task(self) -> bool:
        """Whether the agent still has the environment and cost function of its training."""
        return self._new_env is None and self._new_cost_fn is None

    @property
    def spec(self) -> EnvSpec:
        """Sizes, action bounds, cost names and metrics of the environment."""
        return self.runner.spec

    @property
    def problem(self) -> Problem:
        """Sizes, constraints, and limits converted to the critics' discounted units."""
        return self.runner.learner.problem

    @property
    def num_timesteps(self) -> int:
        """Number of environment steps taken so far."""
        return int(self.runner.state.rounds) * self.config.training.num_envs

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Callback | None = None,
        progress_bar: bool = True,
        out: str | Path | None = None,
        name: str = "default",
        trackers: Sequence[str] = ("tensorboard",),
        profile: bool = False,
        *,
        more_steps: int | None = None,
    ) -> "Agent":
        """Train until `total_timesteps` environment steps have been taken in total.

        Steps of earlier calls count: `learn(1000)` followed by `learn(3000)` takes 3000
        steps. Instead of the total, you can pass the number of additional steps as
        `more_steps`. Schedules, such as that of the shift radius, end at the total of the
        first call, and their values stay constant after that. If `out` is given, logs and
        checkpoints are written to a run directory below this path, and `orac.resume`
        continues the run after any interruption. The callback receives an `Event` at each
        log row, and the run stops if the callback returns False. If `profile` is true,
        `agent.profile.table()` shows afterwards how long each part took.

        An agent from `orac.load` continues with the replay of its run. If the replay was not
        saved, the agent's policy first collects steps for a new one.
        """
        check_callback(callback)
        if out is not None:
            check_path("out", out)
            check_run_name(name)
            check_trackers(trackers)
        training = self._longer_training(total_timesteps, more_steps)
        logger: Logger = self._history
        if out is None and self.run_path is not None:
            total = f"total_timesteps={training.total_steps}"
            warnings.warn(
                f"these steps will not be written to {shown_path(self.run_path)}. To record "
                f"them, use {self._resume_call(self.run_path, total)} instead.",
                NotRecordedWarning,
                stacklevel=2,
            )
        waiting = self._source is not None and not self.runner.state.replay
        if out is not None and self.num_timesteps and not waiting:
            raise ValueError(
                "out must be passed to the first call of learn, but this agent has "
                f"already taken {self.num_timesteps:,} steps. "
                "Make a new agent, or write this one to a file with save() and load it with "
                "orac.load. To continue a run directory, use orac.resume."
            )
        check_memory(memory_needs(self.spec, self.config, with_replay=True))
        self._configure(training)
        if waiting:
            self._meta["continued_from"] = {
                "path": str(shown_path(self._source or "")),
                "step": self.num_timesteps,
                "env": self.config.env.id,
            }
        sentences = self._restore_replay() if waiting else []
        short = short_run(self.config)
        if short:
            warnings.warn(short, ShortRunWarning, stacklevel=2)
        if out is not None:
            run = self._create_run(out, name)
            self.run_path = run.path
            logger = RunLogger(run, self.runner, trackers)
            if waiting:
                logger.save(self.num_timesteps, self.runner, self._counters)
        self._train(logger, callback, progress_bar, profile, sentences)
        return self

    def _create_run(self, out: str | Path, name: str) -> RunDirectory:
        """Create the run directory. If it exists, the error says how to continue that run."""
        config = self.config
        place = config.env.id, config.algo, config.seed
        try:
            return RunDirectory.create(
                out, *place, serialization.to_dict(config), name, self._meta
            )
        except FileExistsError as error:
            path = run_path(out, *place, name)
            held = f"{path} already holds a run."
            call, command = self._resume_call(path), self._how_to_continue(path)
            total = config.training.total_steps
            if total > total_steps_of(path, total):
                call = self._resume_call(path, f"total_timesteps={total}")
                command += f" --total-steps {total}"
            new = FileExistsError(
                f"{held} For a new run, pass another name= or out= to learn, or another "
                f"seed= to the agent. To continue that run: {call}"
            )
            shell = (
                f"{held} Add another --name, --seed or --out for a new one. {command}"
            )
            raise with_shell_text(new, shell) from error

    def _longer_training(
        self, total_timesteps: int | None, more_steps: int | None
    ) -> TrainingConfig:
        """Check the numbers of steps and return the training settings with the new total."""
        training, taken = self.config.training, self.num_timesteps
        if more_steps is not None:
            if total_timesteps is not None:
                raise ValueError(
                    "give either total_timesteps, which counts the steps of all calls, or "
                    f"more_steps, got {total_timesteps!r} and {more_steps!r}."
                )
            check_count("more_steps", more_steps)
            total_timesteps = taken + more_steps
        return extended_training(training, total_timesteps, taken)

    def _configure(self, training: TrainingConfig) -> None:
        if training != self.config.training:
            self.runner.configure(replace(self.config, training=training))

    def _restore_replay(self) -> list[str]:
        """Restore the training state of the run that the agent was loaded from.

        If the agent was loaded from a file, or with another environment or cost function,
        training starts with new episodes and an empty replay instead. Returns sentences for
        the user.
        """
        path, step = self._source, self.num_timesteps
        assert path is not None
        if path.is_dir() and self._has_own_task:
            checkpoints = Checkpoints(path / "checkpoints")
            loaded, messages = saving.restore_state(
                checkpoints, self.runner, self._counters
            )
            if loaded is None or loaded.step != step:
                raise ValueError(
                    f"{shown_path(path)} has changed since the agent was loaded from it at step "
                    f"{step:,}. Load it again."
                )
            return [*messages, *self._collect_first()]
        state = self.runner.state
        if not self._has_own_task:
            self._task = None
        if self._new_env is not None:
            self.runner.configure(self.config_of_env)
        if not self._has_own_task and state.candidates:
            # Measurements in the other task are not valid in this one.
            empty = delivery.init(state.agent, self.config)
            state = state._replace(candidates=empty)
        if self.config.agent.follows_episodes:
            state = state._replace(measured=measurement.init(self.config, step))
        empty = empty_replay(self.problem, self.config)
        self.runner.restore(state._replace(replay=empty), None)
        return self._collect_first()

    def _collect_first(self) -> list[str]:
        """If the replay of a trained agent is empty, delay the first update.

        Until the first update, the policy collects steps. Returns sentences for the user.
        """
        training, step = self.config.training, self.num_timesteps
        if int(self.runner.state.replay.inserted) or step < training.learning_starts:
            return []
        count = max(training.learning_starts, training.batch_size)
        self._configure(replace(training, updates_start=step + count))
        why = "the agent was loaded without its replay"
        if self._new_env is not None:
            why = "the agent was trained in another environment"
        elif not self._has_own_task:
            why = "the agent was trained with another cost function"
        return [
            f"{why}, so its policy collects {count:,} steps before the first update, at "
            f"step {step + count:,}."
        ]

    def _train(
        self,
        logger: Logger,
        callback: Callback | None,
        progress_bar: bool,
        profile: bool = False,
        sentences: Sequence[str] = (),
    ) -> None:
        """Run the training loop with a progress bar that first shows these sentences."""
        total = self.config.training.total_steps
        self._certified = None
        on_host = isinstance(self.runner, HostRunner)
        self.profile = Profiler(self.runner, logger) if profile else None
        try:
            with (
                self.profile or nullcontext(),
                Progress(total, self.num_timesteps, quiet=not progress_bar) as bar,
            ):
                if self.num_timesteps < total:
                    bar.notes(sentences)
                    bar.notes(notes.start_notes(self.config, self.spec, on_host))
                self.stop_signal = run_loop(
                    self.runner,
                    logger,
                    self._counters,
                    callback=callback,
                    agent=self,
                    progress=bar,
                )
                if self.stop_signal and self.num_timesteps < total:
                    bar.print(self.stopped_text(isinstance(logger, RunLogger)))
        except Exception as error:
            if self.run_path is not None:
                steps = Checkpoints(self.run_path / "checkpoints").steps()
                saved = (
                    f"Saved up to step {steps[-1]:,}."
                    if steps
                    else "Nothing is saved yet."
                )
                error.add_note(f"{saved} {self._how_to_continue(self.run_path)}")
            raise
        finally:
            recorded = isinstance(logger, RunLogger)
            self._state_digest = logger.checkpoints.state_digest if recorded else None
            logger.close()

    def _how_to_continue(self, path: Path) -> str:
        """Return a sentence with the command that continues the run."""
        if any(argument.endswith("=...") for argument in self._own_code()):
            return f"Continue with: {self._resume_call(path)}"
        bounds = self._meta.get("cost_bound")
        arguments = run_arguments(path, self.config, bounds, self.env_id)
        return f"Continue with: orac resume {arguments}"

    def _resume_call(self, path: Path, *more: str) -> str:
        """Return the call of `orac.resume` that continues the run in Python."""
        return f"orac.resume({', '.join([repr(str(shown_path(path))), *self._own_code(), *more])})"

    def _own_code(self) -> list[str]:
        """Return the arguments that `orac.resume` needs for the user's own code.

        The value of an argument is `...` if the user's object has no name that orac can import.
        """
        env, cost_fn = self.config.env.id, self.config.env.cost_fn
        names = {"cost_fn": cost_fn, "encoder": self.config.agent.encoder_name}
        arguments = [] if is_env_id(env) else ["env=..."]
        for argument, name in names.items():
            if name is not None:
                importable = can_be_imported(name)
                arguments.append(f"{argument}={repr(name) if importable else '...'}")
        return arguments

    def stopped_text(self, recorded: bool = True) -> str:
        """Return the step at which a signal stopped training, and how to continue.

        `recorded` says whether the steps were written to the run directory.
        """
        total = self.config.training.total_steps
        stopped = f"Stopped at step {self.num_timesteps:,} of {total:,}"
        if self.run_path is None or not recorded:
            return f"{stopped}. Continue with: agent.learn({total})"
        more = self._how_to_continue(self.run_path)
        return f"{stopped}; everything is saved.\n{more}"

    def _finite_agent(self) -> AgentState:
        """Return the agent's state.

        Raises an error if a number in it or in the candidates is not finite.
        """
        agent, candidates = self.runner.state.agent, self.runner.state.candidates
        if agent is not self._checked[0] or candidates is not self._checked[1]:
            for state in (agent, candidates):
                check_parameters(state, self.num_timesteps, self._newest_checkpoint())
            self._checked = agent, candidates
        return agent

    def _newest_checkpoint(self) -> str:
        """Return a sentence about the newest checkpoint, for an error message."""
        if self.run_path is not None:
            return Checkpoints(self.run_path / "checkpoints").newest_checkpoint()
        if self._source is not None:
            return (
                f"The agent was loaded from {shown_path(self._source)}; load it again."
            )
        return NO_CHECKPOINTS

    @property
    def best(self) -> Delivered | None:
        """The policy that the run delivers, with its measured reward and risk.

        If `certify` certified a policy, it is that policy. Otherwise it is the best candidate:
        the policy with the highest reward of those that had a second test and whose risk was
        at most (1 - agent.multiplier.margin) times the limit. If there is no candidate,
        it is the policy with the lowest risk. The value is None before the first evaluation
        after `training.learning_starts`, and for agents whose multiplier follows the critics.
        """
        candidates = self.runner.state.candidates
        return delivered(candidates, self._certified) if candidates else None

    def delivery_lines(self) -> list[str]:
        """Return lines to print about the policy that the run delivers.

        If no policy is within the limits, they name the most likely causes.
        """
        return notes.delivery_lines(self.runner, self._counters)

    def policy_of(self, checkpoint: str | None = None) -> tuple[PolicyState, bool]:
        """Return a policy, and whether it acts with its mean action.

        With `checkpoint="best"`, it is the delivered policy (see `best`). With "last", it is
        the deployed policy of the last step, which acts without exploration. With None, it is
        the delivered policy if there is one, and otherwise the same as with "last".
        """
        if checkpoint is not None:
            check_choice("checkpoint", checkpoint, ("best", "last"))
        agent, best = self._finite_agent(), self.best
        if checkpoint == "best" and best is None:
            raise ValueError(
                "checkpoint 'best' needs a policy that was evaluated during training, and "
                "this agent has none. Use checkpoint='last'."
            )
        if best is None or checkpoint == "last":
            return deployed_policy(agent), uses_mean(agent, self.config)
        return best.policy, not best.samples

    def predict(
        self,
        observation: Any,
        state: Any = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        checkpoint: str | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Return the action for one observation, or one action per row of a batch.

        `checkpoint` selects the policy as in `policy_of`. If `deterministic` is True, the
        action is the mean. If it is False, the action is sampled with `seed`. If it is None,
        the policy acts as in its evaluations. An observation that is a dict or a tuple can
        be passed as the environment returns it, or flattened. `state` exists for
        compatibility with Stable-Baselines3 and is returned unchanged as the second result.
        """
        size, structure = self.spec.observation_size, self.spec.observation_structure
        runner = self.runner
        if not structure and isinstance(runner, HostRunner) and is_nested(observation):
            observation = runner.env.flatten(observation)
        known = json.loads(structure) if structure else None
        rows = observation_rows(observation, size, known)
        batch = jnp.asarray(rows.reshape(-1, size))
        policy, uses_mean_action = self.policy_of(checkpoint)
        if deterministic is not None:
            check_flag("deterministic", deterministic)
            uses_mean_action = bool(deterministic)
        if uses_mean_action:
            action = mean_action(policy, batch, self.runner.learner)
        else:
            seed = np.random.randint(2**31) if seed is None else seed
            check_seed("seed", seed)
            key = jax.random.key(seed)
            action = sampled_action(key, policy, batch, self.runner.learner)
        action = np.asarray(to_box(self.spec, action))
        if not np.isfinite(action).all():
            raise NonFiniteError(
                "the agent's action must be finite, but for this observation it is not, "
                f"because the policy's weights are too large. {self._newest_checkpoint()}"
            )
        return (action[0] if rows.ndim == 1 else action), state

    def evaluate(
        self,
        episodes: int = 100,
        deterministic: bool | None = None,
        tails: float | Sequence[float] = (),
        seed: int | None = None,
        checkpoint: str | None = None,
    ) -> Evaluation:
        """Play whole episodes of a policy and summarise reward, cost and risk.

        `checkpoint` selects the policy as in `policy_of`, and `deterministic` has the same
        meaning as in `predict`. The summary contains the CVaR of every cost at each of the
        `tails` and at the tail of its constraint. Without a seed, the same call plays the
        same episodes again. A seed selects other episodes, and the same seed gives every
        policy the same initial states. Neither training nor `certify` plays these episodes.
        """
        tails = checked_tails(tails)
        policy, uses_mean_action = self.policy_of(checkpoint)
        if deterministic is not None:
            check_flag("deterministic", deterministic)
            uses_mean_action = bool(deterministic)
        rolled = self.runner.evaluate(
            policy, episodes, uses_mean_action, seed, REQUESTED
        )
        try:
            check_cost_bounds(rolled.cost.max(axis=0).tolist(), self.spec, "here")
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)
        return to_evaluation(rolled, self.config.constraints, self.spec, tails)

    @overload
    def certify(
        self, episodes: Episodes, confidence: float = 0.95
    ) -> list[Certificate]: ...

    @overload
    def certify(
        self,
        episodes: None = None,
        confidence: float = 0.95,
        *,
        looks: int = certification.LOOKS,
        episodes_max: int | None = None,
        log: Any = None,
    ) -> Certification: ...

    def certify(
        self,
        episodes: Episodes | None = None,
        confidence: float = 0.95,
        *,
        looks: int = certification.LOOKS,
        episodes_max: int | None = None,
        log: Any = None,
    ) -> list[Certificate] | Certification:
        """Test on fresh episodes whether the risk of a policy is within its limits.

        Up to five of the run's best policies are compared on validation episodes, and one of
        them is chosen. This policy then plays fresh episodes, at most `episodes_max` of them
        (the default is 20,000, or 100,000 in a JAX environment). If these episodes do not
        certify the policy, the same or another policy plays new episodes. There are at most
        `looks` such attempts. A certified policy becomes the delivered policy (`best`). The
        result is also written to certificate.json in the run directory, if `learn` or
        `orac.resume` wrote the agent's last step there. The same call plays the same episodes
        again. `log` is a function that receives messages.

        If `episodes` are given, nothing is played, and the method returns one certificate
        per constraint for them. They must not have been used to choose the policy.
        """
        self._finite_agent()
        constraints, spec = self.config.constraints, self.spec
        check_log(log)
        if episodes is not None and not isinstance(episodes, Episodes):
            raise ValueError(
                "episodes must be those of an evaluation, agent.evaluate(...).episodes, "
                f"got {shown(episodes)}. To limit the number of fresh episodes, pass "
                "episodes_max."
            )
        self._check_cost_bounds()
        if episodes is not None:
            if episodes.cost.shape[1:] != (spec.num_costs,):
                raise ValueError(
                    f"episodes must have one column for each cost of {spec.name} "
                    f"({', '.join(spec.cost_names)}), got costs of shape "
                    f"{episodes.cost.shape}. Pass episodes of this environment."
                )
            return certify(episodes, constraints, spec, confidence)
        stored = self.runner.state.candidates
        places = delivery.ranked(stored) if stored else []
        candidates = [delivered(stored, place) for place in places]
        if not candidates:
            policy, mean = self.policy_of("last")
            last = Delivered(policy, not mean, np.nan, (), 0, self.num_timesteps, False)
            candidates = [last]

        def play(candidate: Delivered, number: int, sample: int) -> Episodes:
            return self.runner.evaluate(
                candidate.policy,
                number,
                not candidate.samples,
                self.config.seed,
                CERTIFY + sample,
            )

        if episodes_max is None:
            on_host = isinstance(self.runner, HostRunner)
            episodes_max = (
                certification.EPISODES_MAX
                if on_host
                else certification.EPISODES_MAX_ON_DEVICE
            )
        result = certify_candidates(
            candidates,
            play,
            constraints,
            spec,
            confidence=confidence,
            looks=looks,
            episodes_max=episodes_max,
            log=log or (lambda text: None),
        )
        if result.certified and places:
            self._certified = places[result.looks[-1].candidate]
        if self.run_path is not None and self._is_recorded():
            write_certificate(self, result, self.run_path)
        return result

    def _is_recorded(self) -> bool:
        """Return whether the run directory has a checkpoint of the agent's last step."""
        newest = Checkpoints(Path(self.run_path or "") / "checkpoints").newest()
        own = self.num_timesteps, self._state_digest
        return newest is not None and (newest.step, newest.state_digest) == own

    def _check_cost_bounds(self) -> None:
        """Raise an error if an episode of training cost more than is declared possible."""
        spec = self.spec
        if spec.cost_bounds is None:
            return
        columns = [cost_column(name) for name in spec.cost_names]
        logs: dict[str, Mapping[str, np.ndarray]] = {}
        path = self._source if self._has_own_task else None
        path = path if self.run_path is None else self.run_path
        if path is not None and path.is_dir():
            files = [path / "episodes.csv", path / "evaluations.csv"]
            logs = {str(shown_path(file)): read_columns(file) for file in files}
        # The files may be missing, and training without `out` writes none.
        counted = dict(zip(columns, self._counters.largest_cost, strict=False))
        logs["training"] = to_columns([*self._history.evaluations, counted])
        for where, found in logs.items():
            # A column has NaN where a value is missing.
            costs = [np.nanmax(found.get(x, np.zeros(0)), initial=0.0) for x in columns]
            check_cost_bounds(costs, spec, where)

    def plot(self) -> Any:
        """Draw the risk, reward and cost of every evaluation, and the multipliers.

        Returns a matplotlib figure. A notebook shows it, and its `savefig` writes a file.
        """
        group = group_runs([self._logs()]).groups[0]
        if not group.evaluated:
            raise ValueError(
                "there is nothing to plot, because this agent was not evaluated while it "
                "trained. Train it (with evaluation.every above 0), or load the directory "
                "of its run instead of a file."
            )
        found = [*overview_charts([group]), *constraint_charts([group])]
        found = [chart for chart in found if chart.lines]
        return draw_curves(found, title=f"{group.label} in {group.env_id}")

    def _logs(self) -> Run:
        """Return the logs of training, from a run directory or from memory."""
        if self.run_path is not None:
            return read_run(self.run_path)
        history, source = self._history, self._source
        if not history.evaluations and source is not None and Path(source).is_dir():
            return read_run(source)
        logs = (to_columns(rows) for rows in (history.metrics, history.evaluations))
        metrics, evaluations = logs
        return Run(Path(), self.config, {}, metrics, {}, evaluations)

    def save(self, path: str | Path) -> None:
        """Write the agent without its replay to one file, for `orac.load`."""
        check_path("path", path)
        agent, candidates = self._finite_agent(), self.runner.state.candidates
        if self._certified is not None:
            candidates = delivery.keep_only(candidates, self._certified)
        record = self._meta if self._task is None else self._task
        saving.save_agent(
            path,
            self.config,
            self.spec,
            agent,
            candidates,
            self.num_timesteps,
            self._counters.largest_cost,
            {x: record[x] for x in TASK_ENTRIES if x in record},
        )

    def export(
        self,
        path: str | Path,
        checkpoint: str | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the policy to a file for deployment. The file extension selects the format.

        `.npz` is for `orac.policy.load`, which needs only NumPy. `.onnx` is for ONNX
        Runtime, with the input `observation` and the output `action`. `.stablehlo` is for
        `jax.export.deserialize`. All formats contain the scaling of observations and
        actions, and the policy takes batches of any size. If the policy samples its actions,
        the last two formats have a second input, `noise`, for standard normal numbers.
        `checkpoint` selects the policy as in `policy_of`. An existing file is replaced only
        if `overwrite` is true.
        """
        check_path("path", path)
        policy, uses_mean_action = self.policy_of(checkpoint)
        parts = self.config, self.spec, policy, uses_mean_action
        export.export_policy(path, *parts, overwrite)

    def close(self) -> None:
        """Close the environment."""
        self.runner.close()


def check_own_task(agent: Agent, path: str | Path) -> None:
    """Raise an error if an agent was loaded with another environment or cost function.

    Readers of the run directory would assume that a certificate in it is about the
    environment and the cost function that the run trained with.
    """
    env, cost_fn = agent.config.env.id, agent._new_cost_fn
    if agent._has_own_task:
        return
    other = (
        f"environment, {env}, got {agent._new_env}"
        if agent._new_env is not None
        else f"cost function, got {cost_fn}"
    )
    option = (
        f"--env-id {agent._new_env}"
        if agent._new_env is not None
        else f"--cost-fn {cost_fn}"
    )
    reason = f" ({agent._new_task_reason})" if agent._new_task_reason else ""
    raise ValueError(
        f"a run must be certified with its own {other}{reason}. To bound the risk with the "
        f"new one, use: orac evaluate {path} {option} --episodes 1000 --certify"
    )


def write_certificate(
    agent: Agent, result: Certification, path: str | Path
) -> tuple[dict[str, Any], Path]:
    """Write a certification to certificate.json in a run directory.

    If `path` is the file of an agent, `.certificate.json` is appended to its name. Returns
    the contents and the path of the new file.
    """
    path, policy = Path(path), result.policy
    record = {
        **result.to_dict(),
        "env": agent.config.env.id,
        "step": policy.step,
        "action": "sampled" if policy.samples else "mean",
        "trained_steps": agent.num_timesteps,
        "seed": agent.config.seed,
        "first_sample": CERTIFY,
    }
    if path.is_dir():
        record["config"] = config_checksum(path)
        record["state_digest"] = agent._state_digest
    file = certificate_file(path)
    write_text(file, json.dumps(record, indent=2) + "\n")
    return record, file


def certificate_file(path: Path) -> Path:
    """Return the path of the certificate of a run directory or of an agent's file."""
    if path.is_dir():
        return path / "certificate.json"
    return path.with_name(f"{path.name}.certificate.json")


def short_run(config: Config) -> str:
    """Return a warning if the run ends before its first update, otherwise ""."""
    start, total = config.training.first_update, config.training.total_steps
    if start < total:
        return ""
    if start > config.training.learning_starts:
        return (
            f"the first update is at step {start:,}, but the run ends at {total:,}, so it "
            "only collects steps. Train longer."
        )
    return (
        f"learning starts at step {start:,}, but the run ends at {total:,}, so it only acts "
        "at random. Set training.learning_starts lower, or train longer."
    )


def total_steps_of(run: Path, otherwise: int) -> int:
    """Return the total steps of the run in a directory, or `otherwise` if unreadable."""
    try:
        return serialization.load(run / "config.yaml").training.total_steps
    except (OSError, ValueError):
        return otherwise


def extended_training(
    training: TrainingConfig, total: int | None, taken: int
) -> TrainingConfig:
    """Return the settings for training until `total` steps, of which `taken` are done.

    If some steps are done, the schedules still end at the original total.
    """
    asked = total
    longer = training if asked is None else replace(training, total_steps=asked)
    total = longer.total_steps
    if total <= taken and asked is None:
        raise ValueError(
            f"all {training.total_steps:,} steps of this agent were already taken. To train it "
            "further, pass more_steps, or a total_timesteps above "
            f"{taken:,}."
        )
    if total <= taken:
        raise ValueError(
            "the total number of steps includes the steps of earlier calls, so it must be "
            f"above the {taken:,} steps taken so far, got {total:,}. To take {total:,} more "
            f"steps, pass {taken + total:,}."
        )
    if taken and total != training.total_steps:
        longer = replace(longer, schedule_steps=training.horizon)
    return longer


def check_callback(callback: Any) -> None:
    """Raise an error before training starts if the callback is not a function."""
    if callback is not None and not callable(callback):
        raise ValueError(
            "callback must be a function that takes an event, got "
            f"{shown(callback)}. It is called at each log row and stops the run by "
            "returning False."
        )


def check_log(log: Any) -> None:
    """Raise an error if `log`, the argument that receives messages, is not a function."""
    if log is not None and not callable(log):
        raise ValueError(
            f"log must be a function that takes a string, got {shown(log)}."
        )


def limit_text(constraint: Constraint, config: Config) -> str:
    """Describe a limit, such as "5 on the CVaR of cost at tail 0.05"."""
    measure = config.agent.learned_measure(constraint)
    risk = risk_phrase(measure, cost_column(constraint.name))
    return f"{constraint.limit:g} on the {risk}"


def to_columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Convert rows to columns: one array per name, with NaN for missing values."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {x: np.array([row.get(x, np.nan) for row in rows], float) for x in names}


def is_nested(observation: Any) -> bool:
    """Return whether an observation is a dict, or a tuple that contains arrays."""
    if isinstance(observation, tuple):
        return any(np.ndim(part) > 0 for part in observation)
    return isinstance(observation, Mapping)
