"""Runs on disk as arrays: one directory, one `Run`.

Finds directories and reads their config, meta and logs, nothing else: what belongs
together is in `results`, what the numbers say in `summaries`.
"""

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.runs.directory import LOGS, read_config, read_meta

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Run:
    """One run's directory as it was when it was read."""

    path: Path
    config: Config
    meta: dict[str, Any]
    metrics: Columns
    timings: Columns
    evaluations: Columns

    @property
    def rule(self) -> str | None:
        """Name of the rule whose evaluation this is; None for what was trained."""
        return (self.meta.get("evaluated") or {}).get("rule")

    @property
    def kept(self) -> bool:
        """Whether it is an evaluation alone, kept by `kept.keep`."""
        return "evaluated" in self.meta

    @property
    def steps(self) -> int:
        """How far it has come; a rule has come no way."""
        if self.kept:
            return int(self.meta["evaluated"].get("env_steps", 0))
        rows = self.metrics.get("env_steps", np.empty(0))
        return int(rows[-1]) if len(rows) else 0

    @property
    def finished(self) -> bool:
        """Whether the run reached its last step."""
        total = self.config.training.total_steps
        return self.rule is not None or self.steps >= total

    @property
    def evaluated_at(self) -> np.ndarray:
        """Steps of its evaluations, in order."""
        return np.unique(self.evaluations.get("env_steps", np.empty(0)))

    @property
    def not_finite(self) -> dict[int, int]:
        """How many episodes have a reward, cost or length that is not finite, by step."""
        wanted = ["reward", "length", *filter(is_cost, self.evaluations)]
        columns = [
            self.evaluations[name] for name in wanted if name in self.evaluations
        ]
        if not columns or not len(self.evaluated_at):
            return {}
        broken = ~np.isfinite(columns).all(axis=0)
        steps, counts = np.unique(
            self.evaluations["env_steps"][broken], return_counts=True
        )
        return dict(zip(map(int, steps), map(int, counts), strict=True))

    @property
    def has_finite_end(self) -> bool:
        """Whether its last evaluation can be summed up."""
        return (
            len(self.evaluated_at) > 0 and self.evaluated_at[-1] not in self.not_finite
        )


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Directories of runs, each once, in the order of `paths` and then by name."""
    found: dict[Path, Path] = {}
    for root in map(Path, paths):
        below = sorted(file.parent for file in root.rglob("config.yaml"))
        # A directory is a run once it has its config; others may use the name too.
        runs = [path for path in below if _looks_like_run(path)]
        if not runs:
            raise FileNotFoundError(
                f"no run found at or below {root}. A run's directory looks like "
                "runs/<env>/<algo>/<name>/seed-000 and has config.yaml and meta.json."
            )
        for path in runs:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _looks_like_run(path: Path) -> bool:
    names = ["meta.json", *(f"{log}.csv" for log in LOGS)]
    return any((path / name).is_file() for name in names)


def read_run(path: str | os.PathLike[str]) -> Run:
    """One run's directory; training episodes are left for `training_episodes`."""
    path = Path(path)
    try:
        config = config_text.from_dict(read_config(path))
    except ValueError as error:
        raise ValueError(f"the config of {path} cannot be used: {error}") from error
    logs = {
        name: read_columns(path / f"{name}.csv")
        for name in ("metrics", "timings", "evaluations")
    }
    for name, columns in logs.items():
        if not np.isfinite(columns.get("env_steps", 0)).all():
            raise ValueError(
                f"{path / name}.csv must have a number of env_steps in every row. "
                "Restore it."
            )
    return Run(path, config, _read_meta(path), **logs)


def _read_meta(path: Path) -> dict[str, Any]:
    meta = read_meta(path)
    if not isinstance(meta.get("evaluated", {}), dict):
        raise ValueError(
            f"`evaluated` in {path / 'meta.json'} must hold named values. Restore it."
        )
    return meta


def training_episodes(run: Run) -> Columns:
    """One entry per training episode; up to tens of thousands."""
    return read_columns(run.path / "episodes.csv")


def read_columns(file: Path) -> Columns:
    """A CSV file of numbers by column; a file that is missing has none."""
    data = file.read_bytes() if file.is_file() else b""
    # A run that is still being written to may end in half a row.
    header, _, body = data[: data.rfind(b"\n") + 1].partition(b"\n")
    names = next(csv.reader([header.decode()]), [])
    if not body:
        return {name: np.empty(0) for name in names}
    # An empty cell is a value that the row did not have.
    while b",," in body:
        body = body.replace(b",,", b",nan,")
    body = body.replace(b",\n", b",nan\n").replace(b"\n,", b"\nnan,")
    try:
        values = np.loadtxt(io.BytesIO(body), delimiter=",", ndmin=2)
        return dict(zip(names, values.T, strict=True))
    except ValueError as error:
        raise ValueError(
            f"{file} must hold {len(names)} numbers a row, but: {error}. Restore it."
        ) from error


def cost_names(run: Run) -> list[str]:
    """Names of the costs that its evaluations report."""
    columns = [name for name in run.evaluations if is_cost(name)]
    return [name.removeprefix("cost/") for name in columns]


def is_cost(column: str) -> bool:
    """Whether a column of evaluations.csv is a cost; see `evaluation.cost_column`."""
    return column == "cost" or column.startswith("cost/")
