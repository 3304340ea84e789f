"""Read runs from disk and group them by config.

`read_run` reads one run directory into a `Run`, and `read_results` every run below some
paths. Runs whose configs differ only in the seed form a `Group`, which is one row of a
table. `Results` has notes about runs that are unreadable, unfinished, repeated or hard to
compare.
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
from orac.config.schema import Config
from orac.config.validation import read_limited
from orac.runs.directory import (
    LOGS,
    read_certificate,
    read_config,
    read_delivered,
    read_meta,
)

Columns = dict[str, np.ndarray]

COLUMNS = {
    "metrics": ("env_steps",),
    "timings": ("env_steps", "train_seconds", "evaluate_seconds", "steps_per_second"),
    "evaluations": ("env_steps", "episode", "reward", "length"),
}
"""Columns that the logs of every run have."""
MAX_CSV_BYTES = 1 << 31
MAX_HEADER_BYTES = 1 << 20
MAX_CELLS = 100_000_000
"""Largest CSV file that is read: its bytes, its first row and its cells."""
SUMMARY_KEYS = ("episodes", "reward/", "length/", "cost/", "env/")
"""Keys of `evaluation.result.summarise` start with one of these."""
_MAX_LABEL_FIELDS = 2
"""A label lists at most this many fields; if more differ it has the runs' name."""
_MAX_LISTED_EVALUATIONS = 3
"""A note lists at most this many evaluations of one run and counts the others."""


@dataclass(frozen=True)
class DeliveredPolicy:
    """The policy that a run delivers, and what was measured of it."""

    step: int
    reward: float
    risk: tuple[float, ...]
    """One number per constraint."""
    episodes: int
    within_limits: bool
    bounds: tuple[float, ...] = ()
    """Upper bounds of the risk, if the policy is certified."""
    confidence: float = 0.0


@dataclass(frozen=True, eq=False)
class Run:
    """Contents of one run directory."""

    path: Path
    config: Config
    meta: dict[str, Any]
    metrics: Columns
    timings: Columns
    evaluations: Columns
    delivered: DeliveredPolicy | None = None

    @property
    def rule(self) -> str | None:
        """Name of the rule that was evaluated; None for a trained policy."""
        return (self.meta.get("evaluated") or {}).get("rule")

    @property
    def is_saved_evaluation(self) -> bool:
        """Whether the directory holds only an evaluation, as `orac evaluate --out` saves."""
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
        """Whether the run reached its last step."""
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
        """By evaluation step: episodes with a non-finite reward, cost or length."""
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
    """A run of a study's record: numbers of its training and summaries of its evaluations.

    The episodes of the evaluations are not known, and `metrics` and `timings` have one row.
    """

    row: dict[str, Any] = field(default_factory=dict)
    """Row of runs.csv, by column."""
    curves: Columns = field(default_factory=dict)
    """Rows of curves.csv: one entry per evaluation, by the key of `summarise`."""

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
    """Unique among the groups of the same environment."""
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
        """Whether the policy is a rule: untrained, so steps mean nothing."""
        return self.runs[0].rule is not None

    @property
    def evaluated(self) -> tuple[Run, ...]:
        """Runs that have at least one evaluation."""
        return tuple(run for run in self.runs if len(run.evaluation_steps))


@dataclass(frozen=True)
class Results:
    """Groups of runs, and notes that a reader of their numbers should see."""

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
    """Return the label, with the environment if the groups have different ones."""
    several = len({other.env_id for other in groups}) > 1
    return f"{group.label} in {group.env_id}" if several else group.label


def cost_names(groups: Iterable[Group]) -> list[str]:
    """Return the names of all costs in the evaluations of the groups."""
    runs = [run for group in groups for run in group.runs]
    return list(dict.fromkeys(name for run in runs for name in run.cost_names))


def is_cost_column(column: str) -> bool:
    """Return whether a column of evaluations.csv is a cost; see `cost_column`."""
    return column == "cost" or column.startswith("cost/")


def read_results(paths: Iterable[str | os.PathLike[str]]) -> Results:
    """Read and group all runs at or below `paths`; note those that cannot be read."""
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
    # Other programs use the name config.yaml too: a run has metadata or logs next to it.
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
    """Read one run directory, except for the log of training episodes."""
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
                f"{path / name}.csv must have a column {lacking[0]}. Restore the file."
            )
        if not np.isfinite(logs[name].get("env_steps", 0)).all():
            raise ValueError(
                f"{path / name}.csv must have a number of env_steps in every row. "
                "Restore the file."
            )
    meta = read_meta(path)
    if not isinstance(meta.get("evaluated", {}), dict):
        raise ValueError(
            f"`evaluated` in {path / 'meta.json'} must be a mapping. Restore the file."
        )
    return Run(
        path, config, meta, **logs, delivered=read_delivered_policy(path, config)
    )


