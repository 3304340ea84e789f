"""The CSV files of a run, such as metrics.csv.

Rows are appended, and a log can be truncated to the size that it had at a checkpoint. So
rows that a killed process wrote after its last checkpoint do not appear twice when the run
is resumed.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orac.config.validation import check_choice
from orac.runs.atomic_io import disk_errors, open_to_write, write_all


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
                f"{self.path} has other columns than {', '.join(self.columns)}. Another "
                "version or run wrote this file. Move it elsewhere, or start a new run."
            )

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row. Columns without a value stay empty."""
        for name in row:
            check_choice(f"a column of {self.path.name}", name, self.columns)
        self._pending.append(_csv_line(_cell(row.get(x)) for x in self.columns))

    def flush(self) -> None:
        """Write the pending rows, so that they are not lost if the process is killed."""
        data = "".join(self._pending).encode()
        with disk_errors(self.path, "write"):
            try:
                os.lseek(self._file, self._size, os.SEEK_SET)
                write_all(self._file, data)
            except OSError:
                # Remove an incomplete row, because it would make the file unreadable.
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)
        self._pending.clear()

    def size(self) -> int:
        """Write everything to the disk and return the file's size in bytes."""
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
    """Truncate a closed log to `size` bytes. A missing file counts as an empty one."""
    actual = path.stat().st_size if path.exists() else 0
    if actual < size:
        raise ValueError(
            f"{path} has {actual} bytes, but had {size} when the checkpoint was made: "
            "rows are missing. Restore the file from a backup, or start a new run."
        )
    if actual > size:
        with disk_errors(path, "truncate"):
            descriptor = open_to_write(path, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)


def _cell(value: Any) -> str:
    """Return the text of a cell, from which a number can be read back exactly.

    Booleans become 0 and 1, and None becomes an empty cell.
    """
    if value is None or isinstance(value, str):
        return value or ""
    array = np.asarray(value)
    if array.shape != ():
        raise ValueError(
            f"A cell must be one number, got an array of shape {array.shape}."
        )
    is_whole = isinstance(value, int) or array.dtype.kind in "biu"
    return str(int(value)) if is_whole else repr(float(value))


def _csv_line(cells: Iterable[str]) -> str:
    quoted = [
        '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\n\r') else cell
        for cell in cells
    ]
    return ",".join(quoted) + "\n"
