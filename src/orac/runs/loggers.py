"""Where numbers go: CSV files that are the same to the byte, and other people's trackers.

A CSV row is written whole or not at all, and a log can be cut back to an earlier size,
so that a killed and resumed run ends with the files of an uninterrupted one. Trackers
(TensorBoard, W&B, MLflow) are optional and imported when asked for. Nothing here reads a
clock; wall-clock times are the caller's, and belong in their own file.
"""

import difflib
import hashlib
import importlib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from orac.runs.atomic_io import disk_errors, write_all, write_text

TRACKERS = ("tensorboard", "wandb", "mlflow")


class CsvLog:
    """An append-only CSV file with fixed columns; rows wait in memory until `flush`."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self._waiting: list[str] = []
        with disk_errors(path, "open"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        self._header = _csv_line(self.columns)
        self._start()

    def _start(self) -> None:
        """Write the header into an empty file; a started one must have the same."""
        header = self._header.encode()
        if self._size == 0:
            self._waiting.insert(0, self._header)
            self.flush()
        elif os.pread(self._file, len(header), 0) != header:
            raise ValueError(
                f"{self.path} has other columns than {', '.join(self.columns)}. It was "
                "written by another version or run; move it away, or start a new run."
            )

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; a column that is not in it stays empty."""
        for name in row:
            if name not in self.columns:
                raise ValueError(
                    f"{self.path.name} has no column {name!r}. "
                    f"{_nearest(name, self.columns)}"
                )
        self._waiting.append(_csv_line(_cell(row.get(x)) for x in self.columns))

    def flush(self) -> None:
        """Hand the waiting rows to the operating system: a killed process keeps them."""
        data = "".join(self._waiting).encode()
        with disk_errors(self.path, "write"):
            try:
                os.lseek(self._file, self._size, os.SEEK_SET)
                write_all(self._file, data)
            except OSError:
                # Half a row would spoil the file for every reader.
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)
        self._waiting.clear()

    def size(self) -> int:
        """Flush to the disk itself; returns the file's bytes, for a checkpoint."""
        self.flush()
        with disk_errors(self.path, "write"):
            os.fsync(self._file)
        return self._size

    def truncate(self, size: int) -> None:
        """Go back to an earlier `size`; 0 leaves the header alone."""
        self._waiting.clear()
        cut_file(self.path, size)
        self._size = size
        self._start()

    def close(self) -> None:
        """Flush and close; closing twice is fine."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1


def cut_file(path: Path, size: int) -> None:
    """Cut a file back to `size` bytes; no file and size 0 are the same."""
    actual = path.stat().st_size if path.exists() else 0
    if actual < size:
        raise ValueError(
            f"{path} has {actual} bytes, but had {size} when the checkpoint was made: "
            "rows are missing. Restore the file from a copy, or start a new run."
        )
    if actual > size:
        with disk_errors(path, "cut back"):
            os.truncate(path, size)


def _cell(value: Any) -> str:
    """Text from which the very same number can be read; flags are 0 and 1."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(int(value))
    array = np.asarray(value)
    if array.shape != ():
        raise ValueError(
            f"A cell holds one number, got an array of shape {array.shape}."
        )
    if array.dtype.kind in "biu":
        return str(int(array))
    return repr(float(array))


def _csv_line(cells: Iterable[str]) -> str:
    return ",".join(map(_quoted, cells)) + "\n"


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _nearest(name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


@runtime_checkable
class Tracker(Protocol):
    """What the training loop asks of a tracker."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def check_trackers(names: Iterable[str]) -> None:
    """Complain of a tracker that cannot be opened before anything is written."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"Unknown tracker {name!r}. {_nearest(name, TRACKERS)}")
        if name != "tensorboard":
            _require(name, name)


def open_trackers(
    names: Iterable[str],
    directory: Path,
    config: Mapping[str, Any],
    start_step: int = 0,
) -> list[Tracker]:
    """The trackers asked for, logging for the run in `directory` from `start_step` on.

    TensorBoard is on in most runs, so its absence is told in one line of the log;
    W&B and MLflow are asked for by name, so theirs is an error.
    """
    names = tuple(names)
    check_trackers(names)
    trackers: list[Tracker] = []
    for name in names:
        if name == "tensorboard":
            if find_spec("tensorboardX") is None:
                logging.getLogger("orac").info(
                    "No TensorBoard events: pip install 'orac-rl[tensorboard]' for them."
                )
                continue
            trackers.append(TensorBoard(directory / "tensorboard", start_step))
        elif name == "wandb":
            trackers.append(WeightsAndBiases(directory, config))
        else:
            trackers.append(MLflow(directory, config))
    return trackers


def _require(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"Logging to {extra} needs the package {module}: "
            f"pip install 'orac-rl[{extra}]'"
        ) from error


class TensorBoard:
    """Event files; what an earlier attempt logged after `start_step` is purged."""

    def __init__(self, directory: Path, start_step: int = 0) -> None:
        tensorboard = _require("tensorboardX", "tensorboard")
        # The writer names files by the second: a quick resume would overwrite one.
        self._writer = tensorboard.SummaryWriter(
            str(directory),
            purge_step=start_step + 1 if start_step else None,
            filename_suffix=f".{start_step}",
        )

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A W&B run whose id comes from the directory, so that a resumed run continues it."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        wandb = importlib.import_module("wandb")
        where = directory.resolve()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "orac"),
            id=hashlib.sha256(str(where).encode()).hexdigest()[:16],
            name="/".join(where.parts[-4:]),
            dir=str(where),
            config=dict(config),
            resume="allow",
        )

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """An MLflow run; its id is kept beside the run so that a resumed one continues it."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        self._mlflow = importlib.import_module("mlflow")
        kept = directory / "mlflow_run_id"
        known = kept.read_text() if kept.exists() else None
        name = "/".join(directory.resolve().parts[-4:])
        run = self._mlflow.start_run(run_id=known, run_name=None if known else name)
        if known is None:
            write_text(kept, run.info.run_id)
            self._mlflow.log_params(_flat(config))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        # Names with other characters are refused by the server, brackets for one.
        named = {re.sub(r"[^\w\-. :/]", "_", k): float(v) for k, v in metrics.items()}
        self._mlflow.log_metrics(named, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
