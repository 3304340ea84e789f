"""The directory of a run: its layout, its config and a lock for one writer at a time.

`runs/<env>/<algo>/<name>/seed-000/` holds config.yaml, meta.json, metrics.csv,
timings.csv, episodes.csv, evaluations.csv, delivered.json, tensorboard/, checkpoints/ and
lock, and certificate.json after `orac certify`. Only timings.csv and tensorboard/ contain
wall-clock times. So a repeated run writes the same bytes to the other CSV files, the
checkpoints, delivered.json and certificate.json, if the machine, the packages and the number
of threads are the same and the environment depends only on its seed.
`training/run_logger.py` writes the rows of the logs.
"""

import hashlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from orac.config.reading import read_json, read_limited
from orac.config.schema import Config
from orac.config.serialization import read_yaml, to_dict, write_yaml
from orac.config.validation import (
    FLOAT32_MAX,
    check_choice,
    check_count,
    is_number,
    shown,
)
from orac.evaluation.cvar_bounds import cvar_upper_bound, name_of_risk
from orac.evaluation.episodes import cost_noun
from orac.runs.atomic_io import (
    AnyPath,
    disk_errors,
    make_directory,
    open_to_write,
    shown_path,
    try_lock,
    write_all,
    write_text,
)
from orac.runs.checkpoint import Checkpoints
from orac.runs.csv_log import CsvLog, truncate_file
from orac.runs.machine import describe_machine, machine_differences

LOGS = ("metrics", "timings", "episodes", "evaluations")

MAX_TEXT_BYTES = 1 << 20
"""Maximum size of config.yaml and of each JSON file."""
MAX_NAME = 200
"""Maximum number of characters in the name of a run. File systems allow 255 bytes."""
RUN_DEPTH = 4
"""Number of folders from the root of the runs to the directory of a run, see `run_path`."""
MAX_FOLDERS, MAX_ENTRIES, MAX_SUGGESTIONS = 200, 1000, 3
"""Maximum number of folders to search for runs, of entries of each, and of runs to suggest."""
CERTIFICATE_FIELDS = (
    *("certified", "confidence", "max_looks", "looks", "env", "step", "trained_steps"),
    *("seed", "config", "state_digest"),
)
"""Fields that certificate.json must have to be used."""
MIN_CONFIDENCE = 0.5
"""Minimum confidence of a certificate that is used."""
MAX_COMPARED = 100_000
"""The bound of a certificate with more episodes than this is not compared with the lowest
possible one, because that would take more than a tenth of a second."""
LOCK_TIMEOUT = 10.0
"""Seconds to wait for a lock that a forked process still holds after its parent exited."""

_locks: set[int] = set()


def _drop_locks() -> None:
    # A forked worker inherits the locks. If it outlived a killed run, the run would stay
    # locked.
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_drop_locks)


class RunInUse(RuntimeError):
    """Another process is writing to this run."""


