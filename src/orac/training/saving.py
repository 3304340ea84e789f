"""A trained agent as one file: to go on from, or to run with NumPy alone.

`save` writes a zip of the config, the sizes and the agent's arrays; `export` writes an
.npz that `policy.py` reads. Neither holds anything that is executed when it is read.
"""

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.core import agent as agents
from orac.core import normalization as observations
from orac.core import pivots
from orac.core.agent_state import AgentState
from orac.core.cost_models import Problem
from orac.core.networks import LOG_STD_MAX, LOG_STD_MIN
from orac.envs.base import EnvSpec
from orac.runs.arrays import load_arrays, save_arrays
from orac.runs.atomic_io import atomic_file
from orac.training.state import problem_for

FORMAT = 1


def save(path: str | Path, config: Config, spec: EnvSpec, agent: AgentState) -> None:
    """Write an agent without its replay."""
    problem = problem_for(spec, config)
    sizes = {
        "format": FORMAT,
        "observation_size": problem.observation_size,
        "action_size": problem.action_size,
        "cost_value_limits": problem.cost_value_limits,
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "agent.arrays"
        save_arrays(arrays, agent)
        packed = Path(folder) / "agent.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("config.yaml", config_text.dump(config))
            archive.writestr("sizes.json", json.dumps(sizes))
            archive.write(arrays, "agent.arrays")
        with atomic_file(Path(path)) as write:
            write(packed.read_bytes())


def load(path: str | Path) -> tuple[Config, AgentState]:
    """Read what `save` wrote; anything else is refused with a sentence."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no saved agent at {path}.")
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            config = config_text.parse(archive.read("config.yaml").decode())
            sizes = json.loads(archive.read("sizes.json"))
            problem = Problem(
                sizes["observation_size"],
                sizes["action_size"],
                config.constraints,
                tuple(sizes["cost_value_limits"]),
            )
            template = jax.eval_shape(
                lambda: agents.init(jax.random.key(0), problem, config.agent)
            )
            arrays = Path(folder) / "agent.arrays"
            arrays.write_bytes(archive.read("agent.arrays"))
            return config, load_arrays(arrays, template)
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} must be a file written by Agent.save, but it is not whole: {error}."
        ) from error


def check_fit(agent: AgentState, template: AgentState, path: str | Path) -> None:
    """Refuse an agent that was made for another environment."""
    ours = [leaf.shape for leaf in jax.tree.leaves(template)]
    theirs = [leaf.shape for leaf in jax.tree.leaves(agent)]
    if ours != theirs:
        raise ValueError(
            f"the agent in {path} must fit the environment, but its networks have other "
            "shapes. Give the environment it was trained in."
        )


def export(path: str | Path, config: Config, spec: EnvSpec, agent: AgentState) -> None:
    """Write the policy alone: weights, observation scaling, pivots, action box."""
    arrays: dict[str, Any] = {
        "format": np.int64(FORMAT),
        "num_layers": np.int64(len(agent.actor.params)),
        "action_low": np.array(spec.action_low),
        "action_high": np.array(spec.action_high),
        "log_std_range": np.array([LOG_STD_MIN, LOG_STD_MAX]),
    }
    for i, layer in enumerate(agent.actor.params):
        for name, value in layer._asdict().items():
            if value is not None:
                arrays[f"layer{i}/{name}"] = np.asarray(value)
    if config.agent.normalize_observations:
        stats = agent.observation_stats
        variance = np.asarray(observations.known_variance(stats))
        arrays["observation_mean"] = np.asarray(stats.mean)
        arrays["observation_scale"] = 1 / np.sqrt(variance + 1e-6)
    if config.agent.risk_form == "dual":
        arrays["pivot"] = np.asarray(pivots.mean_pivot(agent.pivot.params))
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "policy.npz"
        np.savez(packed, **arrays)
        with atomic_file(Path(path)) as write:
            write(packed.read_bytes())
