"""Save and restore checkpoints of a run, and a trained agent as one file.

`save_checkpoint` and `restore_checkpoint` write and read the whole training state of a run.
`save_agent` writes a zip of the config, the sizes and the agent's arrays. Reading executes
nothing. `export` writes only the policy.
"""

import dataclasses
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from orac.config import serialization
from orac.config.schema import Config
from orac.config.validation import NonFiniteError, check_count
from orac.core import agent as agent_core
from orac.core.agent import AgentState
from orac.core.cost_models import Problem
from orac.core.risk_forms import make_learner
from orac.envs.base import EnvSpec
from orac.policy import check_archive
from orac.runs.arrays import (
    OtherShapeError,
    from_json,
    load_arrays,
    save_arrays,
    to_json,
)
from orac.runs.atomic_io import DamagedFileError, atomic_file, write_text
from orac.runs.checkpoint import Checkpoints, Loaded
from orac.runs.directory import RunDirectory, read_meta
from orac.training import delivery, notes
from orac.training.encoder_loading import with_encoder
from orac.training.health import first_not_finite
from orac.training.state import empty_replay, problem_for

FORMAT = 1
MAX_TEXT_BYTES = 1 << 18
"""Largest text in the file of an agent."""
UNREADABLE = (
    *(zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError, EOFError),
    *(KeyError, TypeError, OverflowError, NotImplementedError, RuntimeError),
)
"""Errors that the readers of zip, JSON and text raise for other kinds of files."""


def save_checkpoint(
    run: RunDirectory, checkpoints: Checkpoints, step: int, runner: Any, counters: Any
) -> None:
    """Write a checkpoint: training state, replay, counters, logs' lengths, environment."""
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
    """Restore the newest intact checkpoint; return its step, and messages for the user.

    Logs are truncated to their length at that checkpoint. Without a checkpoint the run
    starts again from its config.
    """
    loaded, messages = restore_state(checkpoints, runner, counters)
    if loaded is None:
        if "continued_from" in read_meta(run.path):
            raise ValueError(
                f"{run.path} was started from another agent and has no checkpoint, so it "
                "cannot continue. Delete the directory and start it again."
            )
        run.truncate_logs({})
        return None, [
            f"{run.path} has no checkpoint yet: the run starts again from its config."
        ]
    run.truncate_logs(loaded.extra["log_sizes"])
    write_delivered(run, runner, counters)
    return loaded.step, messages


def restore_state(
    checkpoints: Checkpoints, runner: Any, counters: Any
) -> tuple[Loaded | None, list[str]]:
    """Restore training state, replay and counters from the newest intact checkpoint.

    Returns the checkpoint, None if there is none, and messages for the user.
    """
    template = runner.state._replace(replay=())
    # Use only shapes, so that memory never holds a second replay.
    problem, config = runner.learner.problem, runner.config
    replay = jax.eval_shape(lambda: empty_replay(problem, config))
    loaded = checkpoints.load_latest(template, replay, check_finite)
    if loaded is None:
        return None, []
    messages = list(loaded.warnings)
    restored = loaded.state._replace(replay=loaded.replay)
    with _expected_content(loaded.step, checkpoints.directory.parent):
        saved_counters = {
            field.name: checked_counter(loaded.extra["counters"], field.name, counters)
            for field in dataclasses.fields(counters)
        }
        for size in loaded.extra["log_sizes"].values():
            check_count("the size of a log", size, 0)
        host_state = from_json(loaded.extra["host_state"])
        exact = runner.restore(restored, host_state)
    if not exact:
        messages.append(
            "The environment's state could not be saved, so its episodes start again: "
            "the run continues, but not bit for bit."
        )
    for name, value in saved_counters.items():
        setattr(counters, name, value)
    return loaded, messages