class RunDirectory:
    """The directory of one run, locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        """Lock an existing directory. Use `create` or `open` instead.

        The path of a run is absolute, because an environment may change the working
        directory.
        """
        path = path.absolute()
        refuse_links(path)
        self.path = path
        self._logs: dict[str, CsvLog] = {}
        self._lock = acquire_lock(path)

    @classmethod
    def create(
        cls,
        root: AnyPath,
        env_id: str,
        algo: str,
        seed: int,
        config: Mapping[str, Any],
        name: str = "default",
        meta: Mapping[str, Any] | None = None,
    ) -> "RunDirectory":
        """Create the directory of a new run. It must not already hold a run.

        `meta` is written to meta.json, in addition to the description of the machine.
        """
        check_run_name(name)
        path = run_path(root, env_id, algo, seed, name).absolute()
        make_directory(path)
        run = cls(path)
        try:
            if (path / "config.yaml").exists():
                raise FileExistsError(
                    f"{shown_path(path)} already holds a run. Choose another name, seed or "
                    "folder for a new one."
                )
            write_meta(path, {**describe_machine(), **(meta or {})})
            # The config is written last, because a directory with a config is a run.
            text = write_yaml(dict(config))
            write_text(path / "config.yaml", text)
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: AnyPath) -> "RunDirectory":
        """Open the directory of an existing run."""
        read_config(path)
        return cls(Path(path))

    def note_commit(self) -> None:
        """Add the commit of this code to meta.json if it differs from the last one there."""
        meta = read_meta(self.path)
        commit = describe_machine()["commit"]
        later = self._list_in(meta, "resumed_at_commits")
        if commit != [meta.get("commit"), *later][-1]:
            write_meta(self.path, {**meta, "resumed_at_commits": [*later, commit]})

    def extend(self, config: Mapping[str, Any], step: int, total_steps: int) -> None:
        """Replace the config when a run is trained further, and note this in meta.json."""
        meta = read_meta(self.path)
        entry = {"at_step": step, "total_steps": total_steps}
        extended = [*self._list_in(meta, "extended"), entry]
        write_meta(self.path, {**meta, "extended": extended})
        write_text(self.path / "config.yaml", write_yaml(dict(config)))

    def _list_in(self, meta: Mapping[str, Any], name: str) -> list[Any]:
        """Return the list `name` in meta.json, or an empty list if meta.json lacks it."""
        entries = meta.get(name, [])
        if not isinstance(entries, list):
            raise ValueError(
                f"{name} in {shown_path(self.path / 'meta.json')} must be a list, got "
                f"{shown(entries)}. Restore the file from a backup."
            )
        return entries

    def drop_certificate(self, step: int) -> list[str]:
        """Delete certificate.json if the run goes back to `step`, before it was made.

        The steps after `step` are trained again, so the certified policy may be replaced by
        another one of the same step. Returns sentences for the user.
        """
        try:
            at = (read_certificate(self.path) or {}).get("trained_steps")
        except ValueError:
            return []
        if type(at) is not int or at <= step:
            return []
        file = self.path / "certificate.json"
        with disk_errors(file, "delete"):
            file.unlink()
        return [
            f"{shown_path(file)} was deleted, because it was made at step {at:,} and the run "
            f"goes back to step {step:,}."
        ]

    def machine_differences(self) -> list[str]:
        """Return one sentence per difference from the machine that started the run."""
        return machine_differences(read_meta(self.path), describe_machine())

    def checkpoints(self, include_replay: bool = True) -> Checkpoints:
        """Return the checkpoints of this run. A save deletes all but the newest two intact ones."""
        return Checkpoints(self.path / "checkpoints", include_replay=include_replay)

    def log(self, name: str, columns: Iterable[str]) -> CsvLog:
        """Open one of the CSV files in `LOGS`. It stays open until `close` is called."""
        check_choice("the log of a run", name, LOGS)
        if name in self._logs:
            raise ValueError(f"{name}.csv is already open. Use that log.")
        self._logs[name] = CsvLog(self._log_path(name), columns)
        return self._logs[name]

    def log_sizes(self) -> dict[str, int]:
        """Flush the logs and return the size of each, for a checkpoint's `extra`."""
        sizes = {}
        for name in LOGS:
            path, log = self._log_path(name), self._logs.get(name)
            on_disk = path.stat().st_size if path.exists() else 0
            sizes[name] = log.size() if log else on_disk
        return sizes

    def truncate_logs(self, sizes: Mapping[str, int]) -> None:
        """Truncate the logs to the sizes in a checkpoint, and to 0 if a size is missing."""
        if self._logs:
            raise ValueError("Truncate the logs of a run before you open one.")
        for name in LOGS:
            truncate_file(self._log_path(name), sizes.get(name, 0))

    def close(self) -> None:
        """Close the logs and release the lock. Closing twice has no effect."""
        try:
            for log in self._logs.values():
                log.close()
        finally:
            if self._lock >= 0:
                release_lock(self._lock)
                self._lock = -1

    def _log_path(self, name: str) -> Path:
        return self.path / f"{name}.csv"

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_links(path: Path) -> None:
    """Raise an error if the directory of a run or a study contains a symbolic link.

    The checkpoints of a run are checked too. The run or the study would write to the target
    of such a link. The directory itself may be a link, because the user chose it.
    """
    for folder in (path, path / "checkpoints", path / "checkpoints" / "replay"):
        with disk_errors(folder, "read"):
            names = os.listdir(folder) if folder.is_dir() else []
        for name in names:
            if (folder / name).is_symlink():
                raise ValueError(
                    f"{shown_path(folder / name)} must not be a symbolic link: orac writes "
                    "only inside the directory of a run or a study. Delete the link, or copy "
                    "the file here."
                )


def evaluation_path(out: Path, config: Config, name: str = "default") -> Path:
    """Return the directory for an evaluation, or raise an error if it is already used."""
    path = run_path(out, config.env.id, config.algo, config.seed, name)
    if (path / "config.yaml").exists():
        raise FileExistsError(
            f"{path} already holds a run or an evaluation. Choose another --out, or "
            "other --seeds."
        )
    return path


