"""Write run directories as training does, with made-up numbers.

Costs are 2, or 20 with a probability that falls during training.
"""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from orac.config import overrides, presets, serialization
from orac.config.schema import Config
from orac.envs.maze.env import GuardedMaze
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory
from orac.training import delivery, device_loop
from orac.training.state import TrainState, learner_for

ODD_LABEL = "</script><img src=x onerror=alert(1)>|&_%"
"""Name of an agent with characters that have a meaning in HTML, markdown and LaTeX."""
META = {
    "versions": {"orac": "0.1.0", "jax": "0.10.2", "python": "3.11.7"},
    "platform": "Linux-x86_64",
    "machine": "x86_64",
    "threads": 2,
    "commit": "abc123",
}


def make_config(algo="orac", seed=0, steps=10_000, changes=()) -> Config:
    base = presets.preset(algo, "orac/GuardedMaze-v0")
    assignments = [f"seed={seed}", f"training.total_steps={steps}", *changes]
    return overrides.override(base, assignments)


def write_run(
    root: Path,
    config: Config,
    *,
    name="default",
    until=None,
    evaluations=5,
    episodes=20,
    rows=10,
    training_episodes=30,
    skill=1.0,
) -> Path:
    """Write a finished run, or one that stopped at step `until`, and return its path."""
    total = config.training.total_steps
    until = until or total
    random = np.random.default_rng(config.seed)
    plain = serialization.to_dict(config)
    with RunDirectory.create(
        root, config.env.id, config.algo, config.seed, plain, name
    ) as run:
        (run.path / "meta.json").write_text(json.dumps(META))
        marks = np.linspace(0, total, rows + 1)[1:].astype(int)
        metrics = [_metrics_row(s, total, skill, random) for s in marks if s <= until]
        write_rows(run, "metrics", metrics)
        write_rows(
            run,
            "timings",
            [
                {
                    "env_steps": row["env_steps"],
                    "train_seconds": 2.0,
                    "evaluate_seconds": 0.5,
                    "steps_per_second": 1000.0 + i,
                }
                for i, row in enumerate(metrics)
            ],
        )
        steps = np.sort(random.integers(1, until + 1, training_episodes))
        write_rows(
            run,
            "episodes",
            [
                {"env_steps": int(s), "env": 0, **_episode(s / total, skill, random)}
                for s in steps
            ],
        )
        marks = np.linspace(0, total, evaluations + 1)[1:].astype(int)
        write_rows(
            run,
            "evaluations",
            [
                {
                    "env_steps": int(s),
                    "episode": i,
                    **_episode(s / total, skill, random),
                }
                for s in marks
                if s <= until
                for i in range(episodes)
            ],
        )
        return run.path


def write_checkpoint(path: Path, config: Config, step: int = 10_000) -> None:
    """Save an untrained policy as the newest checkpoint of a run in the maze."""
    state = init_state(jax.random.key(config.seed), replace(config, seed=0))
    if state.candidates:
        # `jit` has turned float64 arrays of the candidates into float32, unlike training.
        state = state._replace(candidates=delivery.init(state.agent, config))
    Checkpoints(path / "checkpoints").save(step, state._replace(replay=()))


@partial(jax.jit, static_argnums=1)
def init_state(key: jax.Array, config: Config) -> TrainState:
    """Return the initial state of training in the maze."""
    env = GuardedMaze(**dict(config.env.params))
    return device_loop.init(key, env, learner_for(env.spec, config), config)


def write_rows(run: RunDirectory, name: str, rows: list[dict]) -> None:
    if rows:
        lines = [",".join(rows[0])]
        lines += [",".join(map(repr, row.values())) for row in rows]
        (run.path / f"{name}.csv").write_text("\n".join(lines) + "\n")


def _episode(progress: float, skill: float, random) -> dict:
    caught = random.random() < 0.15 * (1 - progress * min(skill, 1.0))
    return {
        "reward": float(20 * skill * progress - 30 + random.normal()),
        "cost": 20.0 if caught else 2.0,
        "length": 50,
        "path": -1.0 if caught else 1.0,
    }


def _metrics_row(step: int, total: int, skill: float, random) -> dict:
    progress = float(step / total)
    # Nothing is learned in the first tenth: these values are missing.
    known = progress > 0.1
    return {
        "env_steps": int(step),
        "gradient_steps": int(step),
        "episodes": int(step // 50),
        "train/reward": float(20 * skill * progress - 30 + random.normal()),
        "train/cost": 4.0,
        "train/cumulative_cost": 4.0 * int(step) / 50,
        "train/violations_cost": int(step // 500),
        "constraint/limit/cost": 4.97 if known else math.nan,
        "constraint/multiplier/cost": progress if known else math.nan,
        "constraint/risk/cost": 8 - 4 * progress if known else math.nan,
    }
