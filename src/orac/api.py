"""The Python interface: make an agent, train it, look at what it does.

    agent = orac.ORAC("orac/GuardedMaze-v0", cost_limit=5.0, tail=0.05, seed=0)
    agent.learn(total_timesteps=300_000)
    print(agent.evaluate(episodes=100))

`ORAC`, `WCSAC`, `SACLagrangian` and `SAC` build a config from a preset and the given
options and return an `Agent`. `load` and `resume` return one from a file or a run
directory. Names follow Stable-Baselines3 where it has them.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from numbers import Real
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, overload

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from orac import envs
from orac.config import presets, serialization
from orac.config.schema import (
    Config,
    Constraint,
    Encoder,
    RiskMeasure,
    TrainingConfig,
)
from orac.config.validation import (
    NonFiniteError,
    check_choice,
    check_count,
    check_range,
    check_seed,
    unknown_name,
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
from orac.envs.brax_adapter import BRAX_OPTIONS, is_brax_like
from orac.envs.brax_adapter import adapt as adapt_brax
from orac.envs.gym_adapter.costs import (
    CostFn,
    can_be_imported,
    check_env_module,
    cost_fn_of_file,
    import_cost_fn,
    name_of_cost_fn,
    place_of_cost_fn,
    stop_script,
)
from orac.envs.gym_adapter.make import check_distinct, check_environment, make_host
from orac.envs.gym_adapter.vector import HostEnv
from orac.envs.registry import is_of_library
from orac.evaluation import certification
from orac.evaluation.certificates import Certificate
from orac.evaluation.certification import Certification, certify_candidates
from orac.evaluation.result import Episodes, certify, cost_column, summarise
from orac.evaluation.rollout import play_baseline
from orac.policy import observation_rows
from orac.reports.charts import (
    constraint_charts,
    evaluation_histogram,
    overview_charts,
)
from orac.reports.figures import draw_curves, draw_histogram
from orac.reports.run_reader import Run, group_runs, read_run
from orac.reports.tables import Table, number, to_html
from orac.runs.arrays import OtherShapeError
from orac.runs.atomic_io import write_text
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory, read_config
from orac.runs.loggers import check_trackers
from orac.runs.machine import check_memory
from orac.runs.progress import Progress
from orac.training import delivery, export, measurement, notes, saving
from orac.training.delivery import Delivered, delivered
from orac.training.device_loop import DeviceRunner
from orac.training.encoder_loading import (
    EncoderPair,
    check_features,
    place_of_encoder,
    with_encoder,
)
from orac.training.health import check_parameters
from orac.training.host_loop import HostRunner
from orac.training.loop import Callback, Counters, Runner, run_loop, uses_mean
from orac.training.profiler import Profiler
from orac.training.run_logger import NO_CHECKPOINTS, Logger, MemoryLogger, RunLogger
from orac.training.state import empty_replay, memory_needs
from orac.training.xla import keep_compiled_programs

Options = ParamSpec("Options")

CERTIFY = 1_000
"""Number of the first sample of a certification. Training uses smaller ones, and so do the
batches of an evaluation with a seed, so that certificates rest on other episodes."""
LAMBDA = (lambda: None).__name__
"""`<lambda>`, the `__name__` of a lambda function."""


class AssumedLimitWarning(UserWarning):
    """Warns that no cost limit was given, so that a default is used."""


class ShortRunWarning(UserWarning):
    """Warns that a run ends before its learning starts."""


class NotRecordedWarning(UserWarning):
    """Warns that training continues without writing to the agent's run directory."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Summary of an evaluation by name (`evaluation["cost/cvar_0.05"]`) and its episodes."""

    summary: dict[str, float]
    episodes: Episodes
    constraints: tuple[Constraint, ...] = ()
    cost_names: tuple[str, ...] = ("cost",)

    def __getitem__(self, name: str) -> float:
        return self.summary[name]

    def __str__(self) -> str:
        width = max(map(len, self.summary))
        return "\n".join(f"{k:<{width}}  {v:.6g}" for k, v in self.summary.items())

    def __repr__(self) -> str:
        parts = [f"reward {self.summary['reward/mean']:.4g}"]
        limited = {constraint.name: constraint for constraint in self.constraints}
        for name in self.cost_names:
            column, constraint = cost_column(name), limited.get(name)
            if constraint is None:
                parts.append(f"mean {column} {self.summary[f'{column}/mean']:.4g}")
                continue
            risk = (
                f"{constraint.measure} of {column} {self.summary[f'{column}/risk']:.4g}"
            )
            parts.append(f"{risk} (limit {constraint.limit:g})")
        return f"<Evaluation of {len(self.episodes):,} episodes: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = tuple((name, number(value)) for name, value in self.summary.items())
        return to_html(Table("Evaluation", ("name", "value"), rows))

    def plot(self) -> Any:
        """Draw the distribution of every cost, with its limit, VaR and CVaR.

        Returns a matplotlib figure, which a notebook shows; `savefig` writes it to a file.
        """
        limited = {constraint.name: constraint for constraint in self.constraints}
        columns = zip(self.cost_names, self.episodes.cost.T, strict=True)
        found = [
            evaluation_histogram(x, name, limited.get(name)) for name, x in columns
        ]
        return draw_histogram(*found)