def save_evaluation(
    out: Path,
    config: Config,
    rows: Sequence[Mapping[str, float]],
    evaluated: Mapping[str, Any],
    name: str = "default",
) -> Path:
    """Save an evaluation as a run directory, so that reports can compare it with runs.

    `rows` is the result of `Episodes.rows`. `evaluated` is recorded in meta.json and names
    the policy: `{"rule": name}` for a baseline, or `{"run": path, "env_steps": step}` for a
    trained one. Returns the path of the directory.
    """
    path = evaluation_path(out, config, name)
    with RunDirectory.create(
        out, config.env.id, config.algo, config.seed, to_dict(config), name
    ) as run:
        write_meta(path, {**read_meta(path), "evaluated": dict(evaluated)})
        log = run.log("evaluations", ["env_steps", *rows[0]])
        for row in rows:
            log.append({"env_steps": int(evaluated.get("env_steps", 0)), **row})
    return path


def run_path(root: AnyPath, env_id: str, algo: str, seed: int, name: str) -> Path:
    """Return the directory of a run: `<root>/<env>/<algo>/<name>/seed-<seed>`."""
    check_count("seed", seed, 0)
    parts = (safe_name(part) for part in (env_id, algo, name))
    return Path(root).joinpath(*parts, f"seed-{seed:03d}")


def check_run_name(name: Any, what: str = "the name of a run") -> None:
    """Raise an error for a name that cannot be the name of a directory."""
    if not isinstance(name, str):
        raise ValueError(f"{what} must be a string, got {shown(name)}.")
    if name != safe_name(name):
        # If names were changed silently, two of them could give the same directory.
        raise ValueError(
            f"{what} must be letters, digits and . _ + = -, got {name!r}. Try "
            f"{safe_name(name)!r}."
        )
    if len(name) > MAX_NAME:
        raise ValueError(
            f"{what} must have at most {MAX_NAME} characters, got {len(name)}."
        )


def safe_name(text: str) -> str:
    """Turn an id into one path component: `ALE/Pong-v5` becomes `ALE-Pong-v5`."""
    safe = re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip(".-")
    if not safe:
        raise ValueError(f"A directory's name needs letters or digits, got {text!r}.")
    return safe


def read_config(path: AnyPath) -> dict[str, Any]:
    """Read the config of a run without locking the run."""
    file = Path(path) / "config.yaml"
    if not file.is_file():
        raise FileNotFoundError(
            f"{path} is not a run directory: it has no config.yaml.{runs_below(path)}"
        )
    return _read_mapping(file, lambda text: read_yaml(text, "it"))


def runs_below(path: AnyPath) -> str:
    """Suggest the runs in the folders below `path`, or say what the path of a run looks like.

    At most `MAX_FOLDERS` folders are searched. Symbolic links are not followed.
    """
    root = Path(path)
    found: list[Path] = []
    folders = [root] if root.is_dir() else []
    for _ in range(MAX_FOLDERS):
        if not folders or len(found) > MAX_SUGGESTIONS:
            break
        folder = folders.pop(0)
        try:
            names = sorted(islice(folder.iterdir(), MAX_ENTRIES))
            below = [x for x in names if x.is_dir() and not x.is_symlink()]
            found += [x for x in below if (x / "config.yaml").is_file()]
        except OSError:
            continue
        if len(folder.relative_to(root).parts) < RUN_DEPTH:
            folders += [x for x in below if x not in found]
    if not found:
        return " A run's directory looks like runs/<env>/<algo>/<name>/seed-000."
    more = " or another run there" if len(found) > MAX_SUGGESTIONS else ""
    names = " or ".join(map(str, found[:MAX_SUGGESTIONS]))
    return f" Did you mean {names}{more}?"


def read_meta(path: AnyPath) -> dict[str, Any]:
    """Read meta.json, which describes how and on which machine the run was started."""
    return _read_mapping(Path(path) / "meta.json", read_json)


def read_certificate(path: AnyPath) -> dict[str, Any] | None:
    """Read certificate.json, which `orac certify` writes. Returns None if it is missing."""
    file = Path(path) / "certificate.json"
    if not file.is_file():
        return None
    return _read_mapping(file, read_json, "Delete it, and certify the run again.")


def valid_certificate(path: AnyPath) -> dict[str, Any] | None:
    """Read certificate.json. Returns None if it is missing or no longer fits the run."""
    record = read_certificate(path)
    return None if record is None or certificate_problem(path) else record


