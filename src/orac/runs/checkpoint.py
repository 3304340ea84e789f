"""Checkpoints of a run: whole, checked, and as cheap late in the run as early.

`checkpoints/` holds, for each kept step, `step-<step>.json` (the manifest) and
`step-<step>-<digest>.arrays` (everything but the replay), and in `replay/` the
segments they share. The manifest names every file with its digest and is renamed into
place last: a checkpoint exists when its manifest does. Whatever no manifest names is
left over from a crash and goes at the next save. This room does not know what a state
means.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from orac.runs.arrays import PyTree, load_arrays, save_arrays
from orac.runs.atomic_io import (
    TEMPORARY,
    Damaged,
    DiskError,
    disk_errors,
    make_directory,
    sync_directory,
    write_text,
)
from orac.runs.manifest import LEFT_OUT, Manifest, decode_manifest, encode_manifest
from orac.runs.replay_segments import (
    Ring,
    SavedRing,
    Segment,
    capacity_of,
    empty_ring,
    load_ring,
    save_segments,
)

OURS = re.compile(r"(step-\d{12}-[0-9a-f]{16}|segment-\d{12}-\d{12})\.arrays")


class Loaded(NamedTuple):
    """A checkpoint read back. `warnings` are whole sentences for the person."""

    step: int
    state: PyTree
    replay: Any
    extra: dict[str, Any]
    exact: bool
    """Whether a run that goes on from here ends as if it had never stopped."""
    warnings: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run; the run directory's lock keeps others out."""

    def __init__(
        self, directory: Path, keep: int = 2, include_replay: bool = True
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        self.directory = directory
        self.keep = keep
        self.include_replay = include_replay
        self._current: int | None = None
        self._segments: list[Segment] = []

    def steps(self) -> list[int]:
        """The steps that have a manifest, good or not, oldest first."""
        found = [
            re.fullmatch(r"step-(\d{12})\.json", name)
            for name in _names(self.directory)
        ]
        return sorted(int(match[1]) for match in found if match)

    def save(
        self,
        step: int,
        state: PyTree,
        replay: Ring | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Path:
        """Make `step` the newest checkpoint and drop the ones beyond `keep`.

        `extra` is anything JSON holds. Saving the same step again replaces it. Returns
        the manifest's path. When it fails, the earlier checkpoints are as they were.
        """
        self._check_order(step)
        make_directory(self.directory / "replay")
        try:
            manifest = self._write(step, state, replay, extra or {})
        except BaseException:
            # On a full disk every byte counts, and nobody will miss these.
            with suppress(OSError):
                self._sweep()
            raise
        self._current, self._segments = step, manifest.segments
        self._prune(step)
        return self._manifest_path(step)

    def _write(
        self, step: int, state: PyTree, replay: Ring | None, extra: dict[str, Any]
    ) -> Manifest:
        saved: SavedRing | str | None = None
        if replay is not None:
            saved = LEFT_OUT
            if self.include_replay:
                segments = save_segments(
                    self.directory / "replay", replay, self._segments
                )
                capacity = capacity_of(replay.storage)
                saved = SavedRing(capacity, int(replay.inserted), segments)
        unnamed = self.directory / f"{TEMPORARY}state.arrays"
        manifest = Manifest(step, save_arrays(unnamed, state), saved, extra)
        with disk_errors(self.directory, "write"):
            os.replace(unnamed, self.directory / manifest.state_name)
        sync_directory(self.directory)
        write_text(self._manifest_path(step), encode_manifest(manifest))
        return manifest

    def load_latest(
        self, template: PyTree, replay_template: Any = None
    ) -> Loaded | None:
        """The newest checkpoint that is whole, or None when none was ever saved.

        Templates give structure, shapes and dtypes (see `load_arrays`). Without
        `replay_template` the replay is not read. A damaged checkpoint is passed over
        with a warning; one that does not fit the templates, or was written by a newer
        version, is an error, as an older one would only hide it.
        """
        refusals: list[str] = []
        for step in reversed(self.steps()):
            try:
                manifest = self._read_manifest(step)
                loaded = self._load(manifest, template, replay_template)
            except (Damaged, DiskError) as error:
                refusals.append(f"The checkpoint of step {step} was refused: {error}")
                continue
            if refusals:
                refusals.append(f"Going on from the checkpoint of step {step}.")
            self._current, self._segments = step, manifest.segments
            return loaded._replace(warnings=(*refusals, *loaded.warnings))
        if refusals:
            raise Damaged(
                f"No checkpoint in {self.directory} is whole. {' '.join(refusals)}"
            )
        self._current = -1
        return None

    def _load(
        self, manifest: Manifest, template: PyTree, replay_template: Any
    ) -> Loaded:
        path = self.directory / manifest.state_name
        state = load_arrays(path, template, manifest.state_digest)
        replay, saved = None, manifest.replay
        if replay_template is not None and isinstance(saved, SavedRing):
            replay = load_ring(self.directory / "replay", replay_template, saved)
        elif replay_template is not None:
            replay, saved = empty_ring(replay_template), LEFT_OUT
        exact = saved != LEFT_OUT
        warning = (
            f"The checkpoint of step {manifest.step} was saved without its replay: the "
            "run goes on with an empty one, so not exactly as it would have."
        )
        warnings = () if exact else (warning,)
        return Loaded(manifest.step, state, replay, manifest.extra, exact, warnings)

    def _check_order(self, step: int) -> None:
        if self._current is None and self.steps():
            raise ValueError(
                f"{self.directory} already holds a run's checkpoints, the newest of "
                f"step {self.steps()[-1]}. Resume that run, or start in another directory."
            )
        if not 0 <= step < 10**12 or (self._current or 0) > step:
            raise ValueError(
                f"Checkpoints go forward: got step {step} after {self._current or 0}."
            )

    def _manifest_path(self, step: int) -> Path:
        return self.directory / f"step-{step:012d}.json"

    def _read_manifest(self, step: int) -> Manifest:
        path = self._manifest_path(step)
        with disk_errors(path, "read"):
            data = path.read_bytes()
        manifest = decode_manifest(path, data)
        if manifest.step != step:
            raise Damaged(f"{path} is the manifest of step {manifest.step}.")
        return manifest

    def _prune(self, newest: int) -> None:
        """Drop what is beyond `keep`, and what is newer: a future that was left."""
        good = 0
        for step in reversed(self.steps()):
            wanted = step <= newest and good < self.keep
            if wanted and self._try_manifest(step) is not None:
                good += 1
                continue
            # The manifest goes before its files: one that is there must have them.
            with disk_errors(self.directory, "delete an old checkpoint in"):
                self._manifest_path(step).unlink()
        self._sweep()

    def _sweep(self) -> None:
        """Delete unfinished files and those that no manifest names."""
        needed: set[str] = set()
        for manifest in filter(None, map(self._try_manifest, self.steps())):
            needed.add(manifest.state_name)
            needed.update(segment.name for segment in manifest.segments)
        with disk_errors(self.directory, "delete left-over files in"):
            for directory in (self.directory, self.directory / "replay"):
                for name in _names(directory):
                    unnamed = OURS.fullmatch(name) and name not in needed
                    if unnamed or name.startswith(TEMPORARY):
                        (directory / name).unlink()

    def _try_manifest(self, step: int) -> Manifest | None:
        try:
            return self._read_manifest(step)
        except (ValueError, DiskError):
            return None


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []
