"""A pytree of arrays <-> one file, bit for bit. Loading never runs code.

The file, numbers little-endian: 8 bytes of magic, the format (4 bytes), the header's
length (8 bytes), a JSON header that lists every leaf (key path, kind, dtype, shape),
the leaves' raw bytes in that order, and the SHA-256 of everything before it (32 bytes).
There is no pickle and no class name in it: the structure comes from a template that the
caller has, and the file may only fill it. Later formats keep the magic, the format
number and the digest where they are. This room does not know what is saved, or when.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from orac.runs.atomic_io import Damaged, atomic_file, disk_errors, sync_directory

FORMAT = 1
MAGIC = b"ORACarr\n"
PREFIX = struct.Struct("<8sIQ")
DIGEST_BYTES = 32
CHUNK_BYTES = 1 << 20

PyTree = Any


class Leaf(NamedTuple):
    """What the header says of one leaf; `kind` is array, int, float, bool or key<...>."""

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return jnp.dtype(self.dtype).itemsize * math.prod(self.shape)


def save_arrays(path: str | os.PathLike[str], tree: PyTree) -> str:
    """Write a pytree atomically and durably; returns the digest of what was written."""
    path = Path(path)
    named = jax.tree_util.tree_flatten_with_path(tree)[0]
    leaves = [_describe(jax.tree_util.keystr(name), leaf) for name, leaf in named]
    if len({leaf.path for leaf in leaves}) < len(leaves):
        raise ValueError("Two leaves of the pytree have the same key path; rename one.")
    header = json.dumps([leaf._asdict() for leaf in leaves]).encode()
    digest = hashlib.sha256()
    with atomic_file(path) as write:

        def put(buffer: Any) -> None:
            digest.update(buffer)
            write(buffer)

        put(PREFIX.pack(MAGIC, FORMAT, len(header)) + header)
        for _, value in named:
            put(_bytes_of(_to_numpy(value)))
        write(digest.digest())
    sync_directory(path.parent)
    return digest.hexdigest()


def load_arrays(
    path: str | os.PathLike[str], template: PyTree, digest: str | None = None
) -> PyTree:
    """Read a pytree back into the structure of `template`.

    The template's leaves say what is expected and what comes back: NumPy arrays give
    NumPy arrays, JAX arrays and `jax.ShapeDtypeStruct` give JAX arrays, typed keys give
    typed keys, Python numbers give Python numbers. With `digest`, the file must be that
    very one. Raises `Damaged` for a file that is missing, cut short, altered or foreign,
    and ValueError for a good file that does not fit.
    """
    path = Path(path)
    named, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = [_describe(jax.tree_util.keystr(name), leaf) for name, leaf in named]
    with _open_verified(path, digest) as file:
        found, start = _read_header(path, file)
        _check_fit(path, found, expected)
        offsets = _offsets(path, file, found, start)
        values = []
        for leaf, (_, like) in zip(expected, named, strict=True):
            file.seek(offsets[leaf.path])
            array = np.empty(leaf.shape, jnp.dtype(leaf.dtype))
            if file.readinto(_bytes_of(array)) != leaf.num_bytes:
                raise Damaged(f"{path} was cut short while it was read.")
            values.append(_like(like, leaf, array))
    return jax.tree_util.tree_unflatten(structure, values)


def _describe(path: str, leaf: Any) -> Leaf:
    if isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic):
        array = np.asarray(leaf)
        kind = type(leaf).__name__
    elif hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        array, kind = leaf, "array"
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array, kind = jax.eval_shape(jax.random.key_data, leaf), str(leaf.dtype)
    else:
        raise TypeError(
            f"Leaf {path or 'at the root'} is a {type(leaf).__name__}; only arrays, "
            "keys and numbers can be saved. Leave it out of the pytree."
        )
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or dtype.names or dtype.kind in "SUMm":
        raise TypeError(
            f"Leaf {path or 'at the root'} has dtype {dtype}; only numbers and "
            "booleans can be saved."
        )
    return Leaf(path, kind, dtype.name, tuple(array.shape))


def _to_numpy(leaf: Any) -> np.ndarray:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf, order="C")
    return (
        array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    )


def _like(like: Any, leaf: Leaf, array: np.ndarray) -> Any:
    """The bits of `array` as the kind of thing that `like` is."""
    if leaf.kind in ("bool", "int", "float"):
        return array.item()
    if leaf.kind.startswith("key"):
        return jax.random.wrap_key_data(jnp.array(array), impl=_key_impl(like))
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, np.ndarray):
        return array
    value = jnp.array(array)
    if value.dtype != array.dtype:
        raise ValueError(
            f"Leaf {leaf.path} is {array.dtype}, which JAX would cut to {value.dtype}. "
            "Set jax_enable_x64 as in the run that wrote it."
        )
    return value


def _key_impl(like: Any) -> Any:
    # An abstract key has no public way to its implementation, but a traced one does.
    found: list[Any] = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), like)
    return found[0]


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array, for every dtype (bfloat16 has no buffer)."""
    return array.reshape(-1).view(np.uint8).data


