"""Read and write records of studies: the numbers from which tables and figures are made.

A record is a folder, such as `results/table1/`, with runs.csv (one row per run), curves.csv
(one row per evaluation), config.yaml (the config of each case) and commit (the commits of
the code with which the runs were made). It has all numbers in the tables and figures of a
study, and its files are small enough for a repository. So even without the run directories,
the tables and figures can be made again, and finished runs need not be repeated. Only
Figure 1 needs the run directories, because it draws trained policies. `read_row` computes the
rows of a run from its directory. No file of a record depends on where the run directories
are.
"""

import csv
import fcntl
import hashlib
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from orac.config import overrides, serialization
from orac.config.reading import read_text
from orac.config.schema import Config
from orac.core.risk import cvar
from orac.envs.registry import metrics_of
from orac.evaluation.episodes import cost_column
from orac.experiments.launcher.schedule import (
    PlannedRun,
    check_same_settings,
    run_directories,
)
from orac.experiments.study import Case, CaseResults, Study
from orac.reports.report_metrics import SeedCurve, evaluation_curve, seed_values
from orac.reports.run_reader import (
    Columns,
    DeliveredPolicy,
    Group,
    RecordedRun,
    Run,
    count,
    read_run,
)
from orac.reports.tables import to_csv
from orac.runs.atomic_io import disk_errors, make_directory, write_text
from orac.runs.directory import read_config, run_path, valid_certificate

MAX_RECORD_BYTES = 1 << 26
"""Maximum size of runs.csv and of curves.csv."""
TEXT_COLUMNS = ("case", "env", "algo", "config", "machine", "commit")
"""Columns of runs.csv that hold text. All others hold numbers or booleans."""
RUN_COLUMNS = ("case", "seed", "config", "finished", "steps", "evaluations")
"""Columns that every runs.csv has."""
CURVE_COLUMNS = ("case", "seed", "env_steps")
"""Columns that every curves.csv has."""
TOTALS = ("episodes", "train/cumulative_", "train/violations_")
"""Prefixes of the columns of metrics.csv that are totals since the start of the training."""
ADVICE = "Repeat the recorded settings, or choose another --record or --out."

Row = dict[str, Any]
Key = tuple[str, int]
"""Label of a case, and seed."""


@dataclass
class Record:
    """The recorded runs of a study, and the config of each case."""

    folder: Path = Path()
    configs: dict[str, Row] = field(default_factory=dict)
    """The config of each case without its seed, by the case's label: values by field name."""
    runs: dict[Key, RecordedRun] = field(default_factory=dict)

    def is_complete(self, run: PlannedRun) -> bool:
        """Return whether the record has this run as a complete run."""
        recorded = self.runs.get((run.label, run.config.seed))
        return recorded is not None and bool(recorded.row["finished"])

    def check(self, label: str, subject: str, config: Config) -> None:
        """Raise a `ValueError` if the record has a run of this case with another config."""
        for key, run in self.runs.items():
            if key[0] == label:
                check_same_settings(subject, config, {self.folder: run.config}, ADVICE)
                return

    def add(self, run: RecordedRun) -> None:
        """Add a run.

        If the record already has a run of the same case and seed, the one with more
        progress is used.
        """
        label, seed = run.row["case"], run.config.seed
        self.check(label, f"{label}, seed {seed}", run.config)
        if not any(key[0] == label for key in self.runs):
            self.configs[label] = overrides.flat_config(run.config)
            del self.configs[label]["seed"]
        recorded = self.runs.get((label, seed))
        if recorded is None or _progress(run) > _progress(recorded):
            row = {**run.row, "config": config_hash(self.configs[label])}
            self.runs[label, seed] = replace(run, row=row)

    def in_order(self, study: Study) -> list[RecordedRun]:
        """Return the runs in the order of the study's cases, and by seed in each case."""
        labels = [case.label for case in study.all_cases or study.cases]
        labels += sorted({label for label, _ in self.runs} - {*labels})
        keys = sorted(self.runs, key=lambda key: (labels.index(key[0]), key[1]))
        return [self.runs[key] for key in keys]