def read_delivered_policy(path: Path, config: Config) -> DeliveredPolicy | None:
    """Read which policy a run delivers: the certified one, or that of delivered.json.

    None if there is no such file, or if nothing was measured yet.
    """
    record, certificate = read_delivered(path), read_certificate(path)
    names = [constraint.name for constraint in config.constraints]
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
        return DeliveredPolicy(
            int(record["step"]),
            float(record["reward"]),
            tuple(float(record["risk"][name]) for name in names),
            int(record["episodes"]),
            bool(record["within_limits"]),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"delivered.json or certificate.json in {path} must have the fields that orac "
            f"writes, but {error!r} was found. Restore the file, or delete it."
        ) from error


def read_columns(file: Path) -> Columns:
    """Read a CSV file of numbers by column; a missing file has no columns."""
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
    if not body:
        return {name: np.empty(0) for name in names}
    # An empty cell is a missing value.
    while b",," in body:
        body = body.replace(b",,", b",nan,")
    body = body.replace(b",\n", b",nan\n").replace(b"\n,", b"\nnan,")
    try:
        values = np.loadtxt(io.BytesIO(body), delimiter=",", ndmin=2)
        return dict(zip(names, values.T, strict=True))
    except ValueError as error:
        raise ValueError(
            f"{file} must have {len(names)} numbers in each row, but: {error}. "
            "Restore the file."
        ) from error


def group_runs(runs: Sequence[Run]) -> Results:
    """Group runs by config without the seed; a repeated seed counts once, with a note."""
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
        notes += _comparison_notes(env_id, groups)
    return Results(found.groups, tuple(notes))


def _labels(members: Sequence[tuple[Run, ...]]) -> list[str]:
    """Label each group by its agent and the fields in which groups of that agent differ."""

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


def flat_config(config: Config) -> dict[str, Any]:
    """Return the fields of a config by their dotted names."""
    return serialization.flatten(serialization.to_dict(config))


def differing_fields(configs: Sequence[Config]) -> list[str]:
    """Return the dotted names of the fields, except the seed, in which configs differ."""
    flat = [flat_config(config) for config in configs]
    names = dict.fromkeys(name for fields in flat for name in fields if name != "seed")
    return [n for n in names if any(f.get(n) != flat[0].get(n) for f in flat)]


def _comparison_notes(env_id: str, groups: Sequence[Group]) -> list[str]:
    """Return notes on what makes the groups of one environment hard to compare."""
    notes = []
    configs = [group.config for group in groups]
    fields = [name for name in differing_fields(configs) if name.startswith("env.")]
    if fields:
        notes.append(
            f"The groups in {env_id} differ in {', '.join(fields)}: their numbers are "
            "not of the same task."
        )
    evaluated = [run for group in groups for run in group.evaluated]
    steps = [run.evaluations["env_steps"] for run in evaluated]
    counts = {int((known == known.max()).sum()) for known in steps}
    if len(counts) > 1:
        notes.append(
            f"The last evaluations in {env_id} have {min(counts):,} to {max(counts):,} "
            "episodes: CVaR and worst cost come out lower where there are fewer."
        )
    if any(group.is_rule for group in groups):
        notes.append(
            f"The rules in {env_id} were not trained: their seeds are draws of episodes."
        )
    return notes


def _run_notes(run: Run) -> list[str]:
    """Return notes on an unfinished run, missing evaluations and non-finite episodes."""
    notes = []
    if not run.finished:
        notes.append(
            f"{run.path} is at step {run.steps:,} of {run.config.training.total_steps:,}; "
            "its last evaluation is used."
        )
    if not len(run.evaluation_steps):
        notes.append(f"{run.path} has no evaluation and is left out of the tables.")
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
            else "the last evaluation is one of them, so the tables have no number where "
            "they need this run. Leave the run out to see the numbers of the others"
        )
        notes.append(
            f"{run.path} has episodes with a reward, cost or length that is not finite: "
            f"{', '.join(listed)}{more}; {consequence}."
        )
    return notes


def count(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural, as in `3 seeds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
