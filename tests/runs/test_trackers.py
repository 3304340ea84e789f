"""Tests of the experiment trackers."""

import logging
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from orac.runs import trackers
from orac.runs.trackers import open_trackers


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
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
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