@contextmanager
def _expected_content(step: int, path: Path) -> Iterator[None]:
    """Turn errors about the contents of a checkpoint into a `DamagedFileError`.

    The checksum detects damage, but not a file that another program wrote.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"the checkpoint of step {step} in {path} does not hold the state of a run: "
            f"{type(error).__name__} ({error}). If it is your own run, the environment "
            "could not restore its state: pass the environment that it was trained in."
        ) from error


def checked_counter(saved: Any, name: str, counters: Any) -> Any:
    """Return a counter of a checkpoint, or raise an error if it has another type."""
    known = getattr(counters, name)
    value = saved.get(name, known)
    kind = (int, float) if isinstance(known, int | float) else type(known)
    numbers = value if isinstance(value, list) else []
    if not isinstance(value, kind) or any(isinstance(x, str | list) for x in numbers):
        raise TypeError(f"{name} is {value!r}")
    return value


def check_finite(state: Any) -> None:
    """Raise a `DamagedFileError` if a number of a loaded agent is not finite."""
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
) -> None:
    """Write an agent and its candidates for delivery, without its replay."""
    problem = problem_for(spec, config)
    sizes = {
        "format": FORMAT,
        "env_steps": env_steps,
        "observation_size": problem.observation_size,
        "action_size": problem.action_size,
        "cost_value_limits": problem.cost_value_limits,
        "cost_units": problem.cost_units,
        "horizon_share": problem.horizon_share,
        "observation_structure": problem.observation_structure,
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
) -> tuple[Config, AgentState, Any, int]:
    """Read config, agent, candidates and number of steps from a file of `save_agent`.

    `encoder` is that of the agent, if it has one. Any other file raises a `ValueError`.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no saved agent at {path}.")
    try:
        with (
            open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream,
            checked_archive(stream) as archive,
            tempfile.TemporaryDirectory() as folder,
        ):
            text = _member(archive, "config.yaml", MAX_TEXT_BYTES).decode()
            config = serialization.parse(text, f"config.yaml in {path}")
            config = with_encoder(config, encoder)
            sizes = json.loads(_member(archive, "sizes.json", MAX_TEXT_BYTES))
            for name in ("observation_size", "action_size"):
                check_count(f"{name} in {path}", sizes[name])
            # Earlier files do not have the number of steps.
            env_steps = sizes.get("env_steps", config.training.total_steps)
            check_count(f"env_steps in {path}", env_steps, 0)
            problem = Problem(
                sizes["observation_size"],
                sizes["action_size"],
                config.constraints,
                tuple(float(limit) for limit in sizes["cost_value_limits"]),
                tuple(float(unit) for unit in sizes["cost_units"])
                if sizes.get("cost_units")
                else None,
                float(sizes.get("horizon_share", 1.0)),
                str(sizes.get("observation_structure", "")),
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
                held = delivery.init(template, config)
                agent, candidates = load_arrays(arrays, (template, held))
            else:
                agent = load_arrays(arrays, template)
    except OtherShapeError as error:
        raise ValueError(
            f"the agent in {path} has other networks than its config describes. Load it "
            f"with its own encoder, if it has one: {error}"
        ) from error
    except UNREADABLE as error:
        raise ValueError(
            f"{path} must be a file written by Agent.save, but it is damaged or is "
            f"something else: {error}."
        ) from error
    name = first_not_finite(agent) or first_not_finite(candidates)
    if name is not None:
        raise NonFiniteError(
            f"the agent in {path} must be finite, but its {name} is not: it was saved "
            "after its training had diverged. Load its run directory, whose last "
            "checkpoint is good, or train it again."
        )
    return config, agent, candidates, env_steps


def checked_archive(stream: Any) -> zipfile.ZipFile:
    """Open a zip file after checking that its list of members is small."""
    try:
        check_archive(stream)
    except ValueError as error:
        raise zipfile.BadZipFile(str(error)) from error
    return zipfile.ZipFile(stream)


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Read a file of an archive, which must be uncompressed as `save_agent` writes it.

    Otherwise a small archive could expand to a large amount of memory.
    """
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise zipfile.BadZipFile(f"{name} is compressed or too large")
    return archive.read(info)


def same_shapes(agent: AgentState, other: AgentState) -> bool:
    """Return whether two agents were made for the same spaces."""
    shapes = ([leaf.shape for leaf in jax.tree.leaves(x)] for x in (agent, other))
    return next(shapes) == next(shapes)
