"""Read runs from disk and group them by config.

`read_run` reads one run directory, and `read_results` reads all runs at or below some
paths. Runs whose configs differ only in the seed form a `Group`, which is one row of a
table. `Results` has the groups, and notes on runs that are unreadable, unfinished, repeated
or hard to compare.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from orac.config import serialization
from orac.config.overrides import differing_names, flat_config
from orac.config.reading import read_limited
from orac.config.schema import Config, Constraint
from orac.config.validation import is_number, shown
from orac.evaluation.cvar_bounds import sample_cvar
from orac.evaluation.episodes import cost_column
from orac.runs.directory import (
    LOGS,
    certificate_problem,
    is_continuation,
    read_config,
    read_delivered,
    read_meta,
    valid_certificate,
)

Columns = dict[str, np.ndarray]

COLUMNS = {
    "metrics": ("env_steps",),
    "timings": ("env_steps", "train_seconds", "evaluate_seconds", "steps_per_second"),
    "evaluations": ("env_steps", "episode", "reward", "length"),
}
"""Columns that these logs of a run must have, unless the file is missing or empty."""
MAX_CSV_BYTES = 1 << 31
MAX_HEADER_BYTES = 1 << 20
MAX_CELLS = 100_000_000
"""Limits of a CSV file: bytes of the file, bytes of its first row, and number of cells."""
MAX_STEP = 1 << 53
"""Numbers of steps are below this, so that a double represents them exactly."""
SUMMARY_KEYS = ("episodes", "reward/", "length/", "cost/", "env/")
"""Prefixes of the keys that `evaluation.episodes.summarise` returns."""
_MAX_LABEL_FIELDS = 2
"""If more fields than this differ, a label has the name of the runs' folder instead."""
_MAX_LISTED_EVALUATIONS = 3
"""A note lists at most this many evaluations of one run and counts the others."""


@dataclass(frozen=True)
class DeliveredPolicy:
    """The policy that a run delivers (see `training.delivery`), and its measurements."""

    step: int
    reward: float
    risk: tuple[float, ...]
    """One number per constraint."""
    episodes: int
    within_limits: bool
    bounds: tuple[float, ...] = ()
    """Upper bound of the risk per constraint; empty if the policy is not certified."""
    confidence: float = 0.0
    """Confidence of the bounds; 0 if the policy is not certified."""
    refused: bool = False
    """Whether `orac certify` tested the run and certified no policy."""


@dataclass(frozen=True, eq=False)
class Run:
    """Contents of one run directory, without checkpoints and training episodes."""

    path: Path
    config: Config
    meta: dict[str, Any]
    metrics: Columns
    timings: Columns
    evaluations: Columns
    delivered: DeliveredPolicy | None = None

    @property
    def rule(self) -> str | None:
        """Name of the evaluated rule (a hand-coded baseline); None for a trained policy."""
        return (self.meta.get("evaluated") or {}).get("rule")

    @property
    def is_saved_evaluation(self) -> bool:
        """Whether this is an evaluation that `orac evaluate --out` saved, not a training run."""
        return "evaluated" in self.meta

    @property
    def steps(self) -> int:
        """Environment steps trained so far; 0 for a rule."""
        if self.is_saved_evaluation:
            return int(self.meta["evaluated"].get("env_steps", 0))
        rows = self.metrics.get("env_steps", np.empty(0))
        return int(rows[-1]) if len(rows) else 0

    @property
    def finished(self) -> bool:
        """Whether the run reached its last step; always True for a rule."""
        return bool(self.rule) or self.steps >= self.config.training.total_steps

    @property
    def evaluation_steps(self) -> np.ndarray:
        """Environment steps at which the run was evaluated, in order."""
        return np.unique(self.evaluations.get("env_steps", np.empty(0)))

    @property
    def cost_names(self) -> list[str]:
        """Names of the costs in the evaluations."""
        columns = filter(is_cost_column, self.evaluations)
        return [name.removeprefix("cost/") for name in columns]

    @property
    def non_finite_episodes(self) -> dict[int, int]:
        """Number of episodes with a non-finite reward, cost or length, by evaluation step."""
        columns = [
            values
            for name, values in self.evaluations.items()
            if name in ("reward", "length") or is_cost_column(name)
        ]
        if not columns or not len(self.evaluation_steps):
            return {}
        broken = ~np.isfinite(columns).all(axis=0)
        return dict(Counter(map(int, self.evaluations["env_steps"][broken])))

    @property
    def last_evaluation_is_finite(self) -> bool:
        """Whether there is a last evaluation and all of its episodes are finite."""
        steps = self.evaluation_steps
        return len(steps) > 0 and steps[-1] not in self.non_finite_episodes


