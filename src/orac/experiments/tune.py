"""Search for the settings of an agent with the highest reward within the limits.

A trial is one run in its own process. Optuna's TPE sampler proposes the settings of each
trial. A trial is stopped early (pruned) if its evaluations during training are worse than in
most other trials at the same step. At the end of a trial, its delivered policy plays fresh
episodes, which measure the reward and the risk. The study is stored in a database, so the
same command continues it after a stop. With `--storage`, several machines can share a study.
"""

import json
import math
import socket
import time
import uuid
import warnings
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orac.config import overrides, serialization
from orac.config.reading import read_text
from orac.config.schema import Config
from orac.config.validation import check_count, import_extra, is_number
from orac.evaluation.certification import episodes_for_tails
from orac.evaluation.episodes import cost_column
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import (
    POLL_SECONDS,
    Log,
    Outcome,
    PlannedRun,
    stop_signals,
)
from orac.experiments.launcher.worker import FRESH_FILE
from orac.experiments.run_study import UNFINISHED
from orac.experiments.search_space import (
    Space,
    value_in,
    with_values,
)
from orac.reports import tuning_page
from orac.reports.report_metrics import evaluation_curve
from orac.reports.run_reader import count, read_run
from orac.reports.tables import Table, number, to_text
from orac.reports.tuning_page import Axis, Point, shown_value
from orac.runs.atomic_io import make_directory, write_text
from orac.runs.directory import acquire_lock, refuse_links, release_lock, safe_name
from orac.runs.machine import check_resources
from orac.runs.progress import clock_text

STUDY_FILE = "tune.yaml"
"""File in a folder of `orac tune` that names the study to which the folder belongs."""
STARTUP_TRIALS = 5
"""Number of trials that must finish before any trial can be stopped early."""
WARMUP_SHARE = 1 / 3
"""No trial is stopped early before it has taken this share of its steps."""
TAIL_EPISODES = 10
"""Minimum number of fresh episodes in the smallest tail if `TuneOptions.episodes` is None."""
INFEASIBLE = -1e30
"""Highest score of an evaluation whose risk is above a limit. Every reward is higher."""
MAX_TRIALS = 100_000


@dataclass(frozen=True)
class TuneOptions:
    """Options of `orac tune` that do not change the settings of its trials."""

    out: Path
    """Folder of the study: its database, runs, best config and page."""
    trials: int = 30
    """Total number of trials, including those of earlier calls and other machines."""
    jobs: int | None = None
    """Maximum number of trials at a time; None means as many as there are processors for."""
    threads: int = 1
    """Threads of each trial."""
    budget_hours: float = math.inf
    storage: str | None = None
    """URL of an Optuna storage; None means an SQLite file in `out`."""
    study_name: str | None = None
    episodes: int | None = None
    """Fresh episodes per trial; None means 100, or more for a small tail."""


def tune(
    config: Config,
    space: Space,
    options: TuneOptions,
    log: Log = print,
    backend: Processes | None = None,
    arguments: str = "",
) -> int:
    """Run the trials that are missing, write the results and return the exit code.

    The code is 0 if a trial is within the limits, and 1 if none is. If the search was stopped,
    it is 128 plus the signal's number, or `UNFINISHED` if the time budget was used up.
    `arguments` are added to the `orac train` command that is printed at the end.
    """
    optuna = import_optuna()
    check_options(options)
    check_folder(options.out)
    study = None
    if options.storage is not None:
        # If the storage cannot be opened, no folder is made.
        study = open_study(optuna, config, space, options)
    make_directory(options.out)
    lock = acquire_lock(options.out)
    try:
        # A database in the folder is opened only by the owner of the folder's lock.
        study = study or open_study(optuna, config, space, options)
        check_same_study(study, options)
        tuner = Tuner(optuna, study, config, space, options, log)
        backend = backend or Processes(options.jobs, options.threads)
        with stop_signals() as signals:
            stopped = tuner.run(backend, signals)
        feasible = tuner.write_results(arguments)
    finally:
        release_lock(lock)
        if study is not None:
            study._storage.remove_session()
    if stopped:
        log("The study is not finished. Run the same command again to continue it.")
        return 128 + signals[0] if signals else UNFINISHED
    return 0 if feasible else 1


