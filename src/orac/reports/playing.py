"""Build the policy of a run or of a baseline, for figures of its behaviour.

A run's policy is the mean action of its newest checkpoint, loaded without its replay.
Only JAX environments are supported.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax

from orac import envs
from orac.config.schema import Config
from orac.envs.base import Environment
from orac.envs.baselines import make_baseline
from orac.reports.run_reader import Run
from orac.runs.checkpoint import Checkpoints
from orac.training import device_loop
from orac.training.state import evaluation_action, learner_for

Play = Callable[[Any], Any]
"""A batch of observations to actions in the environment's own box."""


class NoCheckpoint(ValueError):
    """A run has no checkpoint to take a policy from."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} has no checkpoint to take a policy from.")
        self.path = path


def world_of(run: Run) -> Environment:
    """The JAX environment that it ran in."""
    return envs.make(run.config.env.id, **dict(run.config.env.params))


def policy_of(run: Run, env: Environment) -> Play:
    """What a run has learned, or the rule that it is; ValueError where there is neither."""
    if run.rule is not None:
        return jax.jit(make_baseline(run.config.env.id, run.rule, env))
    path = Path((run.meta.get("evaluated") or {}).get("run", run.path))
    template = _template(env, replace(run.config, seed=0))
    loaded = Checkpoints(path / "checkpoints").load_latest(template)
    if loaded is None:
        raise NoCheckpoint(path)
    agent, key, config = loaded.state.agent, jax.random.key(0), run.config
    return lambda seen: _mean_action(agent, key, seen, env, config)


@lru_cache(maxsize=32)
def _template(env: Environment, config: Config) -> Any:
    """Shapes of a training state; the seeds of a group share them."""
    learner = learner_for(env.spec, config)
    make = partial(device_loop.init, env=env, learner=learner, config=config)
    return jax.eval_shape(make, jax.random.key(0))._replace(replay=())


@partial(jax.jit, static_argnums=(3, 4))
def _mean_action(agent: Any, key: Any, seen: Any, env: Environment, config: Any) -> Any:
    return evaluation_action(
        agent, key, seen, spec=env.spec, config=config, deterministic=True
    )