@dataclass(frozen=True, eq=False)
class RecordedRun(Run):
    """A run that was read from the record of a study.

    A record has a summary of each evaluation but not its episodes. `metrics` and `timings`
    have one row.
    """

    row: dict[str, Any] = field(default_factory=dict)
    """Values of the run's row in runs.csv, by column."""
    curves: Columns = field(default_factory=dict)
    """Columns of the run's rows in curves.csv, with one entry per evaluation."""

    @property
    def summary(self) -> dict[str, float]:
        """Summary of the last evaluation; empty if it has a non-finite episode."""
        return {
            name: value
            for name, value in self.row.items()
            if value is not None and name.startswith(SUMMARY_KEYS)
        }

    @property
    def cost_names(self) -> list[str]:
        """Names of the costs in the evaluations."""
        means = [key[: -len("/mean")] for key in self.curves if key.endswith("/mean")]
        return [name.removeprefix("cost/") for name in filter(is_cost_column, means)]

    @property
    def last_evaluation_is_finite(self) -> bool:
        """Whether there is a last evaluation and all of its episodes are finite."""
        return "reward/mean" in self.summary


@dataclass(frozen=True)
class Group:
    """Runs of one config, one per seed."""

    label: str
    """Name of the group, which is unique among the groups of the same environment."""
    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        """Config that all runs share, apart from the seed."""
        return self.runs[0].config

    @property
    def env_id(self) -> str:
        """Id of the environment that the runs share."""
        return self.config.env.id

    @property
    def is_rule(self) -> bool:
        """Whether the policy is a rule (a hand-coded baseline), which is not trained."""
        return self.runs[0].rule is not None

    @property
    def evaluated(self) -> tuple[Run, ...]:
        """Runs that have at least one evaluation."""
        return tuple(run for run in self.runs if len(run.evaluation_steps))


@dataclass(frozen=True)
class Results:
    """Groups of runs, and notes that a reader of their numbers should know."""

    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """All runs of all groups."""
        return [run for group in self.groups for run in group.runs]

    def by_env(self) -> dict[str, list[Group]]:
        """Return the groups by environment id, in the order in which they were found."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.env_id, []).append(group)
        return found


def full_label(group: Group, groups: Sequence[Group]) -> str:
    """Return a group's label, with its environment if `groups` have several environments."""
    several = len({other.env_id for other in groups}) > 1
    return f"{group.label} in {group.env_id}" if several else group.label


def cost_names(groups: Iterable[Group]) -> list[str]:
    """Return the names of all costs in the evaluations of the groups."""
    runs = [run for group in groups for run in group.runs]
    return list(dict.fromkeys(name for run in runs for name in run.cost_names))


def constraints_of(groups: Sequence[Group]) -> list[Constraint]:
    """Return the constraints of all groups. The same constraint may occur several times."""
    return [constraint for group in groups for constraint in group.config.constraints]


def is_cost_column(column: str) -> bool:
    """Return whether a column of evaluations.csv is a cost; see `cost_column`."""
    return column == "cost" or column.startswith("cost/")


