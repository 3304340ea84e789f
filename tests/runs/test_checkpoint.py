"""Tests of checkpoints: saving, loading, damage, full disks and deleting old ones."""

import errno
import json
import os
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.run_examples import Replay, assert_same_bits, make_replay, make_state
from orac.runs import replay_segments
from orac.runs.atomic_io import DamagedFileError, DiskError
from orac.runs.checkpoint import (
    Checkpoints,
    Manifest,
    _canonical,
    decode_manifest,
    encode_manifest,
)

CAPACITY = 40
TEMPLATE, EMPTY = make_state(0), make_replay(0, CAPACITY)


def save(checkpoints, step):
    extra = {"csv": {"metrics": step * 10}, "note": "é, 1e-05"}
    return checkpoints.save(step, make_state(step), make_replay(step, CAPACITY), extra)


def load(directory):
    return Checkpoints(directory).load_latest(TEMPLATE, EMPTY)


def assert_is_step(loaded, step):
    assert loaded.step == step
    assert_same_bits(loaded.state, make_state(step))
    assert_same_bits(loaded.replay, make_replay(step, CAPACITY))
    assert loaded.extra == {"csv": {"metrics": step * 10}, "note": "é, 1e-05"}


@pytest.fixture
def directory(tmp_path):
    """Save three checkpoints, of which the last two are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (10, 25, 60):
        save(checkpoints, step)
    return tmp_path / "checkpoints"


def test_the_newest_checkpoint_is_loaded(directory):
    loaded = load(directory)
    assert_is_step(loaded, 60)
    assert loaded.warnings == ()


def test_loading_without_a_checkpoint_returns_none(tmp_path):
    assert load(tmp_path / "never made") is None
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load_latest(TEMPLATE) is None
    save(checkpoints, 5)
    assert_is_step(load(tmp_path), 5)


def test_a_resumed_run_can_save(directory):
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)
    save(checkpoints, 71)
    assert checkpoints.steps() == [60, 71]
    assert_is_step(load(directory), 71)


def test_the_last_two_checkpoints_and_their_segments_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_segments, "MERGE_BYTES", 0)
    checkpoints = Checkpoints(tmp_path)
    for step in range(0, 200, 10):
        save(checkpoints, step)
    assert checkpoints.steps() == [180, 190]
    states = [name for name in os.listdir(tmp_path) if name.endswith(".arrays")]
    assert len(states) == 2
    # Step 180 needs the rows from 140 on, step 190 those up to 190.
    firsts = sorted(int(name.split("-")[1]) for name in os.listdir(tmp_path / "replay"))
    assert firsts == [140, 150, 160, 170, 180]


def test_the_same_step_can_be_saved_again(directory):
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)
    checkpoints.save(60, make_state(61), make_replay(60, CAPACITY), {"second": True})
    loaded = load(directory)
    assert loaded.extra == {"second": True}
    assert_same_bits(loaded.state, make_state(61))
    assert checkpoints.steps() == [25, 60]
    assert len(list(directory.glob("*.arrays"))) == 2


def test_a_checkpoint_can_have_no_replay(tmp_path):
    Checkpoints(tmp_path).save(3, make_state(3))
    loaded = Checkpoints(tmp_path).load_latest(TEMPLATE)
    assert (loaded.replay, loaded.warnings, loaded.extra) == (None, (), {})


def test_a_replay_that_was_not_saved_is_loaded_empty_with_a_warning(tmp_path):
    checkpoints = Checkpoints(tmp_path, include_replay=False)
    save(checkpoints, 30)
    assert os.listdir(tmp_path / "replay") == []
    loaded = load(tmp_path)
    assert "saved without its replay" in loaded.warnings[0]
    assert (
        "its results will differ from those of an uninterrupted run"
        in loaded.warnings[0]
    )
    assert_same_bits(loaded.replay, EMPTY)


def test_a_policy_can_be_loaded_without_the_replay(directory):
    loaded = Checkpoints(directory).load_latest(TEMPLATE)
    assert_same_bits(loaded.state, make_state(60))
    assert loaded.replay is None


def files_of(directory, step):
    """Return the manifest, state and last segment of a checkpoint, by kind."""
    segment = max(directory.glob(f"replay/segment-*-{step:012d}.arrays"))
    state = next(directory.glob(f"step-{step:012d}-*.arrays"))
    manifest = directory / f"step-{step:012d}.json"
    return {"manifest": manifest, "state": state, "segment": segment}


@pytest.mark.parametrize("kind", ["manifest", "state", "segment"])
@pytest.mark.parametrize("damage", ["bit flips", "truncations"])
def test_damage_anywhere_is_detected_and_the_previous_checkpoint_loaded(
    directory, kind, damage
):
    path = files_of(directory, 60)[kind]
    good = path.read_bytes()
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(good), 25):
        bad = bytearray(good)
        if damage == "bit flips":
            bad[position] ^= 1 << generator.integers(8)
        else:
            del bad[position:]
        path.write_bytes(bad)
        loaded = load(directory)
        assert_is_step(loaded, 25)
        damage_warning, resume_warning = loaded.warnings
        assert damage_warning.startswith("The checkpoint of step 60 is damaged: ")
        assert path.name in damage_warning
        assert resume_warning == "The checkpoint of step 25 is used instead."
    path.write_bytes(good)
    assert_is_step(load(directory), 60)


@pytest.mark.parametrize("kind", ["state", "segment"])
def test_a_missing_file_is_detected(directory, kind):
    path = files_of(directory, 60)[kind]
    path.unlink()
    loaded = load(directory)
    assert_is_step(loaded, 25)
    assert f"{path.name} is missing" in loaded.warnings[0]


@pytest.mark.parametrize("kind", ["manifest", "state", "segment"])
def test_foreign_files_are_detected(directory, kind):
    files_of(directory, 60)[kind].write_text('{"from": "elsewhere"}')
    loaded = load(directory)
    assert_is_step(loaded, 25)
    assert "is damaged" in loaded.warnings[0]


def test_files_of_another_checkpoint_are_detected(directory):
    old, new = files_of(directory, 25), files_of(directory, 60)
    new["state"].write_bytes(old["state"].read_bytes())
    loaded = load(directory)
    assert_is_step(loaded, 25)
    assert "not the file that the checkpoint lists" in loaded.warnings[0]
    new["manifest"].write_bytes(old["manifest"].read_bytes())
    assert "is the manifest of step 25" in load(directory).warnings[0]


def test_when_all_are_damaged_the_error_gives_every_reason(directory):
    for step in (25, 60):
        files_of(directory, step)["state"].write_bytes(b"")
    with pytest.raises(
        DamagedFileError, match=r"Every checkpoint in .* is damaged"
    ) as caught:
        load(directory)
    assert "step 60 is damaged" in str(caught.value)
    assert "step 25 is damaged" in str(caught.value)


def test_a_resumed_run_replaces_the_damaged_checkpoint(directory):
    files_of(directory, 60)["state"].write_bytes(b"")
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)
    save(checkpoints, 50)
    assert checkpoints.steps() == [25, 50]
    assert_is_step(load(directory), 50)
    save(checkpoints, 60)
    assert_is_step(load(directory), 60)
    assert load(directory).warnings == ()


def rewrite(path, **changes):
    """Change a manifest and give it a correct checksum."""
    path.write_text(_canonical({**json.loads(path.read_text()), **changes}))


def test_a_newer_format_raises_an_error_that_says_what_to_install(directory):
    rewrite(files_of(directory, 60)["manifest"], format=2)
    with pytest.raises(ValueError, match=r"has format 2; .* Install the newer orac"):
        load(directory)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "two", "step": None},
        {"state_digest": "../../" + "0" * 58},
        {"state_digest": 7},
        {"replay": [1]},
        {"replay": {"capacity": 40, "inserted": 60, "segments": [[0, -5, "0" * 64]]}},
        {"replay": {"capacity": 40, "inserted": 10**15, "segments": []}},
        {"replay": {"capacity": 40, "segments": []}},
        {"extra": 3},
        {"step": 10**30},
    ],
)
def test_a_forged_manifest_is_detected(directory, changes):
    rewrite(files_of(directory, 60)["manifest"], **changes)
    loaded = load(directory)
    assert_is_step(loaded, 25)
    assert "step 60 is damaged" in loaded.warnings[0]


def test_an_unchanged_manifest_survives_rewriting(directory):
    rewrite(files_of(directory, 60)["manifest"])
    assert_is_step(load(directory), 60)


@pytest.mark.parametrize(
    ("template", "replay_template", "sentence"),
    [
        (
            make_state(0)._replace(count=0),
            EMPTY,
            "leaf .count has kind array, expected int",
        ),
        (make_state(0).params, EMPTY, r"lacks the expected leaf \['b'\]"),
        (
            TEMPLATE,
            make_replay(0, 41),
            "saved replay has space for 40 rows, but the replay of this run has space for 41",
        ),
        (
            TEMPLATE,
            EMPTY._replace(storage={**EMPTY.storage, "reward": np.zeros(CAPACITY)}),
            "has dtype float32, expected float64",
        ),
    ],
)
def test_another_configuration_raises_an_error_instead_of_loading_an_older_checkpoint(
    directory, template, replay_template, sentence
):
    with pytest.raises(ValueError, match=sentence) as caught:
        Checkpoints(directory).load_latest(template, replay_template)
    assert not isinstance(caught.value, DamagedFileError)


def test_left_over_files_are_ignored_then_deleted(directory):
    leftovers = [
        directory / ".tmp-state.arrays",
        directory / "step-000000000070-0123456789abcdef.arrays",
        directory / "replay" / ".tmp-segment-000000000060-000000000070.arrays",
        directory / "replay" / "segment-000000000060-000000000070.arrays",
    ]
    for path in leftovers:
        path.write_bytes(b"half a")
    notes = directory / "notes.txt"
    notes.write_text("a file of the user")
    checkpoints = Checkpoints(directory)
    assert_is_step(checkpoints.load_latest(TEMPLATE, EMPTY), 60)
    assert all(path.exists() for path in leftovers), "loading must not delete"
    save(checkpoints, 71)
    assert not any(path.exists() for path in leftovers)
    assert notes.exists()


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("failing_call", range(4))
def test_a_full_disk_leaves_the_earlier_checkpoints(
    directory, monkeypatch, call, failing_call
):
    before = sorted(os.listdir(directory) + os.listdir(directory / "replay"))
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)
    original, calls = getattr(os, call), iter(range(100))

    def full(*arguments):
        if next(calls) >= failing_call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(
            DiskError, match=r"the disk is full. Earlier saves are intact"
        ):
            save(checkpoints, 70)
    after = sorted(os.listdir(directory) + os.listdir(directory / "replay"))
    # The last call only syncs a checkpoint that is already complete.
    if after != before:
        assert checkpoints.steps() == [25, 60, 70]
    assert_is_step(load(directory), checkpoints.steps()[-1])
    save(checkpoints, 70)
    assert_is_step(load(directory), 70)


def test_an_interrupt_while_saving_leaves_no_unfinished_files(directory, monkeypatch):
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(checkpoints, 70)
    assert not list(directory.rglob(".tmp-*"))
    assert_is_step(load(directory), 60)


def test_a_new_run_does_not_overwrite_checkpoints(directory):
    with pytest.raises(
        ValueError, match=r"already contains checkpoints \(newest: step"
    ):
        save(Checkpoints(directory), 100)
    assert_is_step(load(directory), 60)


def test_steps_must_increase(directory):
    checkpoints = Checkpoints(directory)
    checkpoints.load_latest(TEMPLATE, EMPTY)
    with pytest.raises(ValueError, match="must not decrease, got step 59 after 60"):
        save(checkpoints, 59)


def test_extra_must_fit_into_json(tmp_path):
    with pytest.raises(TypeError, match="extra must be JSON-serialisable"):
        Checkpoints(tmp_path).save(1, make_state(1), extra={"x": np.ones(2)})
    assert Checkpoints(tmp_path).steps() == []
    assert not list(tmp_path.glob("*.arrays"))


def test_extra_is_restored_as_json_restores_it(tmp_path):
    extra = {"a": {3: (1, 2.5), 11: None}, "n": float("inf")}
    Checkpoints(tmp_path).save(1, make_state(1), extra=extra)
    loaded = Checkpoints(tmp_path).load_latest(TEMPLATE)
    assert loaded.extra == {"a": {"3": [1, 2.5], "11": None}, "n": float("inf")}


@pytest.mark.slow
def test_a_late_checkpoint_is_as_cheap_as_an_early_one(tmp_path):
    """Save 5 MB of state and 10,000 new rows of 130 floats in a replay of a million rows."""
    state = {"w": jnp.ones((1_250_000,)), "key": jax.random.key(0)}
    storage = {"row": jnp.ones((1_000_000, 130))}
    checkpoints = Checkpoints(tmp_path)
    seconds = []
    for step in range(10_000, 1_300_000, 10_000):
        begin = time.perf_counter()
        checkpoints.save(step, state, Replay(storage, np.int32(step)))
        seconds.append(time.perf_counter() - begin)
    early, late = statistics.median(seconds[1:20]), statistics.median(seconds[-20:])
    assert late < 2 * early + 0.02
    # It takes less than 50 ms on an idle disk; the rest is for busy machines.
    assert late < 0.3


def test_a_manifest_with_too_many_values_is_neither_read_nor_written(tmp_path):
    data = b'{"extra":[' + b"[]," * 1_000_001 + b"0]}"
    with pytest.raises(DamagedFileError) as error:
        decode_manifest(tmp_path / "step-000000000001.json", data)
    assert "too many values" in str(error.value.__cause__)
    with pytest.raises(
        ValueError, match="Return arrays instead of lists from get_state"
    ):
        encode_manifest(Manifest(1, "0" * 64, None, {"x": [0] * 2_000_001}))
