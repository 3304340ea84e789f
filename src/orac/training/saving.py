"""Save and restore the checkpoints of a run, and save and load an agent as one file.

`save_checkpoint` and `restore_checkpoint` write and read the whole training state of a run.
`save_agent` writes a zip file with the config, the sizes and units of the problem, and the
arrays of the agent and of its candidates for delivery. `load_agent` reads this file. Reading
never executes code from a file. The module `export` writes only the policy.
"""

import dataclasses
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from orac.config import serialization
from orac.config.reading import read_json
from orac.config.schema import Config
from orac.config.validation import (
    NonFiniteError,
    check_count,
    check_range,
    is_number,
    shown,
)
from orac.core import agent as agent_core
from orac.core.agent import AgentState
from orac.core.cost_models import Problem
from orac.core.risk_forms import make_learner
from orac.envs.base import EnvSpec
from orac.policy import flat_size, open_archive
from orac.runs.arrays import (
    TemplateMismatchError,
    from_json,
    load_arrays,
    save_arrays,
    to_json,
)
from orac.runs.atomic_io import (
    DamagedFileError,
    atomic_file,
    shown_path,
    write_text,
)
from orac.runs.checkpoint import Checkpoints, LoadedCheckpoint
from orac.runs.directory import RunDirectory, read_meta
from orac.training import delivery, notes
from orac.training.encoder_loading import with_encoder
from orac.training.health import first_not_finite
from orac.training.state import empty_replay, problem_for

FORMAT = 1
MAX_TEXT_BYTES = 1 << 18
"""Maximum size of config.yaml and of sizes.json in the file of an agent."""
MAX_ENV_STEPS = 2_000_000_000
"""Maximum number of steps of an agent, which the device counts in 32 bits."""
UNREADABLE = (
    *(zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError, EOFError),
    *(KeyError, TypeError, OverflowError, NotImplementedError, RuntimeError),
)
"""Errors that readers of zip, JSON and text raise if a file is damaged or of another kind."""


def save_checkpoint(
    run: RunDirectory, checkpoints: Checkpoints, step: int, runner: Any, counters: Any
) -> None:
    """Write a checkpoint and delivered.json.

    A checkpoint contains the training state, the replay (unless `training.keep_replay` is
    off), the counters, the lengths of the logs and the state of environments on the host.
    """
    state = runner.state
    extra = {
        "counters": dataclasses.asdict(counters),
        "log_sizes": run.log_sizes(),
        "host_state": to_json(runner.host_state()),
    }
    checkpoints.save(step, state._replace(replay=()), state.replay, extra)
    write_delivered(run, runner, counters)


def write_delivered(run: RunDirectory, runner: Any, counters: Any) -> None:
    """Write which policy the run delivers, and why, to delivered.json."""
    record = notes.delivery_record(runner, counters)
    write_text(run.path / "delivered.json", json.dumps(record, indent=2) + "\n")


def restore_checkpoint(
    run: RunDirectory, checkpoints: Checkpoints, runner: Any, counters: Any
) -> tuple[int | None, list[str]]:
    """Restore the newest intact checkpoint. Return its step and messages for the user.

    The logs are truncated to their length at that checkpoint. If there is no checkpoint, the
    step is None and the run starts again from its config.
    """
    loaded, messages = restore_state(checkpoints, runner, counters)
    if loaded is None:
        if "continued_from" in read_meta(run.path):
            raise ValueError(
                f"the run in {shown_path(run.path)} was started from another agent and has no "
                "checkpoint, so it cannot continue. Delete the directory and start the run "
                "again."
            )
        run.truncate_logs({})
        return None, [
            f"{shown_path(run.path)} has no checkpoint yet: the run starts again from its config.",
            *run.drop_certificate(0),
        ]
    run.truncate_logs(loaded.extra["log_sizes"])
    messages += run.drop_certificate(loaded.step)
    write_delivered(run, runner, counters)
    return loaded.step, messages