def read_results(paths: Iterable[str | os.PathLike[str]]) -> Results:
    """Read and group all runs at or below `paths`, with a note on each unreadable run."""
    runs, notes = [], []
    for path in find_runs(paths):
        try:
            runs.append(read_run(path))
        except (ValueError, OSError) as error:
            notes.append(f"{path} is left out: {error}")
    if not runs:
        raise ValueError(f"none of the runs found can be read. {' '.join(notes)}")
    found = group_runs(runs)
    return Results(found.groups, (*notes, *found.notes))


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return each run directory once, in the order of `paths` and then by name."""
    found: dict[Path, Path] = {}
    # Other programs use the name config.yaml too, but a run also has metadata or logs.
    names = ["meta.json", *(f"{log}.csv" for log in LOGS)]
    for root in map(Path, paths):
        folders = sorted(file.parent for file in root.rglob("config.yaml"))
        runs = [x for x in folders if any((x / name).is_file() for name in names)]
        if not runs:
            raise FileNotFoundError(
                f"no run found at or below {root}. A run's directory looks like "
                "runs/<env>/<algo>/<name>/seed-000 and has config.yaml and meta.json."
            )
        for path in runs:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read one run directory, except for its checkpoints and its episodes.csv."""
    path = Path(path)
    try:
        config = serialization.from_dict(read_config(path))
    except ValueError as error:
        raise ValueError(f"the config of {path} cannot be used: {error}") from error
    logs: dict[str, Columns] = {}
    for name in ("metrics", "timings", "evaluations"):
        logs[name] = read_columns(path / f"{name}.csv")
        lacking = [x for x in COLUMNS[name] if logs[name] and x not in logs[name]]
        if lacking:
            raise ValueError(
                f"{path / name}.csv must have the column {lacking[0]}, but it is missing. "
                "Restore the file."
            )
        steps = np.asarray(logs[name].get("env_steps", 0))
        if not ((steps >= 0) & (steps < MAX_STEP) & (steps == np.floor(steps))).all():
            raise ValueError(
                f"{path / name}.csv must have a whole number of env_steps, at least 0, in every "
                "row. Restore the file."
            )
    if logs["evaluations"]:
        check_episode_numbers(logs["evaluations"], path / "evaluations.csv")
    meta = read_meta(path)
    check_meta(meta, path / "meta.json")
    return Run(
        path, config, meta, **logs, delivered=read_delivered_policy(path, config)
    )


def check_episode_numbers(evaluations: Columns, file: Path) -> None:
    """Raise an error unless the episodes of each evaluation are numbered 0, 1, 2, ...

    This finds rows that were copied from elsewhere, and rows that are missing, except at the
    end of an evaluation.
    """
    steps, numbers = evaluations["env_steps"], evaluations["episode"]
    rows = np.arange(len(steps))
    is_first = np.diff(steps, prepend=-1) != 0
    first_row = np.maximum.accumulate(np.where(is_first, rows, 0))
    wrong = numbers != rows - first_row
    repeated = len(np.unique(steps)) < np.count_nonzero(is_first)
    if wrong.any() or repeated:
        where = f"step {int(steps[wrong.argmax()]):,}" if wrong.any() else "one step"
        raise ValueError(
            f"{file} must have the episodes of each evaluation in one block and numbered "
            f"0, 1, 2, ..., but those of {where} are not. Rows are missing or were added. "
            "Restore the file."
        )


def check_meta(meta: dict[str, Any], file: Path) -> None:
    """Raise an error for an entry of meta.json that a report reads and cannot use."""
    evaluated, versions = meta.get("evaluated", {}), meta.get("versions")
    is_valid = isinstance(evaluated, dict)
    if is_valid:
        rule, steps = evaluated.get("rule"), evaluated.get("env_steps", 0)
        is_valid = isinstance(rule, str | None) and type(steps) is int
        is_valid = is_valid and 0 <= steps < MAX_STEP
    for name, valid in (
        ("evaluated", is_valid),
        ("versions", isinstance(versions, dict | None)),
    ):
        if not valid:
            raise ValueError(
                f"{name} in {file} must be a mapping that orac wrote, got "
                f"{shown(meta[name])}. Restore the file."
            )


