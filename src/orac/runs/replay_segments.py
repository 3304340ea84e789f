"""Save a replay as append-only segment files, so that a save does not write all rows again.

A replay is a ring buffer: `storage` is a pytree whose leaves share a leading axis (the
capacity), and `inserted` counts all rows ever inserted. Row i is at position i % capacity
and does not change until it is overwritten. A segment holds the rows first..last-1 in the
order of insertion. The manifest of a checkpoint lists the segments of its replay.
"""

import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from orac.runs.arrays import PyTree, load_arrays, save_arrays
from orac.runs.atomic_io import DamagedFileError

SEGMENT_BYTES = 1 << 26
"""Maximum size of a segment. Rows that need more are split into several segments, so that a
save needs little memory."""

MERGE_BYTES = 1 << 23
"""Maximum size of a merged segment, which bounds the work of a merge. Small segments are
merged, so that a replay of half a gigabyte has at most a few hundred files, however often it
is saved."""


Replay = Any
"""A NamedTuple with `storage` and `inserted`, such as `core.replay.ReplayState`."""


class Segment(NamedTuple):
    """A file with the rows first..last-1, and its digest."""

    first: int
    last: int
    digest: str

    @property
    def name(self) -> str:
        return f"segment-{self.first:012d}-{self.last:012d}.arrays"


class SavedReplay(NamedTuple):
    """Description of a saved replay, in the manifest of a checkpoint."""

    capacity: int
    inserted: int
    segments: list[Segment]


def capacity_of(storage: PyTree) -> int:
    """Return the length of the leading axis that all leaves share."""
    sizes = {leaf.shape[0] if leaf.shape else 0 for leaf in jax.tree.leaves(storage)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            "Every leaf of a replay's storage needs the same leading axis (its "
            f"capacity), got leading axes {sorted(sizes)}."
        )
    return sizes.pop()


def save_segments(
    directory: Path, replay: Replay, written: list[Segment]
) -> list[Segment]:
    """Write the rows that are not yet in a file, and return all segments of the replay.

    `written` are the segments after the previous save.
    """
    inserted, capacity = int(replay.inserted), capacity_of(replay.storage)
    leaves = jax.tree.leaves(replay.storage)
    sizes = [math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in leaves]
    row_bytes = max(1, sum(sizes))
    oldest = max(0, inserted - capacity)
    if written and written[-1].last > inserted:
        raise ValueError(
            f"{written[-1].last} rows of the replay were saved before, but only {inserted} were "
            "inserted into this replay. Save another run in another directory."
        )
    keep = [segment for segment in written if segment.last > oldest]
    first = max(oldest, keep[-1].last if keep else 0)
    # Two neighbouring segments are merged if the older one is not larger than the newer
    # one, as in a binary counter. So each row is rewritten only a logarithmic number of
    # times. The rows are read from the replay in memory.
    while first < inserted and keep:
        older = keep[-1]
        merged = max(oldest, older.first)
        is_larger = older.last - older.first > inserted - first
        if is_larger or (inserted - merged) * row_bytes > MERGE_BYTES:
            break
        first = merged
        keep.pop()
    max_rows = max(1, SEGMENT_BYTES // row_bytes)
    for start, stop in pairwise([*range(first, inserted, max_rows), inserted]):
        rows = read_rows(replay.storage, start, stop)
        path = directory / Segment(start, stop, "").name
        keep.append(Segment(start, stop, save_arrays(path, rows)))
    return keep


def read_rows(storage: PyTree, first: int, last: int) -> PyTree:
    """Return the rows first..last-1 as NumPy arrays, without copying the whole replay."""
    count, capacity = last - first, capacity_of(storage)
    leaves, structure = jax.tree.flatten(storage)
    on_device = [leaf for leaf in leaves if not isinstance(leaf, np.ndarray)]
    # The number of rows is rounded up to a power of two, so that a run that saves at
    # irregular steps does not compile one program for every number of rows.
    padded = min(1 << (count - 1).bit_length(), capacity)
    taken = iter(_take_rows(on_device, first % capacity, padded) if on_device else [])
    rows = [
        leaf.take(np.arange(first, last) % capacity, axis=0)
        if isinstance(leaf, np.ndarray)
        else np.asarray(next(taken))[:count]
        for leaf in leaves
    ]
    return structure.unflatten(rows)


@partial(jax.jit, static_argnames="count")
def _take_rows(leaves: list[jax.Array], start: Any, count: int) -> list[jax.Array]:
    return [leaf[(start + jnp.arange(count)) % leaf.shape[0]] for leaf in leaves]


def load_replay(directory: Path, template: Replay, saved: SavedReplay) -> Replay:
    """Load a replay, with zeros for the rows that were never inserted."""
    capacity = capacity_of(template.storage)
    if capacity != saved.capacity:
        raise ValueError(
            f"The saved replay has space for {saved.capacity} rows, but the replay of this run "
            f"has space for {capacity}. Resume with the configuration of the saved run, or "
            "start a new run."
        )
    _check_segments(directory, saved)
    leaves, structure = jax.tree.flatten(template.storage)
    buffers = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
    for segment in saved.segments:
        count = segment.last - segment.first
        like = structure.unflatten(
            np.broadcast_to(np.zeros((), x.dtype), (count, *x.shape[1:]))
            for x in buffers
        )
        rows = load_arrays(directory / segment.name, like, segment.digest)
        # The oldest segment may start with rows that were overwritten later.
        skip = max(0, saved.inserted - capacity - segment.first)
        for buffer, values in zip(buffers, jax.tree.leaves(rows), strict=True):
            # The rows may continue at the start of the ring buffer.
            start = (segment.first + skip) % capacity
            head, tail = np.split(values[skip:], [capacity - start])
            buffer[start : start + len(head)], buffer[: len(tail)] = head, tail
    storage = []
    for leaf in leaves:
        buffer = buffers.pop(0)
        storage.append(buffer if isinstance(leaf, np.ndarray) else jnp.array(buffer))
    inserted, like = saved.inserted, template.inserted
    if not isinstance(like, int):
        inserted = np.full(like.shape, inserted, like.dtype)
        if not isinstance(like, np.ndarray | np.generic):
            inserted = jnp.array(inserted)
    return template._replace(storage=structure.unflatten(storage), inserted=inserted)


def empty_replay(template: Replay) -> Replay:
    """Return an empty replay, which has zeros in the shapes of `template`."""
    nothing = SavedReplay(capacity_of(template.storage), 0, [])
    return load_replay(Path(), template, nothing)


def _check_segments(directory: Path, saved: SavedReplay) -> None:
    """Raise an error unless the segments are adjacent and cover the rows of the replay."""
    reached = max(0, saved.inserted - saved.capacity)
    for index, segment in enumerate(saved.segments):
        adjacent = segment.first <= reached if index == 0 else segment.first == reached
        if not (adjacent and reached < segment.last):
            file = directory / segment.name
            raise DamagedFileError(f"{file} does not continue the rows before it.")
        reached = segment.last
    if reached != saved.inserted:
        lacking = f"{directory} lacks the rows from {reached} to {saved.inserted}."
        raise DamagedFileError(lacking)
