"""The manifest of a checkpoint: which files it consists of, and their digests.

It is JSON with one fixed spelling and its own checksum, so any altered byte shows.
Nothing in it is believed before it is checked: file names are made from its numbers.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from orac.runs.atomic_io import Damaged
from orac.runs.replay_segments import SavedRing, Segment

FORMAT = 1
LEFT_OUT = "left out"


class Manifest(NamedTuple):
    """What one checkpoint consists of."""

    step: int
    state_digest: str
    replay: SavedRing | str | None
    """None when the run has no replay, LEFT_OUT when it has one that was not saved."""
    extra: dict[str, Any]

    @property
    def state_name(self) -> str:
        return f"step-{self.step:012d}-{self.state_digest[:16]}.arrays"

    @property
    def segments(self) -> list[Segment]:
        return self.replay.segments if isinstance(self.replay, SavedRing) else []


def encode_manifest(manifest: Manifest) -> str:
    """The text to write; raises TypeError when `extra` is not for JSON."""
    content = {
        "format": FORMAT,
        **manifest._asdict(),
        "replay": manifest.replay._asdict()
        if isinstance(manifest.replay, SavedRing)
        else manifest.replay,
        "checksum": "",
    }
    try:
        # Once through JSON, so that what is read back is encoded to the same bytes.
        content = json.loads(json.dumps(content))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"A checkpoint's extra must be what JSON can hold: {error}."
        ) from error
    return _canonical(content)


def _canonical(content: dict[str, Any]) -> str:
    """The one text of a manifest; its checksum is taken with an empty checksum."""
    blank = json.dumps({**content, "checksum": ""})
    checksum = hashlib.sha256(blank.encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}) + "\n"


def decode_manifest(path: Path, data: bytes) -> Manifest:
    """Read what `encode_manifest` wrote; `path` is for the errors' sentences."""
    try:
        text = data.decode()
        content = json.loads(text)
        whole = "checksum" in content and _canonical(content) == text
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"{path} is cut short, altered or no manifest.") from error
    if not whole:
        raise Damaged(f"{path} is altered or no manifest: its checksum is wrong.")
    version = content.get("format")
    if type(version) is int and version > FORMAT:
        raise ValueError(
            f"{path} has format {version}; this version of orac reads up to {FORMAT}. "
            "Install the newer orac that wrote it."
        )
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path} is no manifest of ours.") from error


def _parse(content: dict[str, Any]) -> Manifest:
    """Check every field: file names are made of them, and a checksum is no honesty."""

    def count(value: Any) -> int:
        if type(value) is not int or value < 0:
            raise ValueError("not a count")
        return value

    def digest(value: Any) -> str:
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError("not a digest")
        return value

    replay = content["replay"]
    if isinstance(replay, dict):
        segments = [
            Segment(count(first), count(last), digest(of_file))
            for first, last, of_file in replay["segments"]
        ]
        replay = SavedRing(
            count(replay["capacity"]), count(replay["inserted"]), segments
        )
    elif replay not in (None, LEFT_OUT):
        raise ValueError("not a replay")
    state_digest = digest(content["state_digest"])
    return Manifest(
        count(content["step"]), state_digest, replay, dict(content["extra"])
    )