def read_delivered_policy(path: Path, config: Config) -> DeliveredPolicy | None:
    """Return the policy that a run delivers, as described by the files of the run.

    It is the certified policy if certificate.json has one, and otherwise the policy of
    delivered.json. Returns None if there is no certified policy and delivered.json is
    missing, does not fit the run (`delivered_problem`) or has no measured policy.
    """
    record, certificate = read_delivered(path), valid_certificate(path)
    if delivered_problem(path, config):
        record = None
    limits = {constraint.name: constraint.limit for constraint in config.constraints}
    try:
        if certificate and certificate["certified"]:
            look = certificate["looks"][-1]
            return DeliveredPolicy(
                int(certificate["step"]),
                float(look["reward"]),
                tuple(float(bound["estimate"]) for bound in look["bounds"]),
                int(look["episodes"]),
                True,
                tuple(float(bound["upper"]) for bound in look["bounds"]),
                float(certificate["confidence"]),
            )
        if not record or not record["episodes"]:
            return None
        if type(record["episodes"]) is not int or not 0 < record["episodes"] < MAX_STEP:
            raise ValueError(f"episodes is {shown(record['episodes'])}")
        if not is_number(record["reward"]):
            raise ValueError(f"reward is {shown(record['reward'])}")
        risk = {name: float(record["risk"][name]) for name in limits}
        within = all(risk[name] <= limit for name, limit in limits.items())
        return DeliveredPolicy(
            int(record["step"]),
            float(record["reward"]),
            tuple(risk.values()),
            int(record["episodes"]),
            within and record["within_limits"] is True,
            refused=certificate is not None,
        )
    except (
        *(KeyError, IndexError, TypeError, ValueError, AttributeError),
        OverflowError,
    ) as error:
        raise ValueError(
            f"delivered.json or certificate.json in {path} must have the fields that orac "
            f"writes, but reading them raised {error!r}. Restore the file, or delete it."
        ) from error


def delivered_problem(path: Path, config: Config) -> str:
    """Return why delivered.json does not fit the run as it is now.

    The text is empty if the file fits or is missing. The file may have been copied from
    another run, or it or the config may have been edited.
    """
    record, file = read_delivered(path) or {}, path / "delivered.json"
    limits = {constraint.name: constraint.limit for constraint in config.constraints}
    if record.get("limit", limits) != limits:
        return f"{file} is ignored, because its limits are not those of {path / 'config.yaml'}."
    step, written = record.get("step"), record.get("written_at_step", MAX_STEP)
    if not is_number(step):
        return ""
    if is_number(written) and step > written:
        return (
            f"{file} is ignored, because it describes a policy of step {step:,}, but was "
            f"written at step {written:,}."
        )
    risks = record.get("risk")
    risks = risks if isinstance(risks, dict) else {}
    known = {x: r for x, r in risks.items() if isinstance(r, float) or is_number(r)}
    above = [x for x, limit in limits.items() if x in known and not known[x] <= limit]
    if record.get("within_limits") is True and above:
        return (
            f"{file} is ignored, because it calls the policy within the limits, but its risk "
            f"of {above[0]} is {known[above[0]]:g} (limit {limits[above[0]]:g})."
        )
    return _evaluation_problem(record, known, path, config)


def _evaluation_problem(
    record: dict[str, Any], risks: dict[str, float], path: Path, config: Config
) -> str:
    """Return how delivered.json contradicts evaluations.csv, or "" if it does not.

    The measurements of a stored policy are about the episodes of its evaluation, and about
    more episodes if there was a second test. Those of a last policy are about the episodes
    of the last evaluation. `risks` are the measured risks by constraint.
    """
    # The run may be training, so the log is read after delivered.json, which is written later.
    logged = read_columns(path / "evaluations.csv")
    steps = logged.get("env_steps", np.empty(0))
    episodes: Any = record.get("episodes")
    counted = type(episodes) is int and 0 < episodes < MAX_STEP
    if not counted or not len(steps) or is_continuation(path):
        return ""
    file, at = path / "delivered.json", record["step"]
    is_last = record.get("checkpoint") == "last"
    if is_last:
        at = max(steps[steps <= at], default=at)
    here = steps == at
    if not here.any():
        return (
            f"{file} is ignored, because it describes a policy of step {at:,}, at which "
            f"{path / 'evaluations.csv'} has no evaluation."
        )
    if episodes < here.sum() or (is_last and episodes > here.sum()):
        return (
            f"{file} is ignored, because it claims {episodes:,} episodes, but the evaluation at "
            f"step {int(at):,} has {here.sum():,}."
        )
    for constraint in config.constraints:
        costs = logged.get(cost_column(constraint.name), np.empty(0))
        measure, claimed = (
            config.limited_measure(constraint),
            risks.get(constraint.name),
        )
        known = len(costs) > 0 and measure.name in ("cvar", "mean")
        if claimed is None or not known or not (costs[here] >= 0).all():
            continue
        lowest = _lowest_risk(costs[here], episodes, measure.dual_tail)
        # Numerics: training computes risks in float32.
        if claimed < lowest * (1 - 1e-3):
            return (
                f"{file} is ignored, because it claims a risk of {constraint.name} of "
                f"{claimed:g} on {episodes:,} episodes, but with the evaluation at step "
                f"{int(at):,} among them it is at least {lowest:g}."
            )
    return ""


