"""Write files atomically and durably: after a crash, a file is either the old or the new one.

This module also locks files. It turns errors of the file system, such as a full disk, into
errors that say what to do.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AnyPath = str | os.PathLike[str]

TEMPORARY = ".tmp-"
"""Prefix of the names of unfinished files, which can be deleted."""

_FULL = "the disk is full. Earlier saves are intact: free some space, then resume."
_OUT = "(--out, or out= in Python)"
_DENIED = f"permission denied. Choose a directory you may write to {_OUT}."
_NO_DIRECTORY = f"a file is where a directory is needed. Choose another path {_OUT}."
_CAUSES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "files may not become that large here. Raise `ulimit -f`, then resume.",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: f"the file system is read-only. Choose another directory {_OUT}.",
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOENT: f"it, or its parent directory, does not exist. Check the path {_OUT}.",
    errno.EISDIR: "it is a directory, but a file was expected. Check the path.",
    errno.ELOOP: "it is a symbolic link, and orac never writes to its target. Delete it.",
    errno.EMLINK: "it is a hard link, so writing to it would also change a file elsewhere. "
    "Replace it by a copy.",
}


class DamagedFileError(ValueError):
    """A file is missing, truncated, altered or of another kind.

    An older file, for example of an earlier checkpoint, may be intact.
    """


class DiskError(OSError):
    """An OSError whose text says what to do. It has the `errno` of the original error."""

    def __str__(self) -> str:
        return str(self.strerror)


def shown_path(path: AnyPath) -> Path:
    """Return a path for a message: relative if it is inside the working directory.

    Runs have absolute paths, because an environment may change the working directory.
    """
    try:
        return Path(path).relative_to(Path.cwd())
    except (ValueError, OSError):
        return Path(path)


@contextmanager
def disk_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError into a DiskError that says what failed (`action`), and why."""
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}.")
        sentence = f"Could not {action} {shown_path(path)}: {cause}"
        raise DiskError(error.errno, sentence) from error


def open_to_write(path: Path, flags: int) -> int:
    """Open a regular file, create it if it is missing, and return its descriptor.

    A symbolic or hard link raises an OSError, because a run directory that somebody else
    made must not make this process write to files outside of the directory. A pipe or a
    device raises an OSError too, because opening it or writing to it could block for ever.
    """
    safe = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags | safe, 0o666)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink < 2:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
    raise OSError(errno.EINVAL, "it is not a regular file. Delete it")


def write_all(descriptor: int, buffer: Any) -> None:
    """Write all bytes of a buffer, of which a single `os.write` may write only some."""
    left = memoryview(buffer)
    if left.nbytes:
        left = left.cast("B")
    while left.nbytes:
        left = left[os.write(descriptor, left) :]


@contextmanager
def atomic_file(path: Path) -> Iterator[Callable[[Any], None]]:
    """Yield a function that writes to a new file, which replaces `path` at the end.

    The file is renamed to `path` only if it is complete. The rename survives a power cut
    only after `sync_directory`.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with disk_errors(path, "write"):
        # Delete a file that a crash left here, or a link that somebody else made.
        temporary.unlink(missing_ok=True)
        descriptor = open_to_write(temporary, os.O_WRONLY | os.O_EXCL)
        try:
            try:
                yield lambda buffer: write_all(descriptor, buffer)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            # The unfinished file is deleted, because it may fill the disk.
            temporary.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Write a small file, or replace it, atomically and durably."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small binary file, or replace it, atomically and durably.

    If there is a link at this path, the link is replaced and its target does not change.
    """
    with atomic_file(path) as write:
        write(data)
    sync_directory(path.parent)


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process holds the lock.

    The kernel releases the lock however the process ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_directory(path: Path) -> None:
    """Make the renames and deletions in a directory survive a power cut."""
    with disk_errors(path, "write"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def private_directory(path: Path) -> bool:
    """Create a directory that only this user can enter; return whether it is private.

    If it exists and other users can read but not change it, their access is removed.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if not ours or status.st_mode & 0o022:
            return False
        if status.st_mode & 0o077:
            path.chmod(0o700)
    except OSError:
        return False
    return True


def make_directory(path: Path) -> None:
    """Create a directory and its parents if they do not exist."""
    with disk_errors(path, "create the directory"):
        path.mkdir(parents=True, exist_ok=True)