def _progress(run: RecordedRun) -> tuple[bool, int]:
    return bool(run.row["finished"]), run.steps


def config_hash(fields: Row) -> str:
    """Return a hash of the config of a case, as in `Record.configs`."""
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def collect(
    study: Study,
    out: Path,
    planned: Sequence[PlannedRun] = (),
    folder: Path | None = None,
) -> list[CaseResults]:
    """Return the runs of each case, from the record in `folder` and from run directories.

    If `folder` is None, there is no record. The run directories are below `out`. Runs that
    are missing in the record, or unfinished there, are read from their run directories and
    added to the record. `planned` are the runs that should exist; the result lists the seeds
    of those that are missing. A case that the user did not choose is included if the record
    has runs of it.
    """
    record = Record() if folder is None else read_record(folder, study)
    new = []
    for case in study.cases:
        paths = run_directories(_path_of(case, out).parent)
        configs = {x: serialization.from_dict(read_config(x)) for x in paths}
        for path, config in configs.items():
            check_same_settings(str(path), config, {paths[0]: configs[paths[0]]})
            record.check(case.label, str(path), config)
            run = PlannedRun(case.label, config, case.name, out, study.certifies)
            if not record.is_complete(run):
                new.append(read_row(study, run))
    if folder is None:
        for row in new:
            record.add(row)
    elif new:
        record = update_record(folder, study, new)
    results, recorded = [], record.in_order(study)
    for case in study.all_cases or study.cases:
        runs = tuple(
            replace(run, path=_path_of(case, out, run.config.seed))
            for run in recorded
            if run.row["case"] == case.label
        )
        wanted = {run.config.seed for run in planned if run.label == case.label}
        missing = wanted - {run.config.seed for run in runs}
        if runs or case in study.cases:
            results.append(CaseResults(case, runs, tuple(sorted(missing))))
    return results


def _path_of(case: Case, out: Path, seed: int = 0) -> Path:
    """Return the directory of a case's run with this seed."""
    return run_path(out, case.config.env.id, case.config.algo, seed, case.name)


def read_row(study: Study, planned: PlannedRun) -> RecordedRun:
    """Read a run directory, and return the run with its rows of runs.csv and curves.csv."""
    run = read_run(planned.path)
    tails = {*study.tails, *(c.tail for c in run.config.constraints)}
    tails = sorted(tail for tail in tails if tail < 1)
    row: Row = {
        "case": planned.label,
        "env": run.config.env.id,
        "algo": run.config.algo,
        "seed": run.config.seed,
        "config": "",
        "steps": run.steps,
        "of": run.config.training.total_steps,
        "finished": planned.is_complete(),
        **_training_columns(run),
        **_machine_columns(run.meta),
        "evaluations": len(run.evaluation_steps),
    }
    if len(run.evaluation_steps):
        row["evaluated_at"] = int(run.evaluation_steps[-1])
        values = seed_values(Group(planned.label, (run,)), {"cost": tails})
        row |= {name: _rounded(float(x[0])) for name, x in values.items()}
    row |= _delivered_columns(run) | _certificate_columns(run)
    recorded = make_run(row, _curves(run, tails), run.config, planned.path)
    row |= study.run_columns(recorded)
    return replace(recorded, row=row)


def _rounded(value: float) -> float | None:
    """Round to ten significant digits; NaN becomes None, which is an empty cell."""
    return None if math.isnan(value) else float(f"{value:.10g}")


def _training_columns(run: Run) -> Row:
    """Return the columns of runs.csv about training, such as totals, minutes and speed."""
    last = {name: values[-1] for name, values in run.metrics.items() if len(values)}
    updates = last.get("gradient_steps")
    timed = ("train_seconds", "evaluate_seconds")
    seconds = sum(float(run.timings.get(x, np.zeros(1)).sum()) for x in timed)
    speeds = run.timings.get("steps_per_second", np.empty(0))
    columns: Row = {
        "gradient_steps": None if updates is None else int(updates),
        "minutes": round(seconds / 60, 1),
        "steps_per_second": round(float(np.median(speeds)), 1) if len(speeds) else None,
    }
    totals = {
        name if name.startswith("train/") else f"train/{name}": _rounded(float(value))
        for name, value in last.items()
        if name.startswith(TOTALS)
    }
    return columns | totals


