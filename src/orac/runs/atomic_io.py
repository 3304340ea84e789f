"""Bytes to disk so that a crash leaves the old file or the new one, never half of one.

Also the sentences for what disks do to people: full, read-only, not there. This room
does not know what the bytes mean.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"
"""How the name of an unfinished file starts; whoever finds one may delete it."""

Write = Callable[[Any], None]


class Damaged(ValueError):
    """A file is missing, cut short, altered or not ours; an older one may be good."""


class DiskError(OSError):
    """An OSError whose text is one sentence with a way out; `errno` is the cause's."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def disk_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError into a DiskError that says what could not be done, and why."""
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        sentence = f"Could not {action} {path}: {_cause(error)}"
        raise DiskError(error.errno, sentence) from error


def _cause(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "the disk is full. What was saved before is intact: free some space, then "
            "resume the run."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied. Choose a directory you may write to (--out)."
    if error.errno == errno.EROFS:
        return "the file system is read-only. Choose another directory (--out)."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file stands where a directory is needed. Choose another one (--out)."
    if error.errno == errno.ENOENT:
        return (
            "it, or a directory above it, does not exist. Choose another one (--out)."
        )
    if error.errno == errno.EISDIR:
        return "it is a directory, a file was expected. Check the path."
    return f"{error.strerror or error}."


def write_all(descriptor: int, buffer: Any) -> None:
    """Write every byte; one `os.write` may stop half-way."""
    left = memoryview(buffer)
    if left.nbytes:
        left = left.cast("B")
    while left.nbytes:
        left = left[os.write(descriptor, left) :]


@contextmanager
def atomic_file(path: Path) -> Iterator[Write]:
    """A `write` for a file that appears under `path` whole and on disk, or not at all.

    The rename itself lasts through a power cut only after `sync_directory`.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with disk_errors(path, "write"):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = os.open(temporary, flags, 0o666)
        try:
            try:
                yield lambda buffer: write_all(descriptor, buffer)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            # A full disk must not stay full because of our own failed attempt.
            temporary.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Replace a small file, durably."""
    with atomic_file(path) as write:
        write(text.encode())
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the renames and deletions in a directory last through a power cut."""
    with disk_errors(path, "write"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and those above it; no error if it is there."""
    with disk_errors(path, "create the directory"):
        path.mkdir(parents=True, exist_ok=True)