def import_optuna() -> Any:
    """Return the package Optuna, or raise an error that says how to install it."""
    optuna = import_extra("orac tune", "tune", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def check_options(options: TuneOptions) -> None:
    """Raise a `ValueError` if an option is out of range."""
    check_count("--trials", options.trials, high=MAX_TRIALS)
    check_resources(options.jobs, options.threads, options.budget_hours)
    if options.episodes is not None:
        check_count("--episodes", options.episodes, high=10_000_000)


def check_folder(out: Path) -> None:
    """Raise a `ValueError` unless the folder is new, empty, or from an earlier `orac tune`.

    It must not contain symbolic links, because the study would write to their targets.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder to write to, got the file {out}.")
    refuse_links(out)
    if out.is_dir() and not (out / STUDY_FILE).is_file() and any(out.iterdir()):
        # If the first call was killed early, it left only these files.
        if {path.name for path in out.iterdir()} <= {"lock", "study.db"}:
            return
        raise ValueError(
            f"--out must be a new folder or one of an earlier `orac tune`, got {out}, "
            "which has other files. Choose another one."
        )


def open_study(optuna: Any, config: Config, space: Space, options: TuneOptions) -> Any:
    """Create the study, or open it if it exists, and check that its settings match."""
    name = options.study_name or safe_name(f"{config.env.id}-{config.algo}")
    storage = options.storage
    if storage is None:
        storage = f"sqlite:///{(options.out / 'study.db').resolve()}"
    place = f"{socket.gethostname()}:{options.out.resolve()}"
    try:
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=STARTUP_TRIALS,
                n_warmup_steps=int(WARMUP_SHARE * config.training.total_steps),
            ),
        )
        known = study.user_attrs
        has_trials = bool(study.get_trials(deepcopy=False))
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        what = (
            "--storage must be the URL of a database that Optuna can open, such as "
            "sqlite:////shared/study.db or postgresql://user@host/name."
        )
        if options.storage is None:
            what = f"{options.out / 'study.db'} must be a database of `orac tune`."
        raise ValueError(f"{what} Optuna could not open it: {reason}.") from error
    settings = settings_of(config, space)
    lacking = [key for key in ("token", "settings") if key not in known]
    if not has_trials:
        # A call that was killed may have written only the token.
        new = {"token": uuid.uuid4().hex, "settings": settings}
        for key in lacking:
            study.set_user_attr(key, new[key])
        known = {**new, **known}
        lacking = []
    is_text = not lacking and isinstance(known["token"], str)
    if not is_text or not isinstance(known["settings"], dict):
        raise ValueError(
            f"the study {name} must have the settings and the token that `orac tune` writes, "
            f"but its {lacking[0] if lacking else 'settings or token'} cannot be used, so "
            "it is not known which settings its trials have. Restore the database from a "
            "backup, or choose another --out (with --storage, another --study-name)."
        )
    if changes := differences(settings, known["settings"]):
        field, (ours, theirs) = next(iter(changes.items()))
        more = f" ({len(changes)} settings differ)" * (len(changes) > 1)
        raise ValueError(
            "all trials of a study must have the same config and search space, but "
            f"{field} is {ours!r} now and {theirs!r} in the study {name}{more}. Run the "
            "command that started the study, or choose another --out (with --storage, "
            "another --study-name)."
        )
    # With the same seed, the sampler would propose the trials of an earlier call again.
    seed = config.seed
    if options.storage is not None or has_trials:
        seed = zlib.crc32(f"{seed} {place} {len(study.trials)}".encode())
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    return study


def settings_of(config: Config, space: Space) -> dict[str, Any]:
    """Return the config and the search space of a study as JSON values, by name."""
    searched = {
        parameter.name: [*parameter.choices]
        or [parameter.low, parameter.high, parameter.log, parameter.whole]
        for parameter in space
    }
    settings = {
        **overrides.flat_config(config),
        **{f"the space of {name}": values for name, values in searched.items()},
    }
    return json.loads(json.dumps(settings))


def differences(ours: Mapping[str, Any], theirs: Any) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by name, each with our value and theirs."""
    names = overrides.differing_names([ours, theirs])
    return {name: (ours.get(name), theirs.get(name)) for name in names}


def check_same_study(study: Any, options: TuneOptions) -> None:
    """Raise a `ValueError` if the folder belongs to another study.

    In a new folder, this function writes the file `STUDY_FILE`.
    """
    file, token = options.out / STUDY_FILE, study.user_attrs["token"]
    if not file.is_file():
        note = {"study": study.study_name, "token": token}
        write_text(file, serialization.write_yaml(note))
        return
    text = read_text(file, serialization.MAX_YAML_BYTES)
    known = serialization.read_yaml(text, str(file))
    if not isinstance(known, dict) or known.get("token") != token:
        raise ValueError(
            f"{options.out} has the trials of another study"
            f"{' or database' if options.storage else ''}. Choose another --out, or give "
            "the --storage and --study-name of the earlier call."
        )


class Tuner:
    """Gets trials from an Optuna study, trains them and reports their results to the study."""

    def __init__(
        self,
        optuna: Any,
        study: Any,
        config: Config,
        space: Space,
        options: TuneOptions,
        log: Log,
    ) -> None:
        self._optuna, self._study = optuna, study
        self._config, self._space = config, space
        self._options, self._log = options, log
        self._place = f"{socket.gethostname()}:{options.out.resolve()}"
        self._trials: dict[PlannedRun, Any] = {}
        self._reported: dict[PlannedRun, set[int]] = {}
        self._last: dict[PlannedRun, tuple[float, tuple[float, ...]]] = {}
        self._sizes: dict[PlannedRun, int] = {}
        self._pruned: set[PlannedRun] = set()
        self._killed: set[PlannedRun] = set()

    def run(self, backend: Processes, signals: Sequence[int]) -> bool:
        """Run trials until the study has as many as `TuneOptions.trials`.

        Returns whether the search was stopped before that.
        """
        started, stopping = time.monotonic(), ""
        self._propose_preset()
        interrupted = self._unfinished_here()
        try:
            while True:
                over = time.monotonic() - started >= 3600 * self._options.budget_hours
                if not stopping and (signals or over):
                    stopping = "interrupted" if signals else "time budget used up"
                    self._log(
                        f"Stopping ({stopping}). Each running trial first saves a "
                        "checkpoint."
                    )
                    backend.stop()
                while not stopping and backend.free:
                    if not self._start_next(backend, interrupted):
                        break
                for run in [*backend.running]:
                    if (
                        not stopping
                        and run not in self._pruned
                        and self._should_prune(run)
                    ):
                        self._pruned.add(run)
                        backend.stop_run(run)
                for outcome in backend.ended():
                    self._finish(outcome, backend, bool(stopping))
                if not backend.running and (stopping or not self._missing()):
                    break
                time.sleep(POLL_SECONDS)
        finally:
            backend.close()
        return bool(stopping) and bool(self._missing() or self._unfinished_here())

    def _propose_preset(self) -> None:
        """Queue the unchanged config as the first trial, if its values are in the space."""
        values = {p.name: value_in(self._config, p) for p in self._space}
        outside = [name for name, value in values.items() if value is None]
        if outside and not self._study.get_trials(deepcopy=False):
            self._log(
                f"The value of {outside[0]} in the config is outside the space, so no trial "
                "has exactly the settings of the config."
            )
        if not outside:
            self._study.enqueue_trial(values, skip_if_exists=True)

    def _missing(self) -> int:
        """Return how many trials still have to start.

        A trial without a place was never started, because its process was killed before it
        could. Another machine may be about to start it, and there is then one trial more.
        """
        waiting = self._optuna.trial.TrialState.WAITING
        trials = self._study.get_trials(deepcopy=False)
        started = sum(
            trial.state != waiting and not self._has_no_place(trial) for trial in trials
        )
        return max(self._options.trials - started, 0)

    def _unfinished_here(self) -> deque[Any]:
        """Return the trials that an earlier call with this folder did not finish.

        If the database is in the folder, which is locked, trials without a place are too.
        """
        running = self._optuna.trial.TrialState.RUNNING
        is_own_database = self._options.storage is None
        return deque(
            trial
            for trial in self._study.get_trials(deepcopy=False, states=(running,))
            if trial.user_attrs.get("place") == self._place
            or (is_own_database and self._has_no_place(trial))
        )

    def _has_no_place(self, trial: Any) -> bool:
        """Return whether a trial was created and then neither started nor finished."""
        running = self._optuna.trial.TrialState.RUNNING
        return trial.state == running and "place" not in trial.user_attrs

    def _start_next(self, backend: Processes, interrupted: deque[Any]) -> bool:
        """Continue an interrupted trial or start a new one; return False if none is left."""
        reported: set[int] = set()
        if interrupted:
            frozen = interrupted.popleft()
            reported = set(frozen.intermediate_values)
            trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        elif self._missing():
            trial = self._study.ask()
        else:
            return False
        trial.set_user_attr("place", self._place)
        label = f"trial {trial.number}"
        try:
            values = {p: p.suggest(trial) for p in self._space}
            seed = (self._config.seed + trial.number) % 2**32
            config = replace(with_values(self._config, values), seed=seed)
        except ValueError as error:
            self._fail(trial, str(error))
            return True
        run = PlannedRun(
            label,
            config,
            f"trial-{trial.number:04d}",
            self._options.out / "runs",
            fresh_episodes=self._options.episodes
            or episodes_for_tails(config.constraints, TAIL_EPISODES, 100),
            fresh_seed=self._config.seed,
        )
        self._trials[run], self._reported[run] = trial, reported
        step = run.step()
        self._log(f"started   {label}{f' at step {step:,}' if step else ''}")
        backend.start(run)
        return True

    def _should_prune(self, run: PlannedRun) -> bool:
        """Report the new evaluations of a run, and return whether to stop its trial early."""
        file = run.path / "evaluations.csv"
        size = file.stat().st_size if file.is_file() else 0
        if size == self._sizes.get(run, 0):
            return False
        self._sizes[run] = size
        trial, prune, step = self._trials[run], False, 0
        for step, reward, risks in read_evaluations(run):
            self._last[run] = reward, risks
            if step not in self._reported[run]:
                self._reported[run].add(step)
                trial.report(score(reward, run.config.excesses(risks)), step)
                prune = bool(trial.should_prune())
        return prune and step < run.total_steps

    def _finish(self, outcome: Outcome, backend: Processes, stopping: bool) -> None:
        """Report to the study how a trial ended, or start a killed trial once more."""
        run, states = outcome.run, self._optuna.trial.TrialState
        trial = self._trials[run]
        time_text = clock_text(outcome.seconds)
        if outcome.status == "killed" and run not in self._killed and not stopping:
            self._killed.add(run)
            self._log(f"{run.label} was killed and continues: {outcome.error}")
            backend.start(run)
        elif outcome.status == "finished":
            reward, risks = read_fresh(run)
            self._record(run, reward, risks)
            self._study.tell(trial, reward)
            self._log(
                f"finished  {run.label}, {time_text}: reward {number(reward)}"
                f"{risk_suffix(risks, run.config)}"
            )
        elif outcome.status == "stopped" and run in self._pruned:
            reward, risks = self._last[run]
            self._record(run, reward, risks)
            self._study.tell(trial, state=states.PRUNED)
            self._log(
                f"pruned    {run.label} at step {run.step():,}, {time_text}: worse than "
                f"most, reward {number(reward)}{risk_suffix(risks, run.config)}"
            )
        elif outcome.status == "stopped":
            self._log(f"stopped   {run.label} at step {run.step():,}; it is saved")
        else:
            self._fail(trial, outcome.error)

    def _record(self, run: PlannedRun, reward: float, risks: Sequence[float]) -> None:
        """Store the reward and the risks, and how far each risk is above its limit."""
        trial = self._trials[run]
        trial.set_user_attr("reward", reward)
        trial.set_user_attr("risks", [*risks])
        with warnings.catch_warnings():
            # Optuna warns if an earlier process has set the constraints of this trial and
            # ended before it called `tell`.
            warnings.filterwarnings("ignore", "The constraint value is ignored")
            for constraint, excess in zip(
                run.config.constraints, run.config.excesses(risks), strict=True
            ):
                trial.set_constraint(constraint.name, excess)

    def _fail(self, trial: Any, error: str) -> None:
        trial.set_user_attr("error", error)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        self._log(f"failed    trial {trial.number}: {error}")

    def write_results(self, arguments: str) -> bool:
        """Print the trials within the limits, and write best.yaml and the page.

        Returns whether any trial is within the limits.
        """
        config, out, log = self._config, self._options.out, self._log
        states = self._optuna.trial.TrialState
        trials = self._study.get_trials(deepcopy=False)
        complete = [trial for trial in trials if trial.state == states.COMPLETE]
        points = [point for point in map(self._point, complete) if point]
        ranked = sorted((p for p in points if p.feasible), key=lambda p: -p.reward)
        unusable = len(complete) - len(points)
        table_notes = trial_notes(trials, points, unusable)
        table = trials_table(ranked, self._space, config, table_notes)
        log("")
        log(to_text(table))
        best = ""
        if ranked:
            stored = ranked[0].values
            values = {p: p.from_storage(stored[p.name]) for p in self._space}
            best = serialization.dump(with_values(config, values))
            write_text(out / "best.yaml", best)
            log(f"Best config: {out / 'best.yaml'}")
            log(f"Train with it: orac train --config {out / 'best.yaml'}{arguments}")
        elif points:
            least = min(points, key=lambda p: max(config.excesses(p.risks)))
            log(
                f"No trial is within its limits, so there is no best config. Trial "
                f"{least.number} is nearest{risk_suffix(least.risks, config)}. Train longer "
                "(--total-steps), try more trials (--trials), or raise the limit."
            )
        axes = [
            Axis(p.name, title, p.log, p.choices)
            for p, title in zip(self._space, short_names(self._space), strict=True)
        ]
        title = (
            f"orac tune: {config.algo} in {config.env.id}, {count(len(trials), 'trial')} of "
            f"up to {config.training.total_steps:,} steps"
        )
        limits = [(c.name, c.limit) for c in config.constraints]
        page = tuning_page.make_page(title, [table], points, axes, limits, best)
        write_text(out / "tune.html", page)
        log(f"Page: {out / 'tune.html'}")
        return bool(ranked)

    def _point(self, trial: Any) -> Point | None:
        """Return the results of a finished trial, or None if they cannot be used."""
        reward, risks = map(trial.user_attrs.get, ("reward", "risks"))
        if not isinstance(risks, list) or len(risks) != len(self._config.constraints):
            return None
        if not all(map(is_number, (reward, *risks))):
            return None
        try:
            stored = {p: p.from_storage(trial.params[p.name]) for p in self._space}
            with_values(self._config, stored)
        except (KeyError, TypeError, ValueError):
            return None
        feasible = all(excess <= 0 for excess in self._config.excesses(risks))
        return Point(trial.number, reward, tuple(risks), feasible, dict(trial.params))


def score(reward: float, excess: Sequence[float]) -> float:
    """Return the score by which evaluations are compared to prune trials.

    Within the limits, the score is the reward. Above a limit, it is lower than any reward,
    and it decreases as the risk increases.
    """
    worst = max(excess, default=0.0)
    return reward if worst <= 0 else INFEASIBLE * (1 + min(worst, 1e6))


def read_evaluations(
    run: PlannedRun,
) -> list[tuple[int, float, tuple[float, ...]]]:
    """Return the step, the mean reward and the risks of each evaluation of a run so far.

    Evaluations with a non-finite episode are left out.
    """
    found = read_run(run.path)
    steps, rewards = evaluation_curve(found, "reward")
    risks = [
        evaluation_curve(found, cost_column(c.name), c.measure)[1]
        for c in run.config.constraints
    ]
    rows = [
        (int(step), float(rewards[i]), tuple(float(risk[i]) for risk in risks))
        for i, step in enumerate(steps)
    ]
    return [row for row in rows if all(map(math.isfinite, (row[1], *row[2])))]


def read_fresh(run: PlannedRun) -> tuple[float, tuple[float, ...]]:
    """Return the reward and the risks of the fresh episodes of a finished run."""
    summary = json.loads((run.path / FRESH_FILE).read_text())
    risks = [summary[f"{cost_column(c.name)}/risk"] for c in run.config.constraints]
    return float(summary["reward/mean"]), tuple(map(float, risks))


def risk_suffix(risks: Sequence[float], config: Config) -> str:
    """Return a text such as ", risk 4.2 (limit 5)", with one part per constraint."""
    several = len(config.constraints) > 1
    return "".join(
        f", risk{f' of {c.name}' * several} {number(risk)} (limit {c.limit:g})"
        for risk, c in zip(risks, config.constraints, strict=True)
    )


def short_names(space: Space) -> list[str]:
    """Return a short name for each parameter: its first field, without `agent.`."""
    return [parameter.fields[0].removeprefix("agent.") for parameter in space]


def trials_table(
    ranked: Sequence[Point], space: Space, config: Config, notes: Sequence[str]
) -> Table:
    """Return a table of the trials within the limits, best first."""
    risks = [f"risk of {c.name} (limit {c.limit:g})" for c in config.constraints]
    columns = ("trial", "reward", *risks, *short_names(space))

    rows = tuple(
        (
            str(point.number),
            number(point.reward),
            *(number(risk) for risk in point.risks),
            *(shown_value(point.values[parameter.name]) for parameter in space),
        )
        for point in ranked
    )
    where = "within the limits" if config.constraints else "finished"
    title = f"Trials {where}: {config.algo} in {config.env.id}"
    return Table(title, columns, rows, tuple(notes))


def trial_notes(
    trials: Sequence[Any], points: Sequence[Point], unusable: int
) -> list[str]:
    """Return notes on the trials that the table leaves out.

    `unusable` is the number of finished trials whose results in the database cannot be used.
    """
    above = sum(not point.feasible for point in points)
    states = [trial.state.name for trial in trials]
    parts = [
        (above, "finished above a limit"),
        (states.count("PRUNED"), "pruned"),
        (states.count("FAIL"), "failed"),
        (states.count("RUNNING"), "not finished"),
    ]
    text = ", ".join(f"{n} {what}" for n, what in parts if n)
    notes = [f"Of {count(len(trials), 'trial')}: {text}."] if text else []
    if unusable:
        notes.append(
            f"{count(unusable, 'finished trial')} left out, because the reward, the risks or "
            "the settings in the database are not those that orac tune wrote."
        )
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    notes += [
        f"Trial {trial.number} failed: {trial.user_attrs.get('error', 'unknown')}"
        for trial in failed
    ]
    return notes