def _machine_columns(meta: Row) -> Row:
    """Return the columns of runs.csv that come from meta.json, such as the machine."""
    name = meta.get("processor") or meta.get("machine") or "unknown processor"
    cores = meta.get("usable_cpus") or meta.get("cpu_count")
    seconds = meta.get("certificate_seconds")
    commits = [meta.get("commit"), *meta.get("resumed_at_commits", [])]
    return {
        "certificate_minutes": None if seconds is None else round(seconds / 60, 1),
        "machine": f"{name}, {cores} cores" if cores else str(name),
        "threads": meta.get("threads"),
        "commit": ", then ".join(map(str, commits)),
    }


def _delivered_columns(run: Run) -> Row:
    policy = run.delivered
    if policy is None:
        return {}
    names = [constraint.name for constraint in run.config.constraints]
    columns: Row = {
        "delivered/step": policy.step,
        "delivered/reward": policy.reward,
        "delivered/episodes": policy.episodes,
        "delivered/within_limits": policy.within_limits,
        "delivered/confidence": policy.confidence,
    }
    for kind, values in (("risk", policy.risk), ("bound", policy.bounds)):
        for name, value in zip(names, values or [None] * len(names), strict=True):
            columns[f"delivered/{kind}/{name}"] = value
    return columns


def _certificate_columns(run: Run) -> Row:
    """Return the columns of runs.csv about a run's certificate.

    A look is one attempt to certify a policy on fresh episodes. The numbers are from the
    last look, and the estimate and the bound are those of the first constraint.
    """
    record = valid_certificate(run.path)
    if record is None:
        return {}
    try:
        look = record["looks"][-1] if record["looks"] else None
        columns: Row = {
            "certified": bool(record["certified"]),
            "certificate/step": record["step"],
            "certificate/looks": len(record["looks"]),
        }
        if look is not None:
            columns |= {
                "certificate/episodes": look["episodes"],
                "certificate/reward": look["reward"],
                "certificate/estimate": look["bounds"][0]["estimate"],
                "certificate/bound": look["bounds"][0]["upper"],
            }
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"{run.path}/certificate.json must be one that `orac certify` wrote, but it "
            "lacks fields. Delete it, and certify the run again."
        ) from error
    return columns


def _curves(run: Run, tails: Sequence[float]) -> Columns:
    """Return the columns of curves.csv, with one value per evaluation."""
    curves: dict[str, SeedCurve] = {"reward/mean": evaluation_curve(run, "reward")}
    for name in run.cost_names:
        column = cost_column(name)
        curves[f"{column}/mean"] = evaluation_curve(run, column)
        for tail in tails:
            risk = evaluation_curve(run, column, cvar(tail))
            curves[f"{column}/cvar_{tail:g}"] = risk
    for metric in metrics_of(run.config.env.id):
        # Charts show the share of the first label, such as the maze's long path.
        for label in metric.labels[:1] if metric.name in run.evaluations else ():
            has_label = (run.evaluations[metric.name] == label.code).astype(np.float64)
            labelled = replace(run, evaluations={**run.evaluations, "label": has_label})
            key = f"env/{metric.name}_{label.name}"
            curves[key] = evaluation_curve(labelled, "label")
    columns = {"env_steps": run.evaluation_steps}
    for key, (_, values) in curves.items():
        if np.isfinite(values).any():
            numbers = [_rounded(float(value)) for value in values]
            columns[key] = np.array(numbers, np.float64)
    return columns


