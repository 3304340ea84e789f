"""The policies of runs and rules, played once more: what pictures are drawn from.

A run's policy is the mean action of its newest checkpoint, of which the replay is not
read; a rule makes its own. Works in JAX environments. Draws nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from orac import envs
from orac.config.schema import Config
from orac.envs.base import Environment, reset_batch
from orac.evaluation import baselines as rules
from orac.reports.run_reader import Run
from orac.runs.checkpoint import Checkpoints
from orac.training import device_loop as device
from orac.training.runners import actor_policy

Play = Callable[[Any], Any]
"""A batch of observations to actions in the environment's own box."""


class NoCheckpoint(ValueError):
    """A run has no checkpoint to take a policy from."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} has no checkpoint to take a policy from.")
        self.path = path


class Recording(NamedTuple):
    """Episodes side by side, step by step; what follows an episode's end means nothing."""

    observations: np.ndarray
    """(step + 1, episode, observation)"""
    rewards: np.ndarray
    """(step, episode)"""
    costs: np.ndarray
    """(step, episode, constraint)"""
    lengths: np.ndarray
    """Steps of each episode."""
    metrics: dict[str, np.ndarray]
    """At each episode's last step."""


def world_of(run: Run) -> Environment:
    """The JAX environment that it ran in."""
    return envs.make(run.config.env.id, **dict(run.config.env.params))


def policy_of(run: Run, env: Environment) -> Play:
    """What a run has learned, or the rule that it is; ValueError where there is neither."""
    if run.rule is not None:
        return jax.jit(rules.make_rule(run.config.env.id, run.rule, env))
    path = Path((run.meta.get("evaluated") or {}).get("run", run.path))
    template = _template(env, replace(run.config, seed=0))
    loaded = Checkpoints(path / "checkpoints").load_latest(template)
    if loaded is None:
        raise NoCheckpoint(path)
    agent, key, config = loaded.state.agent, jax.random.key(0), run.config.agent
    return lambda seen: _mean_action(agent, key, seen, env, config)


@lru_cache(maxsize=32)
def _template(env: Environment, config: Config) -> Any:
    """Shapes of a training state; the seeds of a group share them."""
    make = partial(device.init, env=env, config=config)
    return jax.eval_shape(make, jax.random.key(0))._replace(replay=())


@partial(jax.jit, static_argnums=(3, 4))
def _mean_action(agent: Any, key: Any, seen: Any, env: Environment, config: Any) -> Any:
    return actor_policy(
        agent, key, seen, spec=env.spec, config=config, deterministic=True
    )


@partial(jax.jit, static_argnums=0)
def _advance(env: Environment, key: Any, state: Any, action: Any) -> Any:
    keys = jax.random.split(key, len(action))
    return jax.vmap(env.step)(keys, state, action)


def play(env: Environment, policy: Play, episodes: int, seed: int = 0) -> Recording:
    """Whole episodes; a seed stands for the same starts whatever the policy.

    Step by step from the host: the environment is compiled once for all policies.
    """
    reset_key, run_key = jax.random.split(jax.random.key(seed))
    state, observation = reset_batch(env, reset_key, episodes)
    seen, rewards, costs = [np.asarray(observation)], [], []
    lengths, done = np.zeros(episodes, int), np.zeros(episodes, bool)
    last = {name: np.zeros(episodes) for name in env.spec.metric_names}
    while not done.all():
        key = jax.random.fold_in(run_key, len(rewards))
        state, now = _advance(env, key, state, policy(observation))
        observation = now.observation
        seen.append(np.asarray(observation))
        rewards.append(np.asarray(now.reward))
        costs.append(np.asarray(now.cost))
        lengths += ~done
        last = {k: np.where(done, v, now.metrics[k]) for k, v in last.items()}
        done = done | np.asarray(now.done)
    return Recording(np.stack(seen), np.stack(rewards), np.stack(costs), lengths, last)
