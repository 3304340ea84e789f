"""A run's directory: what lies where, and that one process at a time writes there.

`runs/<env>/<algo>/<name>/seed-000/` holds config.yaml, meta.json, metrics.csv,
timings.csv, episodes.csv, evaluations.csv, tensorboard/ and checkpoints/. Wall-clock
times go to timings.csv alone, so that the others are reproducible to the byte. This
room does not know what the columns mean.
"""

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from orac.runs.atomic_io import disk_errors, make_directory, write_all, write_text
from orac.runs.checkpoint import Checkpoints
from orac.runs.loggers import CsvLog, cut_file
from orac.runs.machine import describe_machine, machine_differences

LOGS = ("metrics", "timings", "episodes", "evaluations")

_locks: set[int] = set()


def _drop_locks() -> None:
    # A forked worker shares the lock's file: it would keep a killed run locked.
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_drop_locks)


class RunInUse(RuntimeError):
    """Another process is writing to this run."""


class RunDirectory:
    """One run on disk, locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        """Lock `path`, which must exist; `create` and `open` are the usual ways in."""
        self.path = path
        self._logs: dict[str, CsvLog] = {}
        self._lock = _acquire_lock(path)

    @classmethod
    def create(
        cls,
        root: str | os.PathLike[str],
        env_id: str,
        algo: str,
        seed: int,
        config: Mapping[str, Any],
        name: str = "default",
    ) -> "RunDirectory":
        """Start a run; a directory that holds one already is refused."""
        if name != safe_name(name):
            # Made safe in silence, two names could mean one directory.
            raise ValueError(
                "the name of a run must be letters, digits and . _ + = -, got "
                f"{name!r}. Try {safe_name(name)!r}."
            )
        path = run_path(root, env_id, algo, seed, name)
        make_directory(path)
        run = cls(path)
        try:
            if (path / "config.yaml").exists():
                raise FileExistsError(
                    f"{path} already holds a run. Continue it with `orac resume {path}`, "
                    "or choose another name, seed or --out."
                )
            meta = json.dumps(describe_machine(), indent=2) + "\n"
            write_text(path / "meta.json", meta)
            # Last: a directory is a run once it has its config.
            write_text(
                path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False)
            )
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        """Open the directory of a run that was started before."""
        read_config(path)
        return cls(Path(path))

    def config(self) -> dict[str, Any]:
        return read_config(self.path)

    def note_commit(self) -> None:
        """Let meta.json say that other code goes on with the run than was last at it."""
        meta = read_meta(self.path)
        now = describe_machine()["commit"]
        later = meta.get("resumed_at_commits", [])
        if now != [meta.get("commit"), *later][-1]:
            meta["resumed_at_commits"] = [*later, now]
            write_text(self.path / "meta.json", json.dumps(meta, indent=2) + "\n")

    def machine_differences(self) -> list[str]:
        """Sentences on how this machine differs from the one that started the run."""
        return machine_differences(read_meta(self.path), describe_machine())

    def checkpoints(self, keep: int = 2, include_replay: bool = True) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", keep, include_replay)

    def log(self, name: str, columns: Iterable[str]) -> CsvLog:
        """Open one of the four CSV files; the run closes it."""
        if name not in LOGS:
            raise ValueError(f"A run has the logs {', '.join(LOGS)}; got {name!r}.")
        if name in self._logs:
            raise ValueError(
                f"{name}.csv is open already; use the log it was given as."
            )
        self._logs[name] = CsvLog(self._log_path(name), columns)
        return self._logs[name]

    def log_sizes(self) -> dict[str, int]:
        """Flush the logs; the sizes of all four, for a checkpoint's `extra`."""
        sizes = {}
        for name in LOGS:
            path, log = self._log_path(name), self._logs.get(name)
            on_disk = path.stat().st_size if path.exists() else 0
            sizes[name] = log.size() if log else on_disk
        return sizes

    def cut_logs(self, sizes: Mapping[str, int]) -> None:
        """Go back to the sizes of a checkpoint; logs that it does not name are emptied."""
        for name in LOGS:
            size = sizes.get(name, 0)
            if name in self._logs:
                self._logs[name].truncate(size)
            else:
                cut_file(self._log_path(name), size)

    def close(self) -> None:
        """Close the logs and give the lock back; closing twice is fine."""
        try:
            for log in self._logs.values():
                log.close()
        finally:
            if self._lock >= 0:
                _locks.discard(self._lock)
                os.close(self._lock)
                self._lock = -1

    def _log_path(self, name: str) -> Path:
        return self.path / f"{name}.csv"

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_path(
    root: str | os.PathLike[str], env_id: str, algo: str, seed: int, name: str
) -> Path:
    """Where a run lives: `<root>/<env>/<algo>/<name>/seed-000`."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}.")
    parts = (safe_name(part) for part in (env_id, algo, name))
    return Path(root).joinpath(*parts, f"seed-{seed:03d}")


def safe_name(text: str) -> str:
    """One path component for any id: `ALE/Pong-v5` becomes `ALE-Pong-v5`."""
    safe = re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip(".-")
    if not safe:
        raise ValueError(
            f"A name needs letters or digits to be a directory, got {text!r}."
        )
    return safe


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The config of a run, without locking it."""
    file = Path(path) / "config.yaml"
    if not file.is_file():
        raise FileNotFoundError(
            f"{path} is no run: it has no config.yaml. A run's directory looks like "
            "runs/<env>/<algo>/<name>/seed-000."
        )
    return _parse(file, yaml.safe_load)


def read_meta(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the run was started on."""
    return _parse(Path(path) / "meta.json", json.loads)


def _parse(file: Path, parse: Any) -> dict[str, Any]:
    with disk_errors(file, "read"):
        data = file.read_bytes()
    try:
        content = parse(data.decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read: {error}. Restore it.") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{file} must hold named values, found {type(content).__name__}."
        )
    return content


def _acquire_lock(path: Path) -> int:
    """Hold `<run>/lock` until closed; the kernel lets go of it however a process ends."""
    file = path / "lock"
    with disk_errors(file, "write"):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            write_all(
                descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode()
            )
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise RunInUse(
                f"{path} is in use by {holder or 'another process'}: two processes must "
                "not write to one run. Wait until it ends, or choose another name."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
    _locks.add(descriptor)
    return descriptor
