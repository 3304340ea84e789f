"""Read files that may be damaged or may not be the expected kind of file.

The functions that read a file accept only regular files of a limited size. `read_json`
parses text that was read.
"""

import json
import os
import stat
from typing import Any


def read_limited(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    A larger file raises a ValueError. So does a pipe or a device, because reading from it
    might never end. Any other problem raises an OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(f"{path} is a directory, but must be a file.")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} must be a regular file, not a pipe or a device.")
        data = file.read(limit + 1) if status.st_size <= limit else None
    if data is None or len(data) > limit:
        raise ValueError(
            f"{path} must have at most {limit:,} bytes, got {status.st_size:,}. It is "
            "probably another kind of file."
        )
    return data


def read_json(text: str | bytes) -> Any:
    """Parse JSON. A key that occurs twice raises an error, as in YAML."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"it has the key {twice!r} twice")
        return content

    return json.loads(text, object_pairs_hook=unique)


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the text of a regular file of at most `limit` bytes."""
    try:
        return read_limited(path, limit).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}.") from error
