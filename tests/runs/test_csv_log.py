"""Tests of the CSV files of a run."""

import csv
import errno
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from orac.runs.atomic_io import DiskError
from orac.runs.csv_log import CsvLog, truncate_file


def test_numbers_in_a_row_read_back_exactly(tmp_path):
    third = np.float32(1) / np.float32(3)
    row = {
        "int": 3,
        "float": 0.1,
        "single": third,
        "jax": jnp.float32(third),
        "large": 1e22,
        "nan": float("nan"),
        "flag": True,
        "jax flag": jnp.bool_(False),
        "jax int": jnp.int32(-4),
        "text": 'a "b", c',
    }
    log = CsvLog(tmp_path / "a.csv", [*row, "absent"])
    log.append(row)
    log.close()
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == (
        '3,0.1,0.3333333432674408,0.3333333432674408,1e+22,nan,1,0,-4,"a ""b"", c",'
    )
    with (tmp_path / "a.csv").open() as file:
        read = next(csv.DictReader(file))
    assert np.float32(read["single"]) == third
    assert float(read["float"]) == 0.1
    assert read["text"] == row["text"]
    assert read["absent"] == ""


def test_truncate_goes_back_to_an_earlier_size(tmp_path):
    log = CsvLog(tmp_path / "a.csv", ["x"])
    assert log.size() == 2
    log.append({"x": 1})
    size = log.size()
    log.append({"x": 2})
    log.flush()
    log.append({"x": 3})
    log.close()
    truncate_file(log.path, size)
    log = CsvLog(log.path, ["x"])
    log.append({"x": 4})
    log.close()
    assert (tmp_path / "a.csv").read_bytes() == b"x\n1\n4\n"
    log.close()


def test_an_existing_log_is_continued(tmp_path):
    for value in (1, 2):
        log = CsvLog(tmp_path / "a.csv", ["x", "y"])
        log.append({"x": value})
        log.close()
    assert (tmp_path / "a.csv").read_text() == "x,y\n1,\n2,\n"


def test_other_columns_raise_an_error(tmp_path):
    CsvLog(tmp_path / "a.csv", ["x", "y"]).close()
    with pytest.raises(ValueError, match="has other columns than x, z"):
        CsvLog(tmp_path / "a.csv", ["x", "z"])
    log = CsvLog(tmp_path / "a.csv", ["x", "y"])
    with pytest.raises(
        ValueError,
        match=r"column of a\.csv must be one of x, y; got 'yy'. Did you mean",
    ):
        log.append({"yy": 1})
    with pytest.raises(ValueError, match=r"must be one of x, y; got 'other'"):
        log.append({"other": 1})
    with pytest.raises(ValueError, match=r"one number, got an array of shape \(2,\)"):
        log.append({"x": np.zeros(2)})
    log.close()


def test_rows_stay_in_memory_until_they_are_flushed(tmp_path):
    log = CsvLog(tmp_path / "a.csv", ["x"])
    log.append({"x": 1})
    assert (tmp_path / "a.csv").read_text() == "x\n"
    log.flush()
    assert (tmp_path / "a.csv").read_text() == "x\n1\n"
    log.close()


def test_a_full_disk_leaves_complete_rows(tmp_path, monkeypatch):
    log = CsvLog(tmp_path / "a.csv", ["x"])
    log.append({"x": 1})
    log.flush()
    log.append({"x": 123456})
    original = os.write
    calls = iter([3])

    def full(descriptor, data):
        try:
            return original(descriptor, data[: next(calls)])
        except StopIteration:
            raise OSError(errno.ENOSPC, "No space left on device") from None

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(
            DiskError, match=r"Could not write .*a\.csv: the disk is full"
        ):
            log.flush()
    assert (tmp_path / "a.csv").read_text() == "x\n1\n"
    log.close()
    assert (tmp_path / "a.csv").read_text() == "x\n1\n123456\n"


FILL = """
import resource, signal, sys
from pathlib import Path
from orac.runs.csv_log import CsvLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = CsvLog(Path(sys.argv[1]), ["x"])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
while True:
    log.append({"x": 123456})
    log.flush()
"""


def test_a_real_partial_write_leaves_complete_rows(tmp_path):
    filled = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path / "a.csv")],
        capture_output=True,
        text=True,
    )
    assert "DiskError: Could not write" in filled.stderr
    lines = (tmp_path / "a.csv").read_bytes().split(b"\n")
    assert lines[0] == b"x" and lines[-1] == b""
    # 2 bytes of header and 142 rows of 7 fit into 1000.
    assert lines[1:-1] == [b"123456"] * 142