def _lowest_risk(costs: np.ndarray, episodes: int, tail: float) -> float:
    """Return the CVaR of these costs and of further episodes that cost nothing.

    `episodes` is the number of both together.
    """
    share = min(tail * episodes / len(costs), 1.0)
    return sample_cvar(costs, share) * share * len(costs) / (tail * episodes)


def read_columns(file: Path) -> Columns:
    """Return the columns of a CSV file of numbers, or no columns if there is no such file."""
    data = read_limited(file, MAX_CSV_BYTES) if file.is_file() else b""
    # The last row may be incomplete while the run is still writing.
    header, _, body = data[: data.rfind(b"\n") + 1].partition(b"\n")
    cells = body.count(b",") + body.count(b"\n")
    if len(header) > MAX_HEADER_BYTES or cells > MAX_CELLS:
        raise ValueError(
            f"{file} must have at most {MAX_HEADER_BYTES:,} bytes of column names and "
            f"{MAX_CELLS:,} cells, got {len(header):,} and {cells:,}. Restore the file."
        )
    try:
        names = next(csv.reader([header.decode()]), [])
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"the first row of {file} must name its columns: {error}. Restore the file."
        ) from error
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{file} must have each column once, but {twice} is there twice. Restore the "
            "file."
        )
    if not body:
        return {name: np.empty(0) for name in names}
    # An empty cell is a missing value.
    while b",," in body:
        body = body.replace(b",,", b",nan,")
    body = body.replace(b",\n", b",nan\n").replace(b"\n,", b"\nnan,")
    try:
        values = np.loadtxt(io.BytesIO(body), delimiter=",", ndmin=2, comments=None)
        if len(values) < body.count(b"\n"):
            raise ValueError("there is an empty row")
        return dict(zip(names, values.T, strict=True))
    except ValueError as error:
        raise ValueError(
            f"{file} must have {len(names)} numbers in each row. Reading it failed: "
            f"{error}. Restore the file."
        ) from error


def group_runs(runs: Sequence[Run]) -> Results:
    """Group runs whose configs differ only in the seed.

    If a group has several runs of one seed, only the one with the most steps is used, and a
    note says so.
    """
    by_config: dict[str, dict[int, Run]] = {}
    notes = []
    for run in runs:
        config = serialization.to_dict(run.config) | {"seed": 0}
        seeds = by_config.setdefault(repr((run.rule, config)), {})
        used = seeds.setdefault(run.config.seed, run)
        if used is not run:
            used, repeated = (run, used) if run.steps > used.steps else (used, run)
            seeds[run.config.seed] = used
            notes.append(
                f"{repeated.path} repeats seed {run.config.seed} of {used.path} and is "
                "not counted."
            )
    members = [tuple(x[seed] for seed in sorted(x)) for x in by_config.values()]
    # Rules come last, as the reference for the trained policies.
    members.sort(key=lambda seeds: seeds[0].rule is not None)
    found = Results(tuple(map(Group, _labels(members), members)))
    for run in found.runs:
        notes += _run_notes(run)
    for env_id, groups in found.by_env().items():
        notes += comparison_notes(env_id, groups)
        notes += filter(None, map(_mixture_note, groups))
    return Results(found.groups, tuple(notes))


