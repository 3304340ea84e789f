"""CSV logs and trackers."""

import csv
import errno
import logging
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from orac.runs import loggers
from orac.runs.atomic_io import DiskError
from orac.runs.loggers import CsvLog, open_trackers, truncate_file


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
    with pytest.raises(ValueError, match=r"one number, got shape \(2,\)"):
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
from orac.runs.loggers import CsvLog
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


def read_events(path):
    """Read the records of an event file: length, checksum, protocol buffer, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, events = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


def test_a_resumed_run_purges_later_tensorboard_events(tmp_path):
    for start, steps in ((0, (10, 20, 30)), (20, (30, 40))):
        (tracker,) = open_trackers(["tensorboard"], tmp_path, {}, start_step=start)
        for step in steps:
            tracker.log(step, {"cost/risk": step / 10 + start})
        tracker.close()
    first, second = map(read_events, sorted((tmp_path / "tensorboard").iterdir()))
    scalars = [
        [
            (event.step, x.tag, x.simple_value)
            for event in file
            for x in event.summary.value
        ]
        for file in (first, second)
    ]
    assert scalars[0] == [(step, "cost/risk", step / 10) for step in (10, 20, 30)]
    assert scalars[1] == [(step, "cost/risk", step / 10 + 20) for step in (30, 40)]
    # TensorBoard drops events of earlier files from the step of a session's start on.
    starts = [event.step for event in second if event.HasField("session_log")]
    assert starts == [21]
    assert not any(event.HasField("session_log") for event in first)


def test_a_missing_tensorboard_is_logged_in_one_line(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO, logger="orac"):
        assert open_trackers(["tensorboard"], tmp_path, {}) == []
    assert [record.getMessage() for record in caplog.records] == [
        "No TensorBoard events are written. To get them, run pip install "
        "'orac-rl[tensorboard]'."
    ]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_tracker_raises_an_error_that_names_its_extra(
    tmp_path, monkeypatch, name
):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "orac-rl\[{name}\]"'):
        open_trackers([name], tmp_path, {})


def test_an_unknown_tracker_raises_an_error_with_the_nearest_name(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"tracker must be one of .*; got 'wanbd'. Did you mean 'wandb'",
    ):
        open_trackers(["wanbd"], tmp_path, {})


def test_wandb_uses_the_same_id_when_resumed(tmp_path, monkeypatch):
    calls = []
    run = SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)),
        finish=lambda: calls.append("finish"),
    )
    starts = []
    fake = SimpleNamespace(init=lambda **options: starts.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    directory = tmp_path / "maze" / "orac" / "x" / "seed-000"
    for _ in range(2):
        (tracker,) = open_trackers(["wandb"], directory, {"a": 1})
        tracker.log(5, {"reward": 2.0})
        tracker.close()
    assert calls == [(5, {"reward": 2.0}), "finish"] * 2
    assert starts[0] == starts[1]
    assert starts[0]["name"] == "maze/orac/x/seed-000"
    assert (starts[0]["config"], starts[0]["resume"]) == ({"a": 1}, "allow")


def test_mlflow_continues_its_run_when_resumed(tmp_path, monkeypatch):
    calls = []

    def start_run(run_id, run_name):
        calls.append(("start", run_id, run_name is None))
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    fake = SimpleNamespace(
        start_run=start_run,
        log_params=lambda params: calls.append(params),
        log_metrics=lambda metrics, step: calls.append((step, metrics)),
        end_run=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    for _ in range(2):
        (tracker,) = open_trackers(["mlflow"], tmp_path, {"a": {"b": 1}, "c": 2})
        tracker.log(5, {"cost/risk[0]": np.float32(2)})
        tracker.close()
    assert calls == [
        ("start", None, False),
        {"a.b": 1, "c": 2},
        (5, {"cost/risk_0_": 2.0}),
        "end",
        ("start", "abc", True),
        (5, {"cost/risk_0_": 2.0}),
        "end",
    ]