def restore_state(
    checkpoints: Checkpoints, runner: Any, counters: Any
) -> tuple[LoadedCheckpoint | None, list[str]]:
    """Restore training state, replay and counters from the newest intact checkpoint.

    Returns the checkpoint, or None if there is none, and messages for the user.
    """
    template = runner.state._replace(replay=())
    # Make only the shapes of a replay, so that there are never two replays in memory.
    problem, config = runner.learner.problem, runner.config
    replay = jax.eval_shape(lambda: empty_replay(problem, config))
    loaded = checkpoints.load_latest(template, replay, check_loaded)
    if loaded is None:
        return None, []
    messages = list(loaded.warnings)
    restored = loaded.state._replace(replay=loaded.replay)
    try:
        saved_counters = {
            field.name: checked_counter(loaded.extra["counters"], field.name, counters)
            for field in dataclasses.fields(counters)
        }
        for size in loaded.extra["log_sizes"].values():
            check_count("the size of a log", size, 0)
        host_state = from_json(loaded.extra["host_state"])
        exact = runner.restore(restored, host_state)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # The checksum is right, but it does not show that the file holds this run's state.
        raise DamagedFileError(
            f"the checkpoint of step {loaded.step} in "
            f"{shown_path(checkpoints.directory.parent)} does not contain the state of a "
            f"run: {type(error).__name__} ({error}). If you trust this run, the likely "
            "cause is a different environment: pass the one that it was trained in."
        ) from error
    if not exact:
        messages.append(
            "The environment's state could not be saved, so its episodes start again: the "
            "run continues, but its results will differ from those of an uninterrupted run."
        )
    for name, value in saved_counters.items():
        setattr(counters, name, value)
    return loaded, messages


def checked_counter(saved: Any, name: str, counters: Any) -> Any:
    """Return a counter of a checkpoint, or raise an error if its type is wrong."""
    known = getattr(counters, name)
    value = saved.get(name, known)
    kind = (int, float) if isinstance(known, int | float) else type(known)
    numbers = value if isinstance(value, list) else []
    if not isinstance(value, kind) or any(
        not isinstance(x, int | float) for x in numbers
    ):
        raise TypeError(f"{name} is {value!r}")
    return value


def check_loaded(state: Any) -> None:
    """Raise a `DamagedFileError` if a number of the agent or a candidate is not finite."""
    name = first_not_finite(state.agent) or first_not_finite(state.candidates)
    if name is not None:
        raise DamagedFileError(
            f"its {name} is not finite, so the run that wrote it had diverged."
        )