def certificate_problem(path: AnyPath) -> str:
    """Return the reason why certificate.json does not fit the run, or "" if it fits.

    The reason is also "" if the file is missing. The file may have been copied from another
    run or edited, or the run may have changed after it was written. A file that lacks a field
    is not used, because what it lacks cannot be compared. A run without checkpoints may have
    been published without them, so its certificate fits.
    """
    record = read_certificate(path)
    if record is None:
        return ""
    file = shown_path(Path(path) / "certificate.json")
    again = "Certify the run again, with orac certify or agent.certify()."
    if lacking := [name for name in CERTIFICATE_FIELDS if name not in record]:
        return (
            f"{file} is ignored, because it lacks the field {lacking[0]}, which this version "
            f"of orac writes. {again}"
        )
    config = read_config(path)
    env, checkpoints = config.get("env"), Checkpoints(Path(path) / "checkpoints")
    expected = {
        "config": config_checksum(path),
        "env": env.get("id") if isinstance(env, dict) else None,
        "seed": config.get("seed"),
    }
    if any(record[name] != value for name, value in expected.items()):
        return (
            f"{file} is ignored, because it is about a run with another config. {again}"
        )
    newest, at = checkpoints.newest(), record["trained_steps"]
    if newest is None and checkpoints.steps():
        return f"{file} is ignored, because every checkpoint of the run is damaged."
    if newest and at != newest.step:
        return (
            f"{file} is ignored, because it was made when the run had {at} steps, and now "
            f"it has {newest.step}. {again}"
        )
    if newest and record["state_digest"] != newest.state_digest:
        return (
            f"{file} is ignored, because it is about other policies: after it was made, "
            f"steps of the run were trained again. {again}"
        )
    if record["certified"] is False:
        return ""
    try:
        constraints = config["constraints"]
        limits = [constraint["limit"] for constraint in constraints]
        bounds = record["looks"][-1]["bounds"]
        uppers = [bound["upper"] for bound in bounds]
        within = len(uppers) == len(limits) and all(
            is_number(upper) and 0 <= upper <= limit
            for upper, limit in zip(uppers, limits, strict=True)
        )
        written = within and _is_as_written(record, constraints)
        evaluated = written and _was_evaluated(record["step"], at, Path(path))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        within = written = evaluated = False
    if not within:
        return (
            f"{file} is ignored, because its bounds are not within the limits of "
            f"{shown_path(Path(path) / 'config.yaml')}. {again}"
        )
    if written and record["confidence"] < MIN_CONFIDENCE:
        return f"{file} is ignored, because its confidence is below {MIN_CONFIDENCE}. {again}"
    if written and not evaluated:
        return (
            f"{file} is ignored, because it is about a policy of step {record['step']:,}, at "
            f"which the run evaluated none. {again}"
        )
    return "" if written else f"{file} is ignored, because it was edited. {again}"