@contextmanager
def _open_verified(path: Path, digest: str | None) -> Iterator[BufferedReader]:
    """Open a file of ours at its start, after its digest was checked."""
    if not path.is_file():
        raise Damaged(f"{path} is missing.")
    with disk_errors(path, "read"), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC[:size]:
            raise Damaged(f"{path} is foreign: it does not start as our files do.")
        if size < PREFIX.size + DIGEST_BYTES:
            raise Damaged(f"{path} is cut short: only {size} bytes are left.")
        file.seek(0)
        actual = hashlib.sha256()
        left = size - DIGEST_BYTES
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            actual.update(chunk)
            left -= len(chunk)
        if file.read() != actual.digest():
            raise Damaged(f"{path} is cut short or altered: its checksum is wrong.")
        if digest is not None and digest != actual.hexdigest():
            raise Damaged(f"{path} is not the file that the checkpoint wrote.")
        file.seek(0)
        yield file


def _read_header(path: Path, file: BufferedReader) -> tuple[list[Leaf], int]:
    """The leaves in a verified file, and where the first one's bytes start."""
    _, version, length = PREFIX.unpack(file.read(PREFIX.size))
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {version}; this version of orac reads up to {FORMAT}. "
            "Install the newer orac that wrote it."
        )
    # A digest does not make a header honest: whoever crafts one can compute the other.
    try:
        header = json.loads(file.read(min(length, os.fstat(file.fileno()).st_size)))
        leaves = [
            Leaf(x["path"], x["kind"], x["dtype"], tuple(x["shape"])) for x in header
        ]
        duplicates = len(leaves) - len({leaf.path for leaf in leaves})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path} is foreign: its header cannot be read.") from error
    if duplicates:
        raise Damaged(f"{path} is foreign: its header names a leaf twice.")
    return leaves, PREFIX.size + length


def _offsets(
    path: Path, file: BufferedReader, leaves: list[Leaf], start: int
) -> dict[str, int]:
    """Where each leaf's bytes start; the leaves were compared with the template's."""
    offsets = {}
    for leaf in leaves:
        offsets[leaf.path] = start
        start += leaf.num_bytes
    if start + DIGEST_BYTES != os.fstat(file.fileno()).st_size:
        raise Damaged(f"{path} is foreign: its header does not fit its size.")
    return offsets


def _check_fit(path: Path, found: list[Leaf], expected: list[Leaf]) -> None:
    there, asked = ({leaf.path: leaf for leaf in x} for x in (found, expected))
    why = "It was written with another configuration, or is another kind of file."
    if missing := [name for name in asked if name not in there]:
        raise ValueError(f"{path} has no leaf {missing[0]}, which was expected. {why}")
    if surplus := [name for name in there if name not in asked]:
        raise ValueError(f"{path} has a leaf {surplus[0]} that nobody expects. {why}")
    for name, leaf in asked.items():
        for field in ("kind", "dtype", "shape"):
            was, wanted = getattr(there[name], field), getattr(leaf, field)
            if was != wanted:
                raise ValueError(
                    f"{path}: leaf {name} has {field} {was}, expected {wanted}. {why}"
                )