def make_run(row: Row, curves: Columns, config: Config, path: Path) -> RecordedRun:
    """Return the run that a row of runs.csv and its rows of curves.csv describe."""
    last = {"env_steps": row["steps"], "gradient_steps": row.get("gradient_steps")}
    last["episodes"] = row.get("train/episodes")
    last |= {name: row[name] for name in row if name.startswith(TOTALS[1:])}
    metrics = {k: np.array([v], np.float64) for k, v in last.items() if v is not None}
    timings = {
        "train_seconds": np.array([60 * (row.get("minutes") or 0.0)]),
        "evaluate_seconds": np.zeros(1),
    }
    if row.get("steps_per_second") is not None:
        timings["steps_per_second"] = np.array([row["steps_per_second"]])
    meta = {name: row.get(name) for name in ("commit", "threads")}
    evaluations = {"env_steps": curves["env_steps"]}
    curves = {key: values for key, values in curves.items() if key != "env_steps"}
    parts = path, config, meta, metrics, timings, evaluations
    return RecordedRun(*parts, _delivered_policy(row, config), row, curves)


def _delivered_policy(row: Row, config: Config) -> DeliveredPolicy | None:
    if row.get("delivered/step") is None:
        return None
    names = [constraint.name for constraint in config.constraints]
    bounds = [row.get(f"delivered/bound/{name}") for name in names]
    return DeliveredPolicy(
        row["delivered/step"],
        row["delivered/reward"],
        tuple(row[f"delivered/risk/{name}"] for name in names),
        row["delivered/episodes"],
        row["delivered/within_limits"],
        tuple(bound for bound in bounds if bound is not None),
        row["delivered/confidence"],
        refused=row.get("certified") is False,
    )


def update_record(folder: Path, study: Study, new: Iterable[RecordedRun]) -> Record:
    """Add runs to the record in a folder and return the whole record.

    The folder is locked while the record is read, changed and written. So no row is lost if
    two processes add runs to the same record.
    """
    make_directory(folder)
    with _locked(folder):
        record = read_record(folder, study)
        for run in new:
            record.add(run)
        runs = record.in_order(study)
        # A run counts as recorded once it is in runs.csv, so config.yaml and curves.csv are
        # written before that.
        write_text(folder / "config.yaml", _config_text(study, record, runs))
        write_text(folder / "curves.csv", _to_csv(_curve_rows(runs)))
        write_text(folder / "runs.csv", _to_csv([run.row for run in runs]))
        commits = Counter(run.row["commit"] for run in runs)
        lines = [f"{x}  {count(number, 'run')}\n" for x, number in commits.items()]
        write_text(folder / "commit", "".join(lines))
    return record


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder inside a `with` block. Wait while another process has locked it."""
    with disk_errors(folder, "lock"):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _to_csv(rows: Sequence[Row]) -> str:
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    return to_csv(columns, [[row.get(name) for name in columns] for row in rows])


def _curve_rows(runs: Sequence[RecordedRun]) -> list[Row]:
    rows = []
    for run in runs:
        for i, step in enumerate(run.evaluations["env_steps"]):
            values = {key: float(curve[i]) for key, curve in run.curves.items()}
            row = {
                "case": run.row["case"],
                "seed": run.config.seed,
                "env_steps": int(step),
            }
            rows.append(row | {k: None if v != v else v for k, v in values.items()})
    return rows


def _config_text(study: Study, record: Record, runs: Sequence[RecordedRun]) -> str:
    """Return the text of config.yaml: fields that all cases share, and the others by case."""
    labels = dict.fromkeys(run.row["case"] for run in runs)
    fields = {label: record.configs[label] for label in labels}
    first = next(iter(fields.values()), {})
    shared = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in fields.values())
    }
    cases = {
        label: {name: value for name, value in flat.items() if name not in shared}
        for label, flat in fields.items()
    }
    content = {"study": study.name, "all": shared, "cases": cases}
    return serialization.write_yaml(content)


def read_record(folder: Path, study: Study) -> Record:
    """Read the record in a folder. Without runs.csv, the record is empty."""
    file = folder / "runs.csv"
    if not file.exists():
        return Record(folder)
    rows = _read_table(file, RUN_COLUMNS)
    configs = _read_configs(folder / "config.yaml", study)
    curve_rows: dict[Key, list[Row]] = {}
    for row in _read_table(folder / "curves.csv", CURVE_COLUMNS):
        curve_rows.setdefault((row["case"], row["seed"]), []).append(row)
    record = Record(folder, configs)
    for row in rows:
        label, seed = key = row["case"], row["seed"]
        curve = curve_rows.get(key, [])
        if key in record.runs:
            raise _damaged(file, f"it has two rows of {label}, seed {seed}")
        if label not in configs or row["config"] != config_hash(configs[label]):
            problem = f"config.yaml does not have the config of {label}, seed {seed}"
            raise _damaged(file, problem)
        if len(curve) != row["evaluations"]:
            problem = (
                f"{label}, seed {seed} has {row['evaluations']} evaluations there and "
                f"{len(curve)} in curves.csv"
            )
            raise _damaged(file, problem)
        try:
            fields = overrides.unflatten({**configs[label], "seed": seed})
            config = serialization.from_dict(fields)
            record.runs[key] = make_run(row, _columns_of(curve), config, folder)
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{label}, seed {seed} cannot be read ({error})"
            raise _damaged(file, problem) from error
    return record


def _damaged(file: Path, problem: str) -> ValueError:
    return ValueError(
        f"{file} must be a file that orac wrote for --record, but {problem}. Restore it, or choose "
        "another --record."
    )


def _columns_of(rows: Sequence[Row]) -> Columns:
    """Return the numbers of one run's rows of curves.csv, by column."""
    known = [name for row in rows for name, value in row.items() if value is not None]
    return {
        name: np.array([row[name] for row in rows], np.float64)
        for name in dict.fromkeys(["env_steps", *known])
        if name not in ("case", "seed")
    }


