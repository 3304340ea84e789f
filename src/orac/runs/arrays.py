"""Save pytrees of arrays as binary files, and NumPy arrays as JSON, without any rounding.

A file consists of 8 magic bytes, the format version (4 bytes), the header's length
(8 bytes), a JSON header that lists every leaf (key path, kind, dtype, shape), the raw
bytes of the leaves in that order, and the SHA-256 of everything before it (32 bytes).
Numbers are little-endian. Loading never runs code: a file contains no pickle and no class
names, and its arrays only fill the structure of a template that the caller provides. Later
formats must leave the magic bytes, the format version and the digest where they are, so
that this version can say in its error that a newer version wrote the file.
"""

import base64
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

from orac.config.reading import read_json
from orac.runs.atomic_io import (
    AnyPath,
    DamagedFileError,
    atomic_file,
    disk_errors,
    sync_directory,
)

FORMAT = 1
MAGIC = b"ORACarr\n"
PREFIX = struct.Struct("<8sIQ")
DIGEST_BYTES = 32
CHUNK_BYTES = 1 << 20

PyTree = Any

JSON_ARRAY = "__array__"
"""Key of the bytes of an array in JSON."""


class Leaf(NamedTuple):
    """Header entry of one leaf of a pytree."""

    path: str
    kind: str
    """array, int, float, bool, or the dtype of a random key, such as key<fry>."""
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return jnp.dtype(self.dtype).itemsize * math.prod(self.shape)


def save_arrays(path: AnyPath, tree: PyTree) -> str:
    """Write a pytree to a file atomically and durably. Returns the file's digest."""
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
        for leaf, (_, value) in zip(leaves, named, strict=True):
            data = jax.random.key_data(value) if leaf.kind.startswith("key") else value
            array = np.asarray(data, order="C")
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            put(_bytes_of(array))
        write(digest.digest())
    sync_directory(path.parent)
    return digest.hexdigest()


class TemplateMismatchError(ValueError):
    """An intact file holds arrays with other names, types or shapes than the template."""


def load_arrays(
    path: AnyPath, template: PyTree, digest: str | None = None, part: bool = False
) -> PyTree:
    """Read a pytree back into the structure of `template`.

    Each leaf of the result has the type of the template's leaf: a NumPy array, a JAX array,
    a typed key or a Python number. A `jax.ShapeDtypeStruct` becomes a JAX array. If `digest`
    is given, the file must have this digest. If `part` is True, the file may have more
    leaves than the template. Raises `DamagedFileError` for a file that is missing,
    truncated, altered or of another kind, and `ValueError` for an intact file that does not
    fit the template or that a newer version of orac wrote.
    """
    path = Path(path)
    named, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = [_describe(jax.tree_util.keystr(name), leaf) for name, leaf in named]
    with _open_verified(path, digest) as file:
        found, start = _read_header(path, file)
        _check_fit(path, found, expected, part)
        offsets, end = {}, start
        for leaf in found:
            offsets[leaf.path] = end
            end += leaf.num_bytes
        if end + DIGEST_BYTES != os.fstat(file.fileno()).st_size:
            message = f"{path} is not a file of orac: its header does not fit its size."
            raise DamagedFileError(message)
        values = []
        for leaf, (_, like) in zip(expected, named, strict=True):
            file.seek(offsets[leaf.path])
            array = np.empty(leaf.shape, jnp.dtype(leaf.dtype))
            if file.readinto(_bytes_of(array)) != leaf.num_bytes:
                raise DamagedFileError(f"{path} was truncated while it was read.")
            values.append(_convert_like(like, leaf, array))
    return jax.tree_util.tree_unflatten(structure, values)


def _describe(path: str, leaf: Any) -> Leaf:
    if isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic):
        array, kind = np.asarray(leaf), type(leaf).__name__
    elif hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        array, kind = leaf, "array"
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array, kind = jax.eval_shape(jax.random.key_data, leaf), str(leaf.dtype)
    else:
        raise TypeError(
            f"Leaf {path or 'at the root'} is a {type(leaf).__name__}; only arrays, keys "
            "and numbers can be saved. Leave it out of the pytree."
        )
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or dtype.names or dtype.kind in "SUMm":
        raise TypeError(
            f"Leaf {path or 'at the root'} has dtype {dtype}; only numbers and booleans "
            "can be saved."
        )
    return Leaf(path, kind, dtype.name, tuple(array.shape))