def evaluate_baseline(
    config: Config, episodes: int, tails: Sequence[float] = ()
) -> tuple[Evaluation, EnvSpec]:
    """Evaluate the hand-coded policy of a `baseline_config`; also return its `EnvSpec`."""
    played, spec = play_baseline(config, episodes)
    about = config.constraints, spec.cost_names
    summary = summarise(played, *about, spec.metrics, tails)
    return Evaluation(summary, played, *about), spec


class Agent:
    """An agent in its environment. Make one with `orac.ORAC` and its siblings.

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
        keep_compiled_programs()
        config, cost_function = with_cost_fn(config, cost_fn)
        config = with_encoder(config, encoder)
        self._meta: dict[str, Any] = {}
        """What meta.json of a run of this agent also says."""
        if cost_function is not None:
            place = place_of_cost_fn(config.env.cost_fn or "", cost_function)
            self._meta["cost_fn"] = place
        if isinstance(config.agent.encoder, Encoder):
            self._meta["encoder"] = place_of_encoder(config.agent.encoder)
        self.runner = make_runner(env, config, cost_function, host_options or {})
        check_features(self.runner.state.agent, self.runner.state.observation, config)
        self.run_path: Path | None = None
        self._source: Path | None = None
        """File or run directory that the agent was loaded from."""
        self._new_env: str | None = None
        """Id of its environment, if the agent was trained in another one before."""
        self._counters = Counters()
        self._history = MemoryLogger()
        """Logs of training without `out`."""
        self._checked: tuple[Any, Any] = None, None
        self._certified: int | None = None
        """Place of the candidate that was certified, which is then delivered."""
        self.profile: Profiler | None = None
        """Where the time of the last call of `learn` went, if it was asked for."""
        self.stop_signal: int | None = None
        """Number of the signal that stopped the last call of `learn`, or None."""

    def __repr__(self) -> str:
        config = self.config
        aims = " and ".join(limit_text(c, config) for c in config.constraints)
        text = f"{config.algo} in {config.env.id} after {self.num_timesteps:,} steps"
        return f"<{text}: {aims}>" if aims else f"<{text}>"

    def _repr_html_(self) -> str:
        config, best = self.config, self.best
        steps = f"{self.num_timesteps:,} of {config.training.total_steps:,}"
        rows = [("steps", steps)]
        rows += [("limit", limit_text(c, config)) for c in config.constraints]
        if best is not None:
            told = f"step {best.step:,}, reward {best.reward:.4g}"
            if best.risk:
                told += f", {notes.risk_text(best.risk, config)}"
            rows.append(("policy", f"{told}, measured on {best.episodes:,} episodes"))
        if self.run_path is not None:
            rows.append(("run", str(self.run_path)))
        title = f"{config.algo} in {config.env.id}"
        return to_html(Table(title, ("agent", config.algo), tuple(rows)))

    @property
    def config(self) -> Config:
        """Every setting of the agent and its run."""
        return self.runner.config

    @property
    def spec(self) -> EnvSpec:
        """Sizes, action box, cost names and metrics of the environment."""
        return self.runner.spec

    @property
    def problem(self) -> Problem:
        """Sizes, constraints, and their limits in the units of the critics."""
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
        steps. `more_steps` adds to the steps taken so far instead. The schedules, such as
        that of the shift radius, end at the first total and stay there. With `out`, logs
        and checkpoints are written to a run directory below it, and `orac.resume`
        continues from there after any interruption. The callback receives an `Event` at
        each log row and each evaluation; the run stops when it returns False. With
        `profile`, `agent.profile.table()` says afterwards where the time went.

        An agent from `orac.load` goes on with the replay of its run. Without one, its
        policy first collects steps for a new replay.
        """
        check_callback(callback)
        training = self._longer_training(total_timesteps, more_steps)
        logger: Logger = self._history
        if out is None and self.run_path is not None:
            total = training.total_steps
            warnings.warn(
                f"these steps will not be written to {self.run_path}. To record them, use "
                f"orac.resume({str(self.run_path)!r}, total_timesteps={total}) instead.",
                NotRecordedWarning,
                stacklevel=2,
            )
        waiting = self._source is not None and not self.runner.state.replay
        if out is not None and self.num_timesteps and not waiting:
            raise ValueError(
                "out must be passed to the first call of learn, but this agent has "
                f"already taken {self.num_timesteps:,} steps that were not logged. "
                "Make a new agent, or save this one with save(); orac.resume continues "
                "a run directory."
            )
        check_memory(memory_needs(self.spec, self.config, with_replay=True))
        self._configure(training)
        if waiting:
            self._meta["continued_from"] = self._origin()
        sentences = self._bring_replay() if waiting else []
        short = short_run(self.config)
        if short:
            warnings.warn(short, ShortRunWarning, stacklevel=2)
        if out is not None:
            check_trackers(trackers)
            run = RunDirectory.create(
                out,
                self.config.env.id,
                self.config.algo,
                self.config.seed,
                serialization.to_dict(self.config),
                name,
                self._meta,
            )
            self.run_path = run.path
            logger = RunLogger(run, self.runner, trackers)
            if waiting:
                logger.save(self.num_timesteps, self.runner, self._counters)
        self._train(logger, callback, progress_bar, profile, sentences)
        return self

    def _longer_training(
        self, total_timesteps: int | None, more_steps: int | None
    ) -> TrainingConfig:
        """Return the settings of training until this total, after checking them."""
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

    def _origin(self) -> dict[str, Any]:
        """Return where the agent was loaded from, for meta.json."""
        return {
            "path": str(self._source),
            "step": self.num_timesteps,
            "env": self.config.env.id,
        }

    def _bring_replay(self) -> list[str]:
        """Restore the training state of the run that the agent was loaded from.

        In another environment, or if there is no replay, training starts with new episodes
        and an empty replay, which the policy fills before the first update. Returns
        sentences for the user.
        """
        path, step = self._source, self.num_timesteps
        assert path is not None
        if path.is_dir() and self._new_env is None:
            checkpoints = Checkpoints(path / "checkpoints")
            loaded, messages = saving.restore_state(
                checkpoints, self.runner, self._counters
            )
            if loaded is None or loaded.step != step:
                raise ValueError(
                    f"{path} has changed since the agent was loaded from it at step "
                    f"{step:,}. Load it again."
                )
            return [*messages, *self._collect_first()]
        state = self.runner.state
        if self._new_env is not None:
            # What was measured in the other environment does not hold in this one.
            config = replace(
                self.config, env=replace(self.config.env, id=self._new_env)
            )
            self.runner.configure(config)
            if state.candidates:
                state = state._replace(candidates=delivery.init(state.agent, config))
        if self.config.agent.follows_episodes:
            state = state._replace(measured=measurement.init(self.config, step))
        empty = empty_replay(self.problem, self.config)
        self.runner.restore(state._replace(replay=empty), None)
        return self._collect_first()

    def _collect_first(self) -> list[str]:
        """Let a trained policy fill an empty replay before the first update."""
        training, step = self.config.training, self.num_timesteps
        if int(self.runner.state.replay.inserted) or step < training.learning_starts:
            return []
        count = max(training.learning_starts, training.batch_size)
        self._configure(replace(training, updates_start=step + count))
        why = (
            "the agent was trained in another environment"
            if self._new_env is not None
            else "the agent comes without its replay"
        )
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
        except Exception as error:
            if self.run_path is not None:
                error.add_note(self._how_to_continue(self.run_path))
            raise
        finally:
            logger.close()

    def _how_to_continue(self, path: Path) -> str:
        """Return the command that continues the run after an error."""
        steps = Checkpoints(path / "checkpoints").steps()
        saved = f"Saved up to step {steps[-1]:,}." if steps else "Nothing is saved yet."
        env, cost_fn = self.config.env.id, self.config.env.cost_fn
        again = ["env=..."] * (not is_env_id(env))
        again += ["cost_fn=..."] * (
            cost_fn is not None and not can_be_imported(cost_fn)
        )
        encoder = self.config.agent.encoder
        again += ["encoder=..."] * (
            isinstance(encoder, Encoder) and not can_be_imported(encoder.name)
        )
        if again:
            arguments = ", ".join([repr(str(path)), *again])
            return f"{saved} Continue with: orac.resume({arguments})"
        return f"{saved} Continue with: orac resume {run_arguments(path, self.config)}"

    def _finite_agent(self) -> AgentState:
        """Return the learner's state; raise an error if a number of it is not finite."""
        agent, candidates = self.runner.state.agent, self.runner.state.candidates
        if agent is not self._checked[0] or candidates is not self._checked[1]:
            for state in (agent, candidates):
                check_parameters(state, self.num_timesteps, self._last_good())
            self._checked = agent, candidates
        return agent

    def _last_good(self) -> str:
        """Return a sentence about the last good checkpoint, for an error message."""
        if self.run_path is not None:
            return Checkpoints(self.run_path / "checkpoints").last_good()
        if self._source is not None:
            return f"The agent was loaded from {self._source}; load it again."
        return NO_CHECKPOINTS

    @property
    def best(self) -> Delivered | None:
        """The policy that the run delivers, with what was measured of it.

        It is the one of highest reward among those that were measured within the limits,
        or the one of least risk if there was none. After `certify` it is the one that was
        certified. None before the first evaluation, and for agents whose multiplier follows
        the critics.
        """
        candidates = self.runner.state.candidates
        return delivered(candidates, self._certified) if candidates else None

    def delivery_lines(self) -> list[str]:
        """Return sentences about the policy that the run delivers, for printing.

        If none is within the limits, they name the most likely causes.
        """
        return notes.delivery_lines(self.runner, self._counters)

    def policy_of(self, checkpoint: str | None = None) -> tuple[PolicyState, bool]:
        """Return a policy, and whether it acts with its mean action.

        `checkpoint` is "best" for the delivered policy, "last" for the one at the last
        step, or None for the best if there is one and otherwise the last.
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
            return deployed_policy(agent), uses_mean(self.runner)
        return best.policy, not best.samples

    def predict(
        self,
        observation: Any,
        state: Any = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        checkpoint: str | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Return the action for one observation or a batch, in the environment's box.

        It is the action of the policy of `policy_of(checkpoint)`: by default that of the
        delivered policy (`best`) if there is one, and otherwise of the current policy.
        `deterministic` True uses the mean action, False samples an action with `seed`, and
        None does what the policy was measured with. Observations that are no vectors are
        taken as the environment returns them, or flat. `state` is there for compatibility
        with Stable-Baselines3; these policies have none.
        """
        size, structure = self.spec.observation_size, self.spec.observation_structure
        runner = self.runner
        if not structure and isinstance(runner, HostRunner) and is_nested(observation):
            observation = runner.env.flatten(observation)
        known = json.loads(structure) if structure else None
        rows = observation_rows(observation, size, known)
        batch = jnp.asarray(rows.reshape(-1, size))
        policy, uses_mean_action = self.policy_of(checkpoint)
        if uses_mean_action if deterministic is None else deterministic:
            action = mean_action(policy, batch, self.runner.learner)
        else:
            seed = np.random.randint(2**31) if seed is None else seed
            check_seed("seed", seed)
            key = jax.random.key(seed)
            action = sampled_action(key, policy, batch, self.runner.learner)
        action = np.asarray(to_box(self.spec, action))
        if not np.isfinite(action).all():
            raise NonFiniteError(
                "the agent's action must be finite, but it is not at this observation: its "
                f"weights are too large. {self._last_good()}"
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

        The policy is that of `policy_of(checkpoint)`: the delivered one by default.
        Without a seed, the same call plays the same episodes again. A seed selects other
        episodes; the same seed gives the same starts for every policy.
        """
        tails = checked_tails(tails)
        policy, uses_mean_action = self.policy_of(checkpoint)
        if deterministic is not None:
            uses_mean_action = deterministic
        rolled = self.runner.evaluate(policy, episodes, uses_mean_action, seed)
        summary = summarise(
            rolled,
            self.config.constraints,
            self.spec.cost_names,
            self.spec.metrics,
            tails,
        )
        about = self.config.constraints, self.spec.cost_names
        return Evaluation(summary, rolled, *about)

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
        episodes_max: int = certification.EPISODES_MAX,
        log: Any = None,
    ) -> Certification: ...

    def certify(
        self,
        episodes: Episodes | None = None,
        confidence: float = 0.95,
        *,
        looks: int = certification.LOOKS,
        episodes_max: int = certification.EPISODES_MAX,
        log: Any = None,
    ) -> list[Certificate] | Certification:
        """Certify on fresh episodes that the risk of a policy is within its limits.

        The best five policies of the run are compared on validation episodes and one is
        chosen. Up to `looks` times it, or another one, then plays fresh episodes, at most
        `episodes_max` each. If it is certified, it becomes the delivered policy (`best`).
        The same call plays the same episodes again. Messages go to `log`.

        With `episodes`, returns one certificate per constraint for these episodes instead;
        they must not have been used to choose the policy.
        """
        self._finite_agent()
        constraints, spec = self.config.constraints, self.spec
        if episodes is not None:
            return certify(episodes, constraints, spec, confidence)
        held = self.runner.state.candidates
        places = delivery.ranked(held) if held else []
        candidates = [delivered(held, place) for place in places]
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
        return result

    def plot(self) -> Any:
        """Draw measured risk, reward and cost in every evaluation, and the multipliers.

        Returns a matplotlib figure, which a notebook shows; `savefig` writes it to a file.
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
        """Return the logs of training: of the run directory, or those in memory."""
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
        agent, candidates = self._finite_agent(), self.runner.state.candidates
        if self._certified is not None:
            candidates = delivery.only(candidates, self._certified)
        saving.save_agent(
            path, self.config, self.spec, agent, candidates, self.num_timesteps
        )

    def export(
        self,
        path: str | Path,
        checkpoint: str | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the policy for deployment, in the format that the ending of `path` names.

        `.npz` is for `orac.policy.load`, which needs only NumPy. `.onnx` is for ONNX
        Runtime, with the input `observation` and the output `action`. `.stablehlo` is for
        `jax.export.deserialize`. All of them scale observations and actions themselves and
        take batches of any size; if the policy samples its actions, the latter two have
        standard normal numbers as second input, `noise`. The policy is that of
        `policy_of(checkpoint)`: the delivered one by default. A file that exists is only
        replaced with `overwrite`.
        """
        policy, uses_mean_action = self.policy_of(checkpoint)
        parts = self.config, self.spec, policy, uses_mean_action
        export.export_policy(path, *parts, overwrite)

    def close(self) -> None:
        """Close the environment."""
        self.runner.close()


def refuse_unknown_options(
    function: Callable[Options, Agent],
) -> Callable[Options, Agent]:
    """Raise an error with the nearest known name for an option that does not exist."""
    parameters = inspect.signature(function).parameters
    known = [x for x, one in parameters.items() if one.kind is one.KEYWORD_ONLY]

    @wraps(function)
    def checked(*arguments: Options.args, **options: Options.kwargs) -> Agent:
        for name in options:
            if name not in parameters:
                raise unknown_name("an option", name, known)
        return function(*arguments, **options)

    return checked


def takes_options_of(
    make: Callable[Concatenate[str, Options], Agent],
) -> Callable[[Callable[..., Agent]], Callable[Options, Agent]]:
    """Give a function the signature of `make_agent` without the algorithm's name.

    So there is one list of options, and `help`, `inspect` and editors show it everywhere.
    """

    def give(function: Callable[..., Agent]) -> Callable[Options, Agent]:
        signature = inspect.signature(make)
        options = [*signature.parameters.values()][1:]
        vars(function)["__signature__"] = signature.replace(parameters=options)
        return function

    return give


@refuse_unknown_options
def make_agent(
    algo: str,
    env: Any,
    *,
    cost_limit: float | None = None,
    tail: float | None = None,
    seed: int = 0,
    constraints: Sequence[Constraint] | None = None,
    cost_fn: CostFn | str | None = None,
    encoder: EncoderPair | str | None = None,
    cost_bound: float | Sequence[float] | None = None,
    num_envs: int | None = None,
    episode_length: int | None = None,
    env_params: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Config | None = None,
    preset: str | None = None,
    cost_names: Sequence[str] | None = None,
    cost_keys: Sequence[str] | None = None,
    metric_names: Sequence[str] = (),
    vectorization: str = "auto",
) -> Agent:
    """Return an agent built from a preset and the options that differ from it.

    Args:
        algo: Name of an agent, as `orac agents` lists them.
        env: An id, an environment, a function that makes one, a JAX environment, or one of
            Brax or MuJoCo Playground (`"brax:halfcheetah"`).
        cost_limit: Limit on the risk of the cost of one episode.
        tail: Share of the worst episodes whose mean cost is limited; 1 for all episodes.
        seed: Seed of everything random.
        constraints: Several limits instead of `cost_limit` and `tail`, as in
            `[orac.Constraint("comfort", limit=720, tail=0.05), ...]`.
        cost_fn: Function of (observation, action, next_observation, info) that returns
            the cost of a step, or its name, `"module:function"`. By default the cost is
            `info["cost"]`.
        encoder: Functions `(init, apply)` that turn an observation, such as an image, into
            features for every network, or their name, `"module:name"`
            (see `core.encoders`). They receive raw observations: of a preset,
            `agent.normalize_observations` is switched off.
        cost_bound: Largest possible cost of an episode, which certificates need.
        num_envs: Number of environments that are stepped in parallel.
        episode_length: Number of steps after which episodes are truncated.
        env_params: Keyword arguments for the environment.
        settings: Values by dotted config field, as in `{"agent.kappa": 0.5}`.
        config: A whole config, instead of a preset.
        preset: "paper", "fast" or "general" (see `config.presets`); by default "paper" for
            the paper's environments and "general" for others.
        cost_names: Names of the costs; by default those of the constraints.
        cost_keys: Keys of `info` under which the costs are reported.
        metric_names: Keys of `info` to report as metrics.
        vectorization: "auto", "sync", "async" (one process per environment) or "vector".
    """
    name = env if isinstance(env, str) else name_of_env(env)
    chosen = replace(config or presets.preset(algo, name, preset), seed=seed)
    if encoder is not None and config is None:
        chosen = presets.for_encoder(chosen)
    if env_params:
        merged = {**dict(chosen.env.params), **env_params}
        chosen = replace(chosen, env=replace(chosen.env, params=tuple(merged.items())))
    if episode_length is not None:
        chosen = replace(chosen, env=replace(chosen.env, episode_length=episode_length))
    if num_envs is not None:
        chosen = replace(chosen, training=replace(chosen.training, num_envs=num_envs))
    chosen = replace(
        chosen, constraints=merge_constraints(chosen, constraints, cost_limit, tail)
    )
    if settings:
        data = serialization.to_dict(chosen)
        for dotted, value in settings.items():
            serialization.assign(data, dotted, value)
        chosen = serialization.from_dict(data)
    given: dict[str, Any] = {
        "cost_bound": cost_bound,
        "cost_names": cost_names,
        "cost_keys": cost_keys,
        "metric_names": metric_names,
        "vectorization": vectorization,
    }
    # Some environments refuse options that are not theirs, so defaults are left out.
    defaults = inspect.signature(make_host).parameters
    host_options = {x: v for x, v in given.items() if v is not defaults[x].default}
    agent = Agent(
        env, chosen, cost_fn=cost_fn, encoder=encoder, host_options=host_options
    )
    by_setting = any(name.startswith("constraints") for name in settings or ())
    if not (cost_limit is not None or constraints or config or by_setting):
        assumed = assumed_limit(agent.config)
        if assumed:
            warnings.warn(assumed, AssumedLimitWarning, stacklevel=4)
    return agent


@takes_options_of(make_agent)
def ORAC(env: Any, **options: Any) -> Agent:
    """Optimistic Risk-averse Actor-Critic. Takes the options of `make_agent`."""
    return make_agent("orac", env, **options)


@takes_options_of(make_agent)
def WCSAC(env: Any, **options: Any) -> Agent:
    """Worst-Case SAC: ORAC without optimism. Takes the options of `make_agent`."""
    return make_agent("wcsac", env, **options)


@takes_options_of(make_agent)
def SACLagrangian(env: Any, **options: Any) -> Agent:
    """SAC that keeps the mean cost under the limit. Takes the options of `make_agent`.

    `tail` does not change what is learned, since a scalar critic only estimates the mean.
    It sets where evaluations and certificates measure risk: by default at the preset's
    tail, so that agents can be compared. With `tail=1` they use the mean as well.
    """
    return make_agent("sac-lag", env, **options)


@takes_options_of(make_agent)
def SAC(env: Any, **options: Any) -> Agent:
    """SAC without a constraint. Takes the options of `make_agent`."""
    return make_agent("sac", env, **options)


def load(path: str | Path, env: Any = None, **options: Any) -> Agent:
    """Return an agent from a file of `Agent.save` or a run directory's last checkpoint.

    If `orac certify` certified a policy of the run, the agent delivers that one.
    orac never imports code that a file names: pass `env`, `cost_fn` and `encoder` again if
    the run used an environment, a cost function or an encoder from your own module.
    """
    path = Path(path)
    if path.is_dir():
        config = serialization.from_dict(read_config(path))
        agent = Agent(choose_env(config, env), for_env(config, env), **options)
        checkpoints = Checkpoints(path / "checkpoints")
        # Another environment of the same spaces may have a state of another structure.
        rest = ("replay", "env", "observation", "context", "totals", "measured")
        template = agent.runner.state._replace(**dict.fromkeys(rest, ()))
        try:
            loaded = checkpoints.load_latest(
                template, check=saving.check_finite, part=True
            )
        except OtherShapeError as error:
            raise does_not_fit(path, agent.spec) from error
        if loaded is None:
            raise ValueError(
                f"{path} must hold a checkpoint to load an agent from, and has none yet. "
                f"Continue the run: orac resume {path}"
            )
        for message in loaded.warnings:
            warnings.warn(message, stacklevel=2)
        state, candidates = loaded.state.agent, loaded.state.candidates
        rounds = loaded.state.rounds
    else:
        config, state, candidates, steps = saving.load_agent(
            path, options.get("encoder")
        )
        agent = Agent(choose_env(config, env), for_env(config, env), **options)
        if not saving.same_shapes(state, agent.runner.state.agent):
            raise does_not_fit(path, agent.spec)
        rounds = jnp.int32(steps // config.training.num_envs)
    agent.runner.state = agent.runner.state._replace(
        agent=state, candidates=candidates, rounds=rounds
    )
    agent._source = path
    if not is_same_env(config, env, agent.runner):
        agent._new_env = name_of_env(env)
        if agent._new_env == LAMBDA:
            agent._new_env = agent.spec.name
    if path.is_dir():
        agent._certified = delivery.certified_place(path, candidates)
    return agent


def does_not_fit(path: Path, spec: EnvSpec) -> ValueError:
    """Return the error for an agent that was trained with other spaces or settings."""
    return ValueError(
        f"the agent in {path} must fit the environment, but its networks have other shapes "
        f"than {spec.name} needs, with {spec.observation_size} numbers in an observation, "
        f"{spec.action_size} in an action and {spec.num_costs} cost(s). Give an "
        "environment with the spaces and costs of the one it was trained in, and the same "
        "encoder if it has one."
    )


def write_certificate(
    agent: Agent, result: Certification, path: str | Path
) -> tuple[dict[str, Any], Path]:
    """Write certificate.json of a run directory, or of an agent's file next to it.

    Returns its contents, which say what was certified and how, and where it is.
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
    file = path.with_name(f"{path.name}.certificate.json")
    if path.is_dir():
        file = path / "certificate.json"
    write_text(file, json.dumps(record, indent=2) + "\n")
    return record, file


def resume(
    run_dir: str | Path,
    env: Any = None,
    *,
    total_timesteps: int | None = None,
    callback: Callback | None = None,
    progress_bar: bool = True,
    trackers: Sequence[str] = ("tensorboard",),
    log: Any = print,
    **options: Any,
) -> Agent:
    """Continue a run from its newest intact checkpoint to the total of its config.

    A larger `total_timesteps` trains it further, also if it is finished. Its schedules end
    at the first total and stay there. As for `load`, pass `env`, `cost_fn` and `encoder`
    again if they are your own code. Messages about the run go to `log`.
    """
    check_callback(callback)
    run = RunDirectory.open(run_dir)
    try:
        planned = config = serialization.from_dict(read_config(run.path))
        check_same_id(config, env, run.path)
        if total_timesteps is not None:
            steps = run.checkpoints().steps()
            taken = steps[-1] if steps else 0
            training = extended_training(config.training, total_timesteps, taken)
            config = replace(config, training=training)
        for message in run.machine_differences():
            log(message)
        agent = Agent(choose_env(config, env), config, **options)
        if agent.config.env.cost_fn != config.env.cost_fn:
            log(
                f"The run was started with the cost function {config.env.cost_fn} and "
                f"continues with {agent.config.env.cost_fn}."
            )
        encoder = agent.config.agent.encoder
        if isinstance(encoder, Encoder) and encoder.name != config.agent.encoder:
            log(
                f"The run was started with the encoder {config.agent.encoder} and "
                f"continues with {encoder.name}."
            )
        check_memory(memory_needs(agent.spec, agent.config, with_replay=True))
        logger = RunLogger(run, agent.runner, trackers)
        messages = logger.restore(agent.runner, agent._counters)
        if agent.num_timesteps:
            messages += agent._collect_first()
        if config != planned:
            total = config.training.total_steps
            run.extend(serialization.to_dict(config), agent.num_timesteps, total)
        if agent.num_timesteps < config.training.total_steps:
            run.note_commit()
    except BaseException:
        run.close()
        raise
    agent.run_path = run.path
    if agent.num_timesteps >= config.training.total_steps:
        arguments = run_arguments(run.path, agent.config)
        messages = [
            f"The run is finished, at {agent.num_timesteps:,} steps. To train it further: "
            f"orac resume {arguments} --total-steps {2 * agent.num_timesteps}"
        ]
    for message in messages:
        log(message)
    agent._train(logger, callback, progress_bar)
    return agent


def with_cost_fn(
    config: Config, cost_fn: CostFn | str | None
) -> tuple[Config, CostFn | None]:
    """Return the config with the name of this cost function, and the function.

    orac never imports code that a config names, because configs are read from files. Pass
    the function, or its name, again, or name its module with `--import`.
    """
    named = config.env.cost_fn
    if cost_fn is None:
        return config, None if named is None else cost_fn_of_file(named)
    by_name = isinstance(cost_fn, str)
    function = import_cost_fn(cost_fn) if by_name else cost_fn
    name = cost_fn if by_name else name_of_cost_fn(function)
    return replace(config, env=replace(config.env, cost_fn=name)), function


def make_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None,
    host_options: Mapping[str, Any],
) -> Runner:
    """Return the runner for this environment: compiled for JAX, otherwise on the host."""
    params = dict(config.env.params)
    if isinstance(env, str) and envs.has_jax_form(env) and cost_fn is None:
        env = envs.make(env, **params)
    if is_of_library(env) if isinstance(env, str) else is_brax_like(env):
        for name in host_options:
            check_choice(f"an option of {config.env.id}", name, BRAX_OPTIONS)
        adapted = adapt_brax(
            env,
            params=params,
            episode_length=config.env.episode_length,
            cost_fn=cost_fn,
            cost_names=[constraint.name for constraint in config.constraints],
            **host_options,
        )
        check_memory(memory_needs(adapted.spec, config, with_replay=False))
        return DeviceRunner(adapted, config)
    if not isinstance(env, str) and isinstance(getattr(env, "spec", None), EnvSpec):
        if cost_fn is not None:
            raise ValueError(
                "cost_fn must be None for a JAX environment, which reports its own cost."
            )
        if host_options.get("cost_bound") is not None:
            raise ValueError(
                "cost_bound must be left out for a JAX environment, which declares its own: "
                f"{env.spec.cost_bounds}."
            )
        check_memory(memory_needs(env.spec, config, with_replay=False))
        return DeviceRunner(env, config)
    options: dict[str, Any] = {
        "cost_fn": cost_fn,
        "cost_names": tuple(c.name for c in config.constraints) or None,
        "episode_length": config.env.episode_length,
        "env_kwargs": params or None,
        **host_options,
    }
    host = make_host(env, config.training.num_envs, **options)
    if config.env.id == LAMBDA:
        config = replace(config, env=replace(config.env, id=host.class_name))
    has_encoder = config.agent.encoder is not None
    check_environment(host, seed=config.seed, has_encoder=has_encoder)
    check_memory(memory_needs(host.spec, config, with_replay=False))
    # An environment object cannot be copied, so training and evaluation share it.
    if not (isinstance(env, str) or callable(env)):
        return HostRunner(host, config)
    num_envs = config.evaluation.num_envs
    if isinstance(host.vector, SyncVectorEnv):
        # Single environments, also where an id has a vector of them, so that each episode
        # can have its own seed.
        options["vectorization"] = "sync"
    if isinstance(host.vector, AsyncVectorEnv):
        num_envs = min(num_envs, host.num_envs)

    def make_evaluation_env() -> HostEnv:
        made = make_host(env, num_envs, **options)
        check_distinct(host.vector, made.vector)
        return made

    return HostRunner(host, config, make_evaluation_env)


def run_arguments(path: Path, config: Config) -> str:
    """Return the arguments with which a command reopens this run.

    orac never imports code that a run directory names, so the user's modules are passed.
    """
    env = config.env
    module = f" --env-id {env.id}" if ":" in env.id else ""
    arguments = f"{path}{module}" + (f" --cost-fn {env.cost_fn}" if env.cost_fn else "")
    encoder = config.agent.encoder
    encoder = encoder.name if isinstance(encoder, Encoder) else encoder
    return arguments + (f" --encoder {encoder}" if encoder else "")


def name_of_env(env: Any) -> str:
    """Return a name for the run directory of an environment that was not given by id."""
    if isinstance(env, partial):
        return name_of_env(env.func)
    spec = getattr(env, "spec", None)
    for attribute in ("id", "name"):
        if isinstance(getattr(spec, attribute, None), str):
            return getattr(spec, attribute)
    return getattr(env, "__name__", type(env).__name__)


def is_same_env(config: Config, env: Any, runner: Runner) -> bool:
    """Return whether `env` is the environment that the config names."""
    env_id = config.env.id
    if env is None or env_id == env:
        return True
    names = {env if isinstance(env, str) else name_of_env(env), runner.spec.name}
    if isinstance(runner, HostRunner):
        names.add(runner.env.class_name)
    elif envs.has_jax_form(env_id):
        env_id = envs.make(env_id, **dict(config.env.params)).spec.name
    return bare_id(env_id) in {bare_id(name) for name in names}


def for_env(config: Config, env: Any) -> Config:
    """Return the config without the parameters of its environment if `env` is another id."""
    if not isinstance(env, str) or bare_id(env) == bare_id(config.env.id):
        return config
    return replace(config, env=replace(config.env, params=()))


def bare_id(env_id: str) -> str:
    """Return an id without the module that registers it."""
    return env_id.rpartition(":")[2]


def check_same_id(config: Config, env: Any, path: Path) -> None:
    """Raise an error if a run would be resumed in an environment of another id."""
    known = isinstance(env, str) and is_env_id(config.env.id)
    if known and bare_id(env) != bare_id(config.env.id):
        raise ValueError(
            f"a run is resumed in its own environment, {config.env.id}, got {env}. To "
            "train its agent in another one, start a new run from it: "
            f"orac train --from {path} --env-id {env}"
        )


def is_env_id(env_id: str) -> bool:
    """Return whether an environment can be made from this name."""
    return ":" in env_id or env_id in gymnasium.registry or envs.has_jax_form(env_id)


def choose_env(config: Config, env: Any) -> Any:
    """Return `env`, or the config's id if making it does not import a user's module."""
    env_id = config.env.id
    if env is None:
        check_env_module(env_id)
    if env is None and not is_env_id(env_id):
        raise ValueError(
            f"the environment of this run is called {env_id!r}, which Gymnasium does not "
            "know here. Pass it again as env= (the class, factory or object that it was "
            "trained in), or import what registers it (in the shell --env-id "
            "module:Name-v0)."
        )
    return env_id if env is None else env


def merge_constraints(
    config: Config,
    constraints: Sequence[Constraint] | None,
    cost_limit: float | None,
    tail: float | None,
) -> tuple[Constraint, ...]:
    """Return the given constraints, or the config's with this limit and tail."""
    if constraints is not None:
        if cost_limit is not None or tail is not None:
            raise ValueError(
                "give either constraints or cost_limit and tail, got both. "
                "A constraint has its own limit and tail."
            )
        example = "Write constraints=[orac.Constraint('cost', limit=5.0, tail=0.05)]."
        if not isinstance(constraints, list | tuple):
            raise ValueError(
                f"constraints must be a list, got {constraints!r}. {example}"
            )
        for one in constraints:
            if not isinstance(one, Constraint):
                raise ValueError(
                    f"constraints must each be an orac.Constraint, got {one!r}. {example}"
                )
        return tuple(constraints)
    if cost_limit is not None:
        check_range("cost_limit", cost_limit, 0)
    if tail is not None:
        check_range("tail", tail, 0, 1, open_low=True)
    if not config.constraints:
        return ()
    first = config.constraints[0]
    if cost_limit is not None:
        first = replace(first, limit=float(cost_limit))
    if tail is not None:
        first = replace(first, tail=float(tail))
    return (first, *config.constraints[1:])


def assumed_limit(config: Config) -> str:
    """Return a warning that the limit is a default; empty where the paper sets it."""
    if presets.has_settings(config.env.id) or not config.constraints:
        return ""
    constraint = config.constraints[0]
    return (
        f"no cost_limit was given for {config.env.id}, so the "
        f"{config.agent.learned_measure(constraint)} of its cost is held below "
        f"{constraint.limit:g} per episode. Pass cost_limit= and tail=."
    )


def short_run(config: Config) -> str:
    """Return a warning that the run ends before it learns; empty when it will learn."""
    start, total = config.training.first_update, config.training.total_steps
    if start < total:
        return ""
    if start > config.training.learning_starts:
        return (
            f"the first update is at step {start:,} and the run ends at {total:,}: it only "
            "collects steps. Train longer."
        )
    return (
        f"learning starts at step {start:,} and the run ends at {total:,}: it only acts "
        "at random. Set training.learning_starts lower, or train longer."
    )


def limit_text(constraint: Constraint, config: Config) -> str:
    """Return what a constraint demands, such as "CVaR at 0.05 of cost at most 5"."""
    measure = config.agent.learned_measure(constraint)
    return f"{measure} of {cost_column(constraint.name)} at most {constraint.limit:g}"


def to_columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Return rows of numbers by column, as a run's logs are read; NaN where one lacks."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {x: np.array([row.get(x, np.nan) for row in rows], float) for x in names}


def extended_training(
    training: TrainingConfig, total: int | None, taken: int
) -> TrainingConfig:
    """Return the settings of training until `total` steps, of which some are taken.

    The schedules of an agent that has trained before end where they were planned to.
    """
    longer = training if total is None else replace(training, total_steps=total)
    total = longer.total_steps
    if total <= taken:
        raise ValueError(
            "the total number of steps counts those of earlier calls and must be above the "
            f"{taken:,} steps taken so far, got {total:,}. For {total:,} more, pass "
            f"{taken + total:,}."
        )
    if taken and total != training.total_steps:
        longer = replace(longer, schedule_steps=training.horizon)
    return longer


def checked_tails(tails: Any) -> tuple[float, ...]:
    """Return one tail or several as a tuple, each checked before an episode is played."""
    single = isinstance(tails, Real | str)
    several: tuple[Any, ...] = (tails,) if single else tuple(tails)
    return tuple(RiskMeasure("cvar", tail).parameter for tail in several)


def check_callback(callback: Any) -> None:
    """Raise an error now, not at the first log row, if the callback cannot be called."""
    if callback is not None and not callable(callback):
        raise ValueError(
            f"callback must be a function of one event, got {callback!r}. It is called at "
            "each log row and stops the run by returning False."
        )


def is_nested(observation: Any) -> bool:
    """Return whether an observation is a dict or tuple of arrays, not plain numbers."""
    if isinstance(observation, tuple):
        return any(np.ndim(part) > 0 for part in observation)
    return isinstance(observation, Mapping)