def _is_as_written(
    certificate: Mapping[str, Any], constraints: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether the numbers of a certificate that claims to certify are consistent."""
    # Speed: this import takes a quarter of a second, and most runs have no certificate.
    from orac.evaluation.certification import MAX_EPISODES, MAX_LOOKS

    look, step = certificate["looks"][-1], certificate["step"]
    confidence, max_looks = certificate["confidence"], certificate["max_looks"]
    steps = certificate["trained_steps"]
    return (
        certificate["certified"] is True
        and look["certified"] is True
        and is_number(confidence)
        and 0 < confidence < 1
        and type(max_looks) is int
        and len(certificate["looks"]) <= max_looks <= MAX_LOOKS
        and type(steps) is int
        and type(step) is int
        and 0 <= step <= steps
        and type(look["episodes"]) is int
        and 1 <= look["episodes"] <= MAX_EPISODES
        and is_number(look["reward"])
        and abs(look["reward"]) <= FLOAT32_MAX
        and all(
            _is_bound_as_written(
                bound,
                constraint,
                look["episodes"],
                1 - (1 - confidence) / (max_looks * len(constraints)),
            )
            for bound, constraint in zip(look["bounds"], constraints, strict=True)
        )
    )


def _is_bound_as_written(
    bound: Mapping[str, Any],
    constraint: Mapping[str, Any],
    episodes: int,
    level: float,
) -> bool:
    """Return whether a bound is about this constraint, and its numbers are consistent.

    `level` is the confidence of one bound. No bound is lower than that of as many episodes
    without any cost.
    """
    risk, estimate, upper = (
        constraint.get("risk", "cvar"),
        bound["estimate"],
        bound["upper"],
    )
    tail = 1.0 if risk == "mean" else constraint.get("tail", 1.0)
    cost = f"episode {cost_noun(constraint.get('name', 'cost'))}"
    consistent = (
        risk in ("cvar", "mean")
        and bound["quantity"] == name_of_risk(tail, cost)
        and bound["limit"] == constraint["limit"]
        and is_number(estimate)
        and is_number(bound["cost_bound"])
        # Numerics: the bound may be rounded to float32.
        and 0 <= estimate <= upper * (1 + 1e-6)
        and upper <= bound["cost_bound"] * (1 + 1e-6)
        and is_number(bound["confidence"])
        and math.isclose(bound["confidence"], level, abs_tol=1e-9)
    )
    if not consistent or episodes > MAX_COMPARED:
        return consistent
    lowest = cvar_upper_bound(np.zeros(episodes), tail, bound["cost_bound"], level)
    return upper >= 0.99 * lowest


def _was_evaluated(step: int, trained_steps: int, path: Path) -> bool:
    """Return whether the run may have stored a policy of this step.

    It stores policies that it evaluated, and the last one. If evaluations.csv is missing, or
    if the run continues another one, the steps of its evaluations are not known.
    """
    file = path / "evaluations.csv"
    if step == trained_steps or not file.is_file() or is_continuation(path):
        return True
    with disk_errors(file, "read"), file.open(errors="replace") as rows:
        return any(row.partition(",")[0] == str(step) for row in rows)


def is_continuation(path: AnyPath) -> bool:
    """Return whether the run was started from another agent, with its stored policies.

    Then evaluations.csv does not contain the evaluations of these policies.
    """
    return "continued_from" in read_meta(path)


def config_checksum(path: AnyPath) -> str:
    """Return a checksum of a run's config, without `total_steps` and `schedule_steps`.

    These change if a run is trained further. A certificate has another field with the number
    of steps that the run had.
    """
    config = read_config(path)
    training = config.get("training")
    if isinstance(training, dict):
        steps = ("total_steps", "schedule_steps")
        config["training"] = {k: v for k, v in training.items() if k not in steps}
    text = json.dumps(config, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read_delivered(path: AnyPath) -> dict[str, Any] | None:
    """Read delivered.json, which is written with every checkpoint. None if it is missing."""
    file = Path(path) / "delivered.json"
    return _read_mapping(file, read_json) if file.is_file() else None


def write_meta(path: Path, meta: Mapping[str, Any]) -> None:
    """Replace meta.json."""
    write_text(path / "meta.json", json.dumps(meta, indent=2) + "\n")


def _read_mapping(
    file: Path, parse: Any, advice: str = "Restore it from a backup."
) -> dict[str, Any]:
    with disk_errors(file, "read"):
        data = read_limited(file, MAX_TEXT_BYTES)
    try:
        content = parse(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{shown_path(file)} cannot be read: {str(error).rstrip('.')}. {advice}"
        ) from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(
            f"{shown_path(file)} must contain a mapping, found {kind}. {advice}"
        )
    return content


def acquire_lock(path: Path) -> int:
    """Lock `<path>/lock` until `release_lock` is called with the returned descriptor.

    A forked process shares the lock until `_drop_locks` has run there, which may take a
    moment on a busy machine. So if the owner of the lock has exited, this function waits
    for up to `LOCK_TIMEOUT` seconds.
    """
    # Choice: the package filelock would replace only the few lines of `try_lock`. The code
    # that names the owner of the lock, refuses a link or a pipe with the name of the lock, and
    # closes the descriptors in forked workers would still be needed, and would have to use
    # private fields of that package.
    file = path / "lock"
    deadline = time.monotonic() + LOCK_TIMEOUT
    with disk_errors(file, "write"):
        descriptor = open_to_write(file, os.O_RDWR)
        try:
            while not try_lock(descriptor):
                owner = os.pread(descriptor, 200, 0).decode(errors="replace")
                if _is_running(owner) or time.monotonic() > deadline:
                    raise RunInUse(
                        f"{shown_path(path)} is in use by {owner or 'another process'}: "
                        "two processes must not write to one run. Wait until that "
                        "process ends, or choose another name."
                    )
                time.sleep(0.02)
            os.ftruncate(descriptor, 0)
            owner = f"process {os.getpid()} on {socket.gethostname()}"
            write_all(descriptor, owner.encode())
        except BaseException:
            os.close(descriptor)
            raise
    _locks.add(descriptor)
    return descriptor


def release_lock(descriptor: int) -> None:
    """Release a lock."""
    _locks.discard(descriptor)
    os.close(descriptor)


def _is_running(owner: str) -> bool:
    """Return False if the owner of a lock is a process on this machine that has ended.

    `owner` is the text in the lock file. If it is not known whether the owner runs, return
    True.
    """
    found = re.fullmatch(r"process (\d+) on (.*)", owner)
    if not found or found[2] != socket.gethostname():
        return True
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