def _convert_like(like: Any, leaf: Leaf, array: np.ndarray) -> Any:
    """Convert `array` to the type of the template's leaf `like`."""
    if leaf.kind in ("bool", "int", "float"):
        return array.item()
    if leaf.kind.startswith("key"):
        # An abstract key does not expose its implementation, but a traced key does.
        impl: list[Any] = []
        jax.eval_shape(lambda key: impl.append(jax.random.key_impl(key)), like)
        return jax.random.wrap_key_data(jnp.array(array), impl=impl[0])
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, np.ndarray):
        return array
    value = jnp.array(array)
    if value.dtype != array.dtype:
        raise ValueError(
            f"Leaf {leaf.path} is {array.dtype}, but JAX would cut it to {value.dtype}. "
            "Set jax_enable_x64 as in the run that wrote it."
        )
    return value


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the bytes of a contiguous array.

    The array is viewed as uint8, because arrays of bfloat16 have no buffer.
    """
    return array.reshape(-1).view(np.uint8).data


@contextmanager
def _open_verified(path: Path, digest: str | None) -> Iterator[BufferedReader]:
    """Check the digest of a file, then yield the file at its start."""
    if not path.is_file():
        raise DamagedFileError(f"{path} is missing.")
    with disk_errors(path, "read"), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC[:size]:
            raise DamagedFileError(
                f"{path} is not a file of orac: its first bytes are wrong."
            )
        if size < PREFIX.size + DIGEST_BYTES:
            raise DamagedFileError(f"{path} is truncated: only {size} bytes are left.")
        file.seek(0)
        actual = hashlib.sha256()
        left = size - DIGEST_BYTES
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            actual.update(chunk)
            left -= len(chunk)
        if file.read() != actual.digest():
            raise DamagedFileError(f"{path} is truncated or altered (wrong checksum).")
        if digest is not None and digest != actual.hexdigest():
            raise DamagedFileError(f"{path} is not the file that the checkpoint lists.")
        file.seek(0)
        yield file


def _read_header(path: Path, file: BufferedReader) -> tuple[list[Leaf], int]:
    """Return the leaves of a verified file, and the position of the first leaf's bytes."""
    _, version, length = PREFIX.unpack(file.read(PREFIX.size))
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {version}; this version of orac reads formats up to {FORMAT}. "
            "Install the newer orac that wrote it."
        )
    # A correct digest does not make the header trustworthy, because both can be forged.
    try:
        header = read_json(file.read(min(length, os.fstat(file.fileno()).st_size)))
        leaves = [
            Leaf(x["path"], x["kind"], x["dtype"], tuple(x["shape"])) for x in header
        ]
        duplicates = len(leaves) - len({leaf.path for leaf in leaves})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"{path} is not a file of orac: its header cannot be read."
        raise DamagedFileError(message) from error
    if duplicates:
        raise DamagedFileError(
            f"{path} is not a file of orac: its header names a leaf twice."
        )
    return leaves, PREFIX.size + length


def _check_fit(path: Path, found: list[Leaf], expected: list[Leaf], part: bool) -> None:
    why = "It was written with another configuration, or is another kind of file."
    saved = {leaf.path: leaf for leaf in found}
    for leaf in expected:
        if leaf.path not in saved:
            raise TemplateMismatchError(
                f"{path} lacks the expected leaf {leaf.path}. {why}"
            )
    surplus = [*saved.keys() - {leaf.path for leaf in expected}]
    if surplus and not part:
        raise TemplateMismatchError(
            f"{path} has an unexpected leaf {min(surplus)}. {why}"
        )
    for leaf in expected:
        for field in ("kind", "dtype", "shape"):
            was, wanted = getattr(saved[leaf.path], field), getattr(leaf, field)
            if was != wanted:
                raise TemplateMismatchError(
                    f"{path}: leaf {leaf.path} has {field} {was}, expected {wanted}. {why}"
                )


def to_json(value: Any) -> Any:
    """Convert NumPy arrays, also inside dicts, lists and tuples, to values for JSON.

    An array becomes a dict with its bytes in base 64, its dtype and its shape. `from_json`
    restores the array exactly. Keys of dicts become strings, tuples become lists, and all
    other values are returned unchanged.
    """
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        return {
            JSON_ARRAY: base64.b64encode(data.tobytes()).decode(),
            "dtype": data.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, np.generic):
        return to_json(np.asarray(value))
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    """Restore the arrays in the result of `to_json`."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if JSON_ARRAY not in value:
        return {name: from_json(item) for name, item in value.items()}
    dtype = np.dtype(value["dtype"])
    if dtype.hasobject:
        raise ValueError(f"an array must hold plain numbers, got {dtype}.")
    data = base64.b64decode(value[JSON_ARRAY])
    return np.frombuffer(data, dtype).reshape(value["shape"]).copy()
