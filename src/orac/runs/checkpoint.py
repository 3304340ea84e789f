"""Checkpoints of a run, which are written atomically and verified when they are loaded.

For each saved step, `checkpoints/` contains `step-<step>.json` (the manifest) and
`step-<step>-<digest>.arrays` (everything except the replay). The segments of the replay are
in `checkpoints/replay/`. Checkpoints share segments, so a save does not write the whole
replay again. The manifest lists every file with its digest. It is renamed into place last, so
a checkpoint exists if its manifest exists. The manifest is canonical JSON that contains a
checksum, and every field is checked before it is used. State and segment files that no
manifest lists, for example after a crash, are deleted at the next save.
`training/saving.py` decides what a checkpoint of a run contains, and restores a run from it.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from orac.config.reading import read_json, read_limited
from orac.runs.arrays import PyTree, load_arrays, save_arrays
from orac.runs.atomic_io import (
    TEMPORARY,
    DamagedFileError,
    DiskError,
    disk_errors,
    make_directory,
    shown_path,
    sync_directory,
    write_text,
)
from orac.runs.replay_segments import (
    Replay,
    SavedReplay,
    Segment,
    capacity_of,
    empty_replay,
    load_replay,
    save_segments,
)

FORMAT = 1
KEEP = 2
"""Number of intact checkpoints that a save does not delete."""
MAX_MANIFEST_BYTES = 1 << 28
"""Maximum size of a manifest, which also holds the states of environments on the host."""
MAX_MANIFEST_VALUES = 2_000_000
"""Maximum number of values in a manifest, because each needs about 25 times the memory of its
text. An array is one value."""
NOT_SAVED = "left out"
"""Value of `Manifest.replay` if the run has a replay but the checkpoint does not."""
CHECKPOINT_FILE = re.compile(
    r"(step-\d{12}-[0-9a-f]{16}|segment-\d{12}-\d{12})\.arrays"
)
"""Names of the files that a manifest can list."""


class Manifest(NamedTuple):
    """The files and values of one checkpoint."""

    step: int
    state_digest: str
    replay: SavedReplay | str | None
    """None if the run has no replay, and NOT_SAVED if its replay was not saved."""
    extra: dict[str, Any]

    @property
    def state_name(self) -> str:
        return f"step-{self.step:012d}-{self.state_digest[:16]}.arrays"

    @property
    def segments(self) -> list[Segment]:
        return self.replay.segments if isinstance(self.replay, SavedReplay) else []


def encode_manifest(manifest: Manifest) -> str:
    """Return the text of a manifest. Raises TypeError if `extra` is not JSON."""
    content = {"format": FORMAT, **manifest._asdict(), "checksum": ""}
    if isinstance(manifest.replay, SavedReplay):
        content["replay"] = manifest.replay._asdict()
    try:
        # After this round trip, decoding and encoding again gives the same bytes.
        content = json.loads(json.dumps(content))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"A checkpoint's extra must be JSON-serialisable: {error}."
        ) from error
    text = _canonical(content)
    if _count_values(text.encode()) > MAX_MANIFEST_VALUES:
        raise ValueError(
            f"a checkpoint must have at most {MAX_MANIFEST_VALUES:,} values in addition to "
            "its arrays, but the state of the environments has more. Return arrays "
            "instead of lists from get_state."
        )
    return text


def _count_values(data: bytes) -> int:
    """Return an upper bound on the number of values in a JSON text, which it does not parse."""
    return sum(data.count(sign) for sign in (b",", b"[", b"{"))


def _canonical(content: dict[str, Any]) -> str:
    """Return the text of a manifest. The checksum is computed while its field is empty."""
    blank = json.dumps({**content, "checksum": ""})
    checksum = hashlib.sha256(blank.encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}) + "\n"


def decode_manifest(path: Path, data: bytes) -> Manifest:
    """Read the text of a manifest and check it; `path` is only for error messages."""
    try:
        if _count_values(data) > MAX_MANIFEST_VALUES:
            raise ValueError("it has too many values")
        text = data.decode()
        content = read_json(text)
        whole = "checksum" in content and _canonical(content) == text
    except (ValueError, TypeError, RecursionError) as error:
        message = f"{path} is truncated, altered or not a manifest."
        raise DamagedFileError(message) from error
    if not whole:
        raise DamagedFileError(f"{path} is altered or not a manifest (wrong checksum).")
    version = content.get("format")
    if type(version) is int and version > FORMAT:
        raise ValueError(
            f"{path} has format {version}; this version of orac reads formats up to {FORMAT}. "
            "Install the newer orac that wrote it."
        )
    try:
        return _parse_manifest(content)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a manifest of a checkpoint.") from error


def _parse_manifest(content: dict[str, Any]) -> Manifest:
    """Check every field of a manifest and return it.

    A correct checksum is not enough, because somebody may have forged it, and file names are
    built from the fields.
    """

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
            Segment(count(first), count(last), digest(file_digest))
            for first, last, file_digest in replay["segments"]
        ]
        sizes = count(replay["capacity"]), count(replay["inserted"])
        replay = SavedReplay(*sizes, segments)
    elif replay not in (None, NOT_SAVED):
        raise ValueError("not a replay")
    step, state_digest = count(content["step"]), digest(content["state_digest"])
    return Manifest(step, state_digest, replay, dict(content["extra"]))


class LoadedCheckpoint(NamedTuple):
    """A loaded checkpoint."""

    step: int
    state: PyTree
    replay: Any
    extra: dict[str, Any]
    warnings: tuple[str, ...]
    """Sentences for the user."""
    state_digest: str = ""
    """Digest of the file with everything except the replay."""


class Checkpoints:
    """The checkpoints of one run. The lock of the run directory excludes other writers."""

    def __init__(self, directory: Path, include_replay: bool = True) -> None:
        """Save and load checkpoints in `directory`.

        A save leaves the replay out unless `include_replay` is True.
        """
        self.directory, self.include_replay = directory, include_replay
        self.state_digest: str | None = None
        """Digest of the state that was last saved or loaded here, or None."""
        self._current: int | None = None
        self._segments: list[Segment] = []

    def steps(self) -> list[int]:
        """Return the steps that have a manifest, damaged or not, oldest first."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        found = (re.fullmatch(r"step-(\d{12})\.json", name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def newest(self) -> Manifest | None:
        """Return the newest manifest that is intact and whose state exists, or None.

        The state is not read, so it may be damaged.
        """
        manifests = map(self._try_manifest, reversed(self.steps()))
        exist = (
            m for m in manifests if m and (self.directory / m.state_name).is_file()
        )
        return next(exist, None)

    def save(
        self,
        step: int,
        state: PyTree,
        replay: Replay | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Path:
        """Save a checkpoint and delete all but the newest `KEEP` intact checkpoints.

        `extra` must be JSON-serialisable. Saving the same step again replaces its
        checkpoint. Returns the path of the manifest. A failure leaves the earlier
        checkpoints unchanged.
        """
        if self._current is None and self.steps():
            raise ValueError(
                f"{shown_path(self.directory)} already contains checkpoints (newest: step "
                f"{self.steps()[-1]}). Resume that run, or start in another directory."
            )
        newest = self._current or 0
        if not 0 <= step < 10**12 or newest > step:
            raise ValueError(
                f"the step of a checkpoint must not decrease, got step {step} after {newest}."
            )
        make_directory(self.directory / "replay")
        saved = None if replay is None else NOT_SAVED
        unnamed = self.directory / f"{TEMPORARY}state.arrays"
        try:
            if replay is not None and self.include_replay:
                folder = self.directory / "replay"
                capacity = capacity_of(replay.storage)
                segments = save_segments(folder, replay, self._segments)
                saved = SavedReplay(capacity, int(replay.inserted), segments)
            manifest = Manifest(step, save_arrays(unnamed, state), saved, extra or {})
            with disk_errors(self.directory, "write"):
                os.replace(unnamed, self.directory / manifest.state_name)
            sync_directory(self.directory)
            write_text(self._manifest_path(step), encode_manifest(manifest))
        except BaseException:
            # The files of the failed attempt are deleted, because the disk may be full.
            with suppress(OSError):
                self._delete_unused()
            raise
        self._current, self._segments = step, manifest.segments
        self.state_digest = manifest.state_digest
        self._prune(step)
        return self._manifest_path(step)

    def newest_checkpoint(self) -> str:
        """Return a sentence about the newest checkpoint, for an error that stops the run."""
        steps = self.steps()
        if not steps:
            return f"{shown_path(self.directory.parent)} has no checkpoint yet."
        return (
            f"The newest checkpoint, of step {steps[-1]:,}, is in "
            f"{shown_path(self.directory)}. When the cause is mended, continue from it: orac "
            f"resume {shown_path(self.directory.parent)}"
        )

    def load_latest(
        self,
        template: PyTree,
        replay_template: Any = None,
        check: Callable[[PyTree], None] | None = None,
        part: bool = False,
    ) -> LoadedCheckpoint | None:
        """Load the newest undamaged checkpoint; return None if there is no checkpoint.

        Templates give structure, shapes and dtypes (see `load_arrays`). Without
        `replay_template`, the replay is not read. With `part`, the template may lack some
        arrays of the checkpoint. A damaged checkpoint is skipped with a warning, and so is
        a checkpoint whose state `check` rejects with a `DamagedFileError`. A checkpoint that
        does not fit the templates, or that a newer version wrote, raises an error, because
        falling back to an older checkpoint would hide the mistake. If all checkpoints are
        damaged, a `DamagedFileError` is raised.
        """
        skipped: list[str] = []
        for step in reversed(self.steps()):
            try:
                manifest = self._read_manifest(step)
                loaded = self._load(manifest, template, replay_template, part)
                if check is not None:
                    check(loaded.state)
            except (DamagedFileError, DiskError) as error:
                skipped.append(f"The checkpoint of step {step} is damaged: {error}")
                continue
            if skipped:
                skipped.append(f"The checkpoint of step {step} is used instead.")
            self._current, self._segments = step, manifest.segments
            self.state_digest = manifest.state_digest
            return loaded._replace(warnings=(*skipped, *loaded.warnings))
        if skipped:
            raise DamagedFileError(
                f"Every checkpoint in {shown_path(self.directory)} is damaged. {' '.join(skipped)}"
            )
        self._current = -1
        return None

    def _load(
        self, manifest: Manifest, template: PyTree, replay_like: Any, part: bool
    ) -> LoadedCheckpoint:
        path = self.directory / manifest.state_name
        state = load_arrays(path, template, manifest.state_digest, part)
        replay, saved = None, manifest.replay
        if replay_like is not None and isinstance(saved, SavedReplay):
            replay = load_replay(self.directory / "replay", replay_like, saved)
        elif replay_like is not None:
            replay, saved = empty_replay(replay_like), NOT_SAVED
        warning = (
            f"The checkpoint of step {manifest.step} was saved without its replay: training "
            "continues with an empty replay, and its results will differ from those of an "
            "uninterrupted run."
        )
        warnings = (warning,) if saved == NOT_SAVED else ()
        return LoadedCheckpoint(
            *(manifest.step, state, replay, manifest.extra, warnings),
            manifest.state_digest,
        )

    def _manifest_path(self, step: int) -> Path:
        return self.directory / f"step-{step:012d}.json"

    def _read_manifest(self, step: int) -> Manifest:
        path = self._manifest_path(step)
        with disk_errors(path, "read"):
            data = read_limited(path, MAX_MANIFEST_BYTES)
        manifest = decode_manifest(path, data)
        if manifest.step != step:
            raise DamagedFileError(f"{path} is the manifest of step {manifest.step}.")
        return manifest

    def _prune(self, newest: int) -> None:
        """Delete all checkpoints except the last `KEEP` intact ones up to step `newest`."""
        num_kept = 0
        for step in reversed(self.steps()):
            wanted = step <= newest and num_kept < KEEP
            if wanted and self._try_manifest(step) is not None:
                num_kept += 1
                continue
            # The manifest is deleted first, so that no manifest lists a missing file.
            with disk_errors(self.directory, "delete an old checkpoint in"):
                self._manifest_path(step).unlink()
        self._delete_unused()

    def _delete_unused(self) -> None:
        """Delete unfinished files, and checkpoint files that no manifest lists."""
        needed: set[str] = set()
        for manifest in filter(None, map(self._try_manifest, self.steps())):
            needed.add(manifest.state_name)
            needed.update(segment.name for segment in manifest.segments)
        with disk_errors(self.directory, "delete left-over files in"):
            for directory in (self.directory, self.directory / "replay"):
                for name in os.listdir(directory) if directory.is_dir() else []:
                    unused = CHECKPOINT_FILE.fullmatch(name) and name not in needed
                    if unused or name.startswith(TEMPORARY):
                        (directory / name).unlink()

    def _try_manifest(self, step: int) -> Manifest | None:
        try:
            return self._read_manifest(step)
        except (ValueError, DiskError):
            return None
