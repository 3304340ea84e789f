"""Tests of saving the replay as append-only files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.run_examples import Replay, assert_same_bits, make_replay, make_rows
from orac.core import replay
from orac.runs import replay_segments
from orac.runs.atomic_io import DamagedFileError
from orac.runs.replay_segments import (
    SavedReplay,
    Segment,
    empty_replay,
    load_replay,
    read_rows,
    save_segments,
)

ROW_BYTES = 4 * 3 + 4 + 1


def reload(directory, segments, original):
    capacity = len(original.storage["reward"])
    saved = SavedReplay(capacity, int(original.inserted), segments)
    return load_replay(directory, make_replay(0, capacity), saved)


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_saved_at_random_steps_is_restored_exactly(
    tmp_path, monkeypatch, seed
):
    generator = np.random.default_rng(seed)
    capacity = int(generator.integers(1, 60))
    # Small limits, so that merging and splitting both happen in a small replay.
    monkeypatch.setattr(replay_segments, "MERGE_BYTES", ROW_BYTES * 20)
    monkeypatch.setattr(replay_segments, "SEGMENT_BYTES", ROW_BYTES * 25)
    inserted, segments = 0, []
    for _ in range(12):
        inserted += int(generator.choice([0, 1, 2, 5, 17, 40, 150]))
        example = make_replay(inserted, capacity)
        segments = save_segments(tmp_path, example, segments)
        assert_same_bits(reload(tmp_path, segments, example), example)


def test_rows_that_were_never_inserted_are_zeros(tmp_path):
    example = make_replay(3, 10)
    loaded = reload(tmp_path, save_segments(tmp_path, example, []), example)
    assert not loaded.storage["reward"][3:].any()
    assert loaded.storage["reward"][2] == np.float32(0.2)
    assert_same_bits(empty_replay(example), make_replay(0, 10))


def test_only_new_rows_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_segments, "MERGE_BYTES", 0)
    segments = save_segments(tmp_path, make_replay(20, 50), [])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"segment-000000000000-000000000020.arrays"}
    segments = save_segments(tmp_path, make_replay(23, 50), segments)
    assert {path.name for path in tmp_path.iterdir()} - names == {
        "segment-000000000020-000000000023.arrays"
    }
    assert [(x.first, x.last) for x in segments] == [(0, 20), (20, 23)]
    assert save_segments(tmp_path, make_replay(23, 50), segments) == segments
    # Row 19 is the oldest that a replay of 50 holds after 69, row 20 after 70.
    for inserted, oldest in ((69, 0), (70, 20)):
        assert (
            save_segments(tmp_path, make_replay(inserted, 50), segments)[0].first
            == oldest
        )


def test_many_tiny_saves_leave_few_segments(tmp_path):
    segments = []
    for inserted in range(1, 300):
        segments = save_segments(tmp_path, make_replay(inserted, 200), segments)
        # A binary counter of 8 digits, and the oldest segment that is half overwritten.
        assert len(segments) <= 9


def test_many_new_rows_are_split_into_several_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_segments, "SEGMENT_BYTES", ROW_BYTES * 8)
    segments = save_segments(tmp_path, make_replay(20, 50), [])
    assert [(x.first, x.last) for x in segments] == [(0, 8), (8, 16), (16, 20)]


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (9, 14), (10, 20), (13, 14)])
def test_rows_are_read_around_the_end_of_the_buffer(convert, first, last):
    storage = jax.tree.map(convert, make_replay(20, 10).storage)
    if first < 10:
        storage = jax.tree.map(convert, make_replay(last, 10).storage)
    assert_same_bits(read_rows(storage, first, last), make_rows(first, last))


def test_reading_any_number_of_rows_compiles_few_programs():
    storage = {"x": jnp.zeros((1000, 2))}
    before = replay_segments._take_rows._cache_size()
    for count in range(1, 600):
        read_rows(storage, 7 * count, 8 * count)
    assert replay_segments._take_rows._cache_size() - before <= 11


def test_a_replay_on_device_is_saved_and_donated_without_a_copy(tmp_path):
    example = replay.example_transition(3, 2, 1)
    state = replay.init(100, example)
    rows = jax.tree.map(
        lambda leaf: jnp.full((60, *leaf.shape), 2, leaf.dtype), example
    )
    add = jax.jit(replay.add, donate_argnums=0)
    state = add(add(state, rows), rows)
    where = state.storage.observation.unsafe_buffer_pointer()
    segments = save_segments(tmp_path, state, [])
    expected = jax.tree.map(np.array, state)
    state = add(state, rows)
    assert state.storage.observation.unsafe_buffer_pointer() == where
    template = jax.eval_shape(lambda: replay.init(100, example))
    loaded = load_replay(tmp_path, template, SavedReplay(100, 120, segments))
    assert_same_bits(loaded, jax.tree.map(jnp.asarray, expected))
    assert isinstance(loaded, replay.ReplayState)


def test_another_capacity_raises_an_error(tmp_path):
    segments = save_segments(tmp_path, make_replay(5, 10), [])
    with pytest.raises(
        ValueError,
        match="saved replay has space for 10 rows, but the replay of this run has space for 20",
    ):
        load_replay(tmp_path, make_replay(0, 20), SavedReplay(10, 5, segments))


def test_a_replay_that_lost_rows_raises_an_error(tmp_path):
    segments = save_segments(tmp_path, make_replay(5, 10), [])
    with pytest.raises(
        ValueError, match="5 rows of the replay were saved before, but only 4"
    ):
        save_segments(tmp_path, make_replay(4, 10), segments)


def test_leaves_of_different_length_raise_an_error(tmp_path):
    storage = {"a": np.zeros((3, 1)), "b": np.zeros((4, 1))}
    with pytest.raises(
        ValueError, match=r"same leading axis .* got leading axes \[3, 4\]"
    ):
        save_segments(tmp_path, Replay(storage, 0), [])


@pytest.mark.parametrize(
    "pieces", [[(0, 5)], [(5, 9)], [(0, 5), (6, 9)], [(0, 5), (4, 9)], [(0, 12)], []]
)
def test_segments_must_cover_the_replay(tmp_path, pieces):
    segments = [Segment(first, last, "0" * 64) for first, last in pieces]
    with pytest.raises(
        DamagedFileError, match=r"does not continue the rows|lacks the rows"
    ):
        load_replay(tmp_path, make_replay(0, 10), SavedReplay(10, 9, segments))
