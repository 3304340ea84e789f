"""Loggers of a run: CSV files, and optional experiment trackers.

A CSV row is written completely or not at all, and a log can be truncated to an earlier
size, so that a killed and resumed run ends with the same files as an uninterrupted one.
Trackers (TensorBoard, W&B, MLflow) are imported only if they are used. Nothing here reads
a clock, because wall-clock times belong in their own file.
"""

import hashlib
import importlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orac.config import overrides
from orac.config.reading import read_text
from orac.config.validation import check_choice, import_extra, shown
from orac.runs.atomic_io import disk_errors, open_to_write, write_all, write_text


class CsvLog:
    """An append-only CSV file with fixed columns. Rows stay in memory until `flush`."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self._pending: list[str] = []
        with disk_errors(path, "open"):
            self._file = open_to_write(path, os.O_RDWR)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        header = _csv_line(self.columns)
        if self._size == 0:
            self._pending.append(header)
            self.flush()
        elif os.pread(self._file, len(header.encode()), 0) != header.encode():
            raise ValueError(
                f"{self.path} has other columns than {', '.join(self.columns)}. It was "
                "written by another version or run; move it away, or start a new run."
            )

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row. Columns without a value stay empty."""
        for name in row:
            check_choice(f"a column of {self.path.name}", name, self.columns)
        self._pending.append(_csv_line(_cell(row.get(x)) for x in self.columns))

    def flush(self) -> None:
        """Write the pending rows to the operating system, where they survive a kill."""
        data = "".join(self._pending).encode()
        with disk_errors(self.path, "write"):
            try:
                os.lseek(self._file, self._size, os.SEEK_SET)
                write_all(self._file, data)
            except OSError:
                # An incomplete row would make the file unreadable.
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)
        self._pending.clear()

    def size(self) -> int:
        """Flush to the disk and return the file's size in bytes, for a checkpoint."""
        self.flush()
        with disk_errors(self.path, "write"):
            os.fsync(self._file)
        return self._size

    def close(self) -> None:
        """Flush and close. Closing twice has no effect."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1


def truncate_file(path: Path, size: int) -> None:
    """Truncate a closed log to `size` bytes; a missing file counts as an empty one."""
    actual = path.stat().st_size if path.exists() else 0
    if actual < size:
        raise ValueError(
            f"{path} has {actual} bytes, but had {size} when the checkpoint was made: "
            "rows are missing. Restore the file from a copy, or start a new run."
        )
    if actual > size:
        with disk_errors(path, "truncate"):
            descriptor = open_to_write(path, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)


def _cell(value: Any) -> str:
    """Return text that reads back as exactly the same number; booleans are 0 and 1."""
    if value is None or isinstance(value, str):
        return value or ""
    array = np.asarray(value)
    if array.shape != ():
        raise ValueError(f"A cell holds one number, got shape {array.shape}.")
    is_whole = isinstance(value, int) or array.dtype.kind in "biu"
    return str(int(value)) if is_whole else repr(float(value))


def _csv_line(cells: Iterable[str]) -> str:
    quoted = [
        '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\n\r') else cell
        for cell in cells
    ]
    return ",".join(quoted) + "\n"


class Tracker(NamedTuple):
    """Functions that log the metrics of a step, and that close the tracker."""

    log: Callable[[int, Mapping[str, Any]], None]
    close: Callable[[], None]


def check_trackers(names: Any) -> None:
    """Raise an error if a tracker is unknown, or is not installed (except TensorBoard)."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(
            f"trackers must be a list, such as ('tensorboard',), got {shown(names)}."
        )
    for name in names:
        check_choice("a tracker", name, TRACKERS)
        # TensorBoard is on by default, so a run continues without it.
        if name != "tensorboard":
            import_extra(f"Logging to {name}", name, name)


def open_trackers(
    names: Iterable[str],
    directory: Path,
    config: Mapping[str, Any],
    start_step: int = 0,
) -> list[Tracker]:
    """Open the named trackers for the run in `directory`, from `start_step` on."""
    check_trackers(names := tuple(names))
    opened = [TRACKERS[name](directory, config, start_step) for name in names]
    return [tracker for tracker in opened if tracker is not None]


def _open_tensorboard(directory: Path, config: Any, start_step: int) -> Tracker | None:
    """Write event files, or return None if tensorboardX is not installed.

    Entries after `start_step`, which an interrupted attempt wrote, are dropped.
    """
    if find_spec("tensorboardX") is None:
        logging.getLogger("orac").info(
            "No TensorBoard events are written. To get them, run pip install "
            "'orac-rl[tensorboard]'."
        )
        return None
    # The names of the writer's files contain the time in whole seconds. Without the suffix,
    # a quick resume would overwrite a file.
    writer = importlib.import_module("tensorboardX").SummaryWriter(
        str(directory / "tensorboard"),
        purge_step=start_step + 1 if start_step else None,
        filename_suffix=f".{start_step}",
    )

    def log(step: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, float(value), step)

    return Tracker(log, writer.close)


def _open_wandb(directory: Path, config: Mapping[str, Any], start_step: int) -> Tracker:
    """Start a W&B run whose id depends on the directory, so that a resume continues it."""
    where = directory.resolve()
    run = importlib.import_module("wandb").init(
        project=os.environ.get("WANDB_PROJECT", "orac"),
        id=hashlib.sha256(str(where).encode()).hexdigest()[:16],
        name="/".join(where.parts[-4:]),
        dir=str(where),
        config=dict(config),
        resume="allow",
    )
    return Tracker(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def _open_mlflow(directory: Path, config: Any, start_step: int) -> Tracker:
    """Start an MLflow run, or continue the one whose id is in the run directory."""
    mlflow = importlib.import_module("mlflow")
    id_file = directory / "mlflow_run_id"
    known = read_text(id_file, 1000) if id_file.exists() else None
    name = "/".join(directory.resolve().parts[-4:])
    run = mlflow.start_run(run_id=known, run_name=None if known else name)
    if known is None:
        write_text(id_file, run.info.run_id)
        mlflow.log_params(overrides.flatten(config))

    def log(step: int, metrics: Mapping[str, Any]) -> None:
        # The server rejects names with other characters, such as brackets.
        named = {re.sub(r"[^\w\-. :/]", "_", k): float(v) for k, v in metrics.items()}
        mlflow.log_metrics(named, step=step)

    return Tracker(log, mlflow.end_run)


TRACKERS = {
    "tensorboard": _open_tensorboard,
    "wandb": _open_wandb,
    "mlflow": _open_mlflow,
}