def _labels(members: Sequence[tuple[Run, ...]]) -> list[str]:
    """Return the labels of groups: the agent, and the fields that distinguish its groups."""

    def agent(run: Run) -> tuple[str, str, str | None]:
        return run.config.env.id, run.config.algo, run.rule

    firsts = [runs[0] for runs in members]
    named = []
    for run in firsts:
        env_id, algo, rule = agent(run)
        flat = flat_config(run.config)
        fields = differing_fields([x.config for x in firsts if agent(x) == agent(run)])
        parts = [f"{name.split('.')[-1]}={flat.get(name)}" for name in fields]
        if len(parts) > _MAX_LABEL_FIELDS:
            parts = [run.path.resolve().parent.name]
        parts = ["rule", *parts] if rule else parts
        named.append((env_id, f"{algo} ({', '.join(parts)})" if parts else algo))
    return [
        label if named.count((env_id, label)) == 1 else f"{label} #{i + 1}"
        for i, (env_id, label) in enumerate(named)
    ]


def differing_fields(configs: Sequence[Config]) -> list[str]:
    """Return the dotted names of the fields, except the seed, in which configs differ."""
    names = differing_names([flat_config(config) for config in configs])
    return [name for name in names if name != "seed"]


def _mixture_note(group: Group) -> str:
    """Return a note if the runs of a group were not all evaluated in the same way.

    The note is empty if they were.
    """

    def kind(run: Run) -> str:
        if not run.is_saved_evaluation:
            return "evaluations during training"
        evaluated = run.meta["evaluated"]
        action = "sampled" if evaluated.get("deterministic") is False else "mean"
        which = "last" if evaluated.get("checkpoint") == "last" else "delivered"
        return f"{action} actions of the {which} policy"

    kinds = sorted({kind(run) for run in group.evaluated})
    if len(kinds) < 2 or group.is_rule:
        return ""
    return (
        f"The seeds of {group.label} in {group.env_id} were not evaluated in the same way: "
        f"{', '.join(kinds)}. Evaluate them with the same options."
    )


def comparison_notes(env_id: str, groups: Sequence[Group]) -> list[str]:
    """Return notes on what makes the groups of one environment hard to compare."""
    notes = []
    configs = [group.config for group in groups]
    fields = [name for name in differing_fields(configs) if name.startswith("env.")]
    if fields:
        notes.append(
            f"The groups in {env_id} differ in {', '.join(fields)}, so their numbers are "
            "about different tasks."
        )
    evaluated = [run for group in groups for run in group.evaluated]
    steps = [run.evaluations["env_steps"] for run in evaluated]
    counts = {int((known == known.max()).sum()) for known in steps}
    if len(counts) > 1:
        notes.append(
            f"The last evaluations in {env_id} have {min(counts):,} to {max(counts):,} "
            "episodes. With fewer episodes, the CVaR and the worst cost tend to be lower."
        )
    if any(group.is_rule for group in groups):
        notes.append(
            f"The rules in {env_id} were not trained. Their seeds only select episodes."
        )
    return notes


def _run_notes(run: Run) -> list[str]:
    """Return notes on an unfinished run, missing evaluations and non-finite episodes."""
    notes = []
    if not run.finished:
        used = "; its last evaluation is used" if len(run.evaluation_steps) else ""
        notes.append(
            f"{run.path} is at step {run.steps:,} of "
            f"{run.config.training.total_steps:,}{used}."
        )
    if not len(run.evaluation_steps):
        notes.append(f"{run.path} has no evaluation and is left out of the tables.")
    problems = certificate_problem(run.path), delivered_problem(run.path, run.config)
    notes += filter(None, problems)
    broken = [*run.non_finite_episodes.items()]
    if broken:
        steps = run.evaluations["env_steps"]
        listed = [
            f"{episodes} of {int((steps == step).sum())} at step {step:,}"
            for step, episodes in broken[-_MAX_LISTED_EVALUATIONS:]
        ]
        earlier = len(broken) - len(listed)
        more = f", and in {count(earlier, 'earlier evaluation')}" if earlier else ""
        consequence = (
            "curves leave these evaluations out"
            if run.last_evaluation_is_finite
            else "the last evaluation is one of them, so tables have no numbers that need this "
            "run. Leave the run out to see the numbers of the others"
        )
        notes.append(
            f"{run.path} has episodes with a reward, cost or length that is not finite: "
            f"{', '.join(listed)}{more}; {consequence}."
        )
    return notes


def count(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural, as in `3 seeds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