def _read_configs(file: Path, study: Study) -> dict[str, Row]:
    """Return the fields of each case's config from config.yaml."""
    text = _read(file, serialization.MAX_YAML_BYTES)
    content = serialization.read_yaml(text, str(file))
    try:
        name, shared, cases = content["study"], content["all"], content["cases"]
        configs = {str(label): {**shared, **fields} for label, fields in cases.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(file, "it lacks the key study, all or cases") from error
    if name != study.name:
        raise ValueError(
            f"{file.parent} is a record of the study {name}, not of {study.name}. Choose "
            "another --record."
        )
    return configs


def _read(file: Path, limit: int = MAX_RECORD_BYTES) -> str:
    if not file.is_file():
        raise _damaged(file, "there is no such file")
    with disk_errors(file, "read"):
        return read_text(file, limit)


def _read_table(file: Path, required: Sequence[str]) -> list[Row]:
    """Return the rows of runs.csv or curves.csv, with the values that `_value` returns."""
    stream = io.StringIO(_read(file), newline="")
    try:
        names, *lines = [*csv.reader(stream, strict=True)] or [[]]
    except csv.Error as error:
        raise _damaged(file, f"it is not a table ({error})") from error
    lacking = [name for name in required if name not in names]
    if lacking == ["config", "finished", "evaluations"]:
        raise ValueError(
            f"{file.parent} was recorded by an earlier version of orac, without all of the "
            "numbers that its tables need, so it cannot be rendered or continued. Choose "
            "another --record."
        )
    if lacking:
        raise _damaged(file, f"it has no column {lacking[0]}")
    rows = []
    for i, cells in enumerate(lines, 2):
        if len(cells) != len(names):
            problem = f"line {i} has {len(cells)} cells instead of {len(names)}"
            raise _damaged(file, problem)
        row = {}
        for name, text in zip(names, cells, strict=True):
            try:
                row[name] = _value(name, text)
            except ValueError as error:
                problem = f"line {i} has {text!r} in the column {name}"
                raise _damaged(file, problem) from error
        rows.append(row)
    return rows


def _value(name: str, text: str) -> Any:
    """Return the value of a cell: text, a bool, a number, or None if the cell is empty."""
    if name in TEXT_COLUMNS:
        return text
    if text in ("True", "False"):
        return text == "True"
    if name in ("seed", "steps", "evaluations", "env_steps"):
        return int(text)
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
