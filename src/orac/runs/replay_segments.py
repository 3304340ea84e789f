"""A replay ring <-> append-only segment files: a row is written once, not every time.

A ring has `storage`, a pytree whose leaves share a leading axis (the capacity), and
`inserted`, how many rows ever went in; row i lives at position i % capacity and is
never changed until it is overwritten. A segment holds rows first..last-1 in the order
in which they were inserted. Which segments a checkpoint needs is in its manifest, not
here.
"""

import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from orac.runs.arrays import PyTree, load_arrays, save_arrays
from orac.runs.atomic_io import Damaged

SEGMENT_BYTES = 1 << 26
"""A longer stretch becomes several segments: little memory is needed at once."""

MERGE_BYTES = 1 << 23
"""Small segments are rewritten as one of up to this size: bounded work, and a ring of
half a gigabyte is some hundred files at most, however often one saves."""


@runtime_checkable
class Ring(Protocol):
    """The part of a replay that is saved; in practice a NamedTuple."""

    @property
    def storage(self) -> PyTree: ...

    @property
    def inserted(self) -> Any: ...

    def _replace(self, **fields: Any) -> Any: ...


RingType = TypeVar("RingType", bound=Ring)


class Segment(NamedTuple):
    """Rows first..last-1, in a file with this digest."""

    first: int
    last: int
    digest: str

    @property
    def name(self) -> str:
        return f"segment-{self.first:012d}-{self.last:012d}.arrays"


class SavedRing(NamedTuple):
    """What a manifest says of the replay."""

    capacity: int
    inserted: int
    segments: list[Segment]


def capacity_of(storage: PyTree) -> int:
    """The length of the leading axis that every leaf shares."""
    sizes = {leaf.shape[0] if leaf.shape else 0 for leaf in jax.tree.leaves(storage)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            "Every leaf of a replay's storage needs the same leading axis (its "
            f"capacity), got leading axes {sorted(sizes)}."
        )
    return sizes.pop()


def save_segments(directory: Path, ring: Ring, written: list[Segment]) -> list[Segment]:
    """Write the rows that `written` lacks; returns the segments of the whole ring."""
    keep, stretches = _plan(ring, written)
    fresh = []
    for first, last in stretches:
        rows = read_rows(ring.storage, first, last)
        path = directory / Segment(first, last, "").name
        fresh.append(Segment(first, last, save_arrays(path, rows)))
    return keep + fresh


def _plan(
    ring: Ring, written: list[Segment]
) -> tuple[list[Segment], list[tuple[int, int]]]:
    """Which segments stay as they are, and which stretches of rows to write."""
    inserted, capacity = int(ring.inserted), capacity_of(ring.storage)
    row_bytes = max(1, _row_bytes(ring.storage))
    oldest = max(0, inserted - capacity)
    if written and written[-1].last > inserted:
        raise ValueError(
            f"The replay has {inserted} rows, but {written[-1].last} were saved "
            "before. A run's replay only grows; save another run in another directory."
        )
    keep = [segment for segment in written if segment.last > oldest]
    first = max(oldest, keep[-1].last if keep else 0)
    # Two neighbours become one when the older is not the larger, as in a binary
    # counter: each row is rewritten a logarithmic number of times, from the ring.
    while (
        first < inserted and keep and keep[-1].last - keep[-1].first <= inserted - first
    ):
        merged = max(oldest, keep[-1].first)
        if (inserted - merged) * row_bytes > MERGE_BYTES:
            break
        first = merged
        keep.pop()
    most = max(1, SEGMENT_BYTES // row_bytes)
    cuts = [*range(first, inserted, most), inserted]
    return keep, list(pairwise(cuts))


def _row_bytes(storage: PyTree) -> int:
    leaves = jax.tree.leaves(storage)
    return sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in leaves)


def read_rows(storage: PyTree, first: int, last: int) -> PyTree:
    """Rows first..last-1 as NumPy arrays; only they leave the device."""
    count, capacity = last - first, capacity_of(storage)
    leaves, structure = jax.tree.flatten(storage)
    on_device = [leaf for leaf in leaves if not isinstance(leaf, np.ndarray)]
    # Compiled for powers of two only: a run that saves at odd moments compiles a few
    # programs, not one for every number of rows.
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


def load_ring(directory: Path, template: RingType, saved: SavedRing) -> RingType:
    """The ring as it was; rows that were never inserted are zeros."""
    capacity = capacity_of(template.storage)
    if capacity != saved.capacity:
        raise ValueError(
            f"The saved replay holds {saved.capacity} rows, this run's {capacity}. "
            "Resume with the configuration of the run, or start a new one."
        )
    _check_cover(directory, saved)
    leaves, structure = jax.tree.flatten(template.storage)
    rings = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
    for segment in saved.segments:
        count = segment.last - segment.first
        like = [
            np.broadcast_to(np.zeros((), x.dtype), (count, *x.shape[1:])) for x in rings
        ]
        rows = load_arrays(
            directory / segment.name, structure.unflatten(like), segment.digest
        )
        # The oldest segment may begin with rows that were overwritten since.
        skip = max(0, saved.inserted - capacity - segment.first)
        for ring, values in zip(rings, jax.tree.leaves(rows), strict=True):
            _place(ring, values[skip:], segment.first + skip)
    storage = []
    for leaf in leaves:
        ring = rings.pop(0)
        storage.append(ring if isinstance(leaf, np.ndarray) else jnp.array(ring))
    return template._replace(
        storage=structure.unflatten(storage),
        inserted=_like_counter(template.inserted, saved.inserted),
    )


def _place(ring: np.ndarray, rows: np.ndarray, first: int) -> None:
    """Put rows into the ring from row number `first` on, around its end if need be."""
    start = first % len(ring)
    before_end = min(len(rows), len(ring) - start)
    ring[start : start + before_end] = rows[:before_end]
    ring[: len(rows) - before_end] = rows[before_end:]


def _like_counter(like: Any, value: int) -> Any:
    if isinstance(like, int):
        return value
    array = np.full(like.shape, value, like.dtype)
    return array if isinstance(like, np.ndarray | np.generic) else jnp.array(array)


def empty_ring(template: RingType) -> RingType:
    """A ring of zeros with nothing inserted, shaped as `template`."""
    nothing = SavedRing(capacity_of(template.storage), 0, [])
    return load_ring(Path(), template, nothing)


def _check_cover(directory: Path, saved: SavedRing) -> None:
    """Segments must be neighbours and reach from the oldest row to the newest."""
    reached = max(0, saved.inserted - saved.capacity)
    for index, segment in enumerate(saved.segments):
        joins = segment.first <= reached if index == 0 else segment.first == reached
        if not (joins and reached < segment.last):
            raise Damaged(
                f"{directory / segment.name} does not join the rows before it."
            )
        reached = segment.last
    if reached != saved.inserted:
        raise Damaged(f"{directory} lacks the rows from {reached} to {saved.inserted}.")