def save_agent(
    path: str | Path,
    config: Config,
    spec: EnvSpec,
    agent: AgentState,
    candidates: Any = (),
    env_steps: int = 0,
    largest_cost: Sequence[float] = (),
    task: Mapping[str, Any] | None = None,
) -> None:
    """Write an agent and its candidates for delivery to one file, without the replay.

    `largest_cost` is the counter of the training loop with this name. `task` describes the
    environment, its options and the cost function of training.
    """
    problem = problem_for(spec, config)
    sizes = {
        "format": FORMAT,
        "env_steps": env_steps,
        "largest_cost": [*largest_cost],
        "observation_size": problem.observation_size,
        "action_size": problem.action_size,
        "cost_value_limits": problem.cost_value_limits,
        "cost_units": problem.cost_units,
        "horizon_share": problem.horizon_share,
        "observation_structure": problem.observation_structure,
        "task": dict(task or {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "agent.arrays"
        save_arrays(arrays, (agent, candidates) if candidates else agent)
        packed = Path(folder) / "agent.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("config.yaml", serialization.dump(config))
            archive.writestr("sizes.json", json.dumps(sizes))
            archive.write(arrays, "agent.arrays")
        with atomic_file(Path(path)) as write:
            write(packed.read_bytes())


def load_agent(
    path: str | Path, encoder: Any = None
) -> tuple[Config, AgentState, Any, int, list[float], dict[str, Any]]:
    """Read what `save_agent` wrote: config, agent, candidates, steps, largest costs and task.

    `encoder` is the agent's encoder, if it has one. A file that is damaged or of another kind
    raises a `ValueError`.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no saved agent at {path}.")
    try:
        with (
            open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream,
            open_archive(stream) as archive,
            tempfile.TemporaryDirectory() as folder,
        ):
            text = _member(archive, "config.yaml", MAX_TEXT_BYTES).decode()
            config = serialization.parse(text, f"config.yaml in {path}")
            config = with_encoder(config, encoder)
            members = archive.namelist()
            if len({*members}) < len(members):
                raise zipfile.BadZipFile("it has two members with the same name")
            sizes = read_json(_member(archive, "sizes.json", MAX_TEXT_BYTES))
            for name in ("observation_size", "action_size"):
                check_count(f"{name} in {path}", sizes[name])
            for name in ("cost_value_limits", "cost_units"):
                if name == "cost_value_limits" or sizes.get(name) is not None:
                    _check_numbers(f"{name} in {path}", sizes.get(name), config)
            # Numerics: a share that is computed from discount factors is rounded.
            share = sizes.get("horizon_share", 1.0)
            what = f"horizon_share in {path}"
            check_range(what, share, 0, 1 + 1e-6, open_low=True)
            structure = sizes.get("observation_structure", "")
            _check_structure(structure, sizes["observation_size"], path)
            # Files of earlier versions do not contain the number of steps.
            env_steps = sizes.get("env_steps", config.training.total_steps)
            check_count(f"env_steps in {path}", env_steps, 0, high=MAX_ENV_STEPS)
            largest_cost = saved_largest_cost(sizes, path)
            # Nor do they describe the task.
            task = sizes.get("task", {})
            if not isinstance(task, dict):
                raise TypeError("its task is not a mapping")
            problem = Problem(
                sizes["observation_size"],
                sizes["action_size"],
                config.constraints,
                tuple(float(limit) for limit in sizes["cost_value_limits"]),
                tuple(float(unit) for unit in sizes["cost_units"])
                if sizes.get("cost_units")
                else None,
                float(share),
                structure,
            )
            learner = make_learner(problem, config.agent)
            template = jax.eval_shape(
                lambda: agent_core.init(jax.random.key(0), learner)
            )
            claimed = sum(math.prod(x.shape) for x in jax.tree.leaves(template))
            if claimed > path.stat().st_size:
                raise zipfile.BadZipFile("sizes.json does not fit agent.arrays")
            arrays = Path(folder) / "agent.arrays"
            data = _member(archive, "agent.arrays", path.stat().st_size)
            arrays.write_bytes(data)
            candidates: Any = ()
            if config.agent.follows_episodes:
                empty = delivery.init(template, config)
                agent, candidates = _load_arrays(arrays, (template, empty))
            else:
                agent = _load_arrays(arrays, template)
    except TemplateMismatchError as error:
        raise ValueError(
            f"the networks of the agent in {path} differ from those that its config "
            f"describes. If it has an encoder, pass the same one: {error}"
        ) from error
    except (*UNREADABLE, DamagedFileError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{path} must be a file written by Agent.save, but it is damaged or is another "
            f"kind of file: {reason}. Use orac.policy.load for a file of Agent.export."
        ) from error
    name = first_not_finite(agent) or first_not_finite(candidates)
    if name is not None:
        raise NonFiniteError(
            f"the agent in {path} must be finite, but its {name} is not: it was saved "
            "after its training had diverged. If it has a run directory, load that instead, "
            "because numbers are checked before a checkpoint is written. Otherwise train the "
            "agent again."
        )
    return config, agent, candidates, env_steps, largest_cost, task


def saved_largest_cost(saved: Any, path: Path) -> list[float]:
    """Return the largest costs of episodes that are saved in a dict.

    Dicts of earlier versions do not contain them. The result is then empty.
    """
    values = saved.get("largest_cost", []) if isinstance(saved, dict) else []
    valid = isinstance(values, list) and all(is_number(x) and x >= 0 for x in values)
    if not valid:
        raise ValueError(
            f"largest_cost in {shown_path(path)} must be a list of finite numbers of at "
            f"least 0, got {shown(values)}. The file is damaged: use another one."
        )
    return [float(x) for x in values]


def _check_numbers(what: str, values: Any, config: Config) -> None:
    """Raise an error unless `values` has one finite number per constraint."""
    valid = isinstance(values, list) and all(map(is_number, values))
    if not valid or len(values) != len(config.constraints):
        raise ValueError(
            f"{what} must be a list of finite numbers, one per constraint of the config (it "
            f"has {len(config.constraints)}), got {shown(values)}."
        )


def _check_structure(structure: Any, size: int, path: Path) -> None:
    """Raise an error unless a text describes observations of `size` numbers, or is empty."""
    try:
        fits = structure == "" or flat_size(read_json(structure)) == size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fits = False
    if not fits:
        raise ValueError(
            f"observation_structure in {path} must be a JSON text that describes an "
            f"observation of {size:,} numbers, or be empty, got {shown(structure)}. Save the "
            "agent again."
        )


def _load_arrays(file: Path, template: Any) -> Any:
    """Load the arrays of an agent. Errors name the member of the zip file, not the copy."""
    try:
        return load_arrays(file, template)
    except (DamagedFileError, TemplateMismatchError) as error:
        raise type(error)(str(error).replace(str(file), file.name)) from error


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Read a member of an archive. It must be uncompressed, as `save_agent` writes it.

    A compressed member could fill the memory even if the archive is small.
    """
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise zipfile.BadZipFile(f"{name} is compressed or too large")
    return archive.read(info)


def same_shapes(agent: AgentState, other: AgentState) -> bool:
    """Return whether the arrays of two agents have the same shapes."""
    shapes = ([leaf.shape for leaf in jax.tree.leaves(x)] for x in (agent, other))
    return next(shapes) == next(shapes)
