"""Policies that nobody trained: what a learned one has to be better than.

Each is made for one environment and evaluated like an agent. They see what an agent
sees, nothing more.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from orac import envs
from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.config.validation import check_choice, unknown_name
from orac.envs.base import EnvSpec
from orac.evaluation.result import Episodes, summarise
from orac.evaluation.rollout import roll_out

RULES: dict[str, dict[str, str]] = {
    "orac/GuardedMaze-v0": {
        "short_path": "orac.envs.maze.controllers:short_path",
        "long_path": "orac.envs.maze.controllers:long_path",
    },
    "orac/CityLearn-v0": {
        "uniform_random": "orac.envs.citylearn.rules:UniformRandom",
        "no_cooling": "orac.envs.citylearn.rules:NoCooling",
        "thermostat": "orac.envs.citylearn.rules:Thermostat",
        "battery_reserve": "orac.envs.citylearn.rules:BatteryReserve",
    },
}


def make_rule(env_id: str, name: str, env: Any) -> Callable[[Any], Any]:
    """A rule by name: observations to actions in the environment's own box."""
    if env_id not in RULES:
        raise unknown_name("an environment that has rules", env_id, RULES)
    if name not in RULES[env_id]:
        raise unknown_name(f"a rule for {env_id}", name, RULES[env_id])
    module, maker = RULES[env_id][name].split(":")
    return getattr(importlib.import_module(module), maker)(env)


def rule_config(
    env_id: str, name: str, seed: int = 0, assignments: Sequence[str] = ()
) -> Config:
    """The paper's config in that environment, under the rule's name.

    What it says about environment, constraints and seed holds for a rule too; what it
    says about learning does not. `assignments` are words such as `constraints.0.tail=0.1`.
    """
    if env_id not in RULES:
        raise unknown_name("an environment that has rules", env_id, RULES)
    check_choice(f"a rule for {env_id}", name, RULES[env_id])
    config = replace(presets.preset("orac", env_id), algo=name, seed=seed)
    return config_text.override(config, list(assignments))


def evaluate_rule(
    config: Config, episodes: int, tails: Sequence[float] = ()
) -> tuple[dict[str, float], Episodes, EnvSpec]:
    """Whole episodes of a rule under a `rule_config`, and its numbers."""
    env = envs.make(config.env.id, **dict(config.env.params))
    rule = make_rule(config.env.id, config.algo, env)
    key = jax.random.key(config.seed)
    rolled = roll_out(key, None, env, lambda _, __, observed: rule(observed), episodes)
    summary = summarise(
        rolled, config.constraints, env.spec.cost_names, env.spec.metrics, tails
    )
    return summary, rolled, env.spec
