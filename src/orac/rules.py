"""Policies that nobody trained: what a learned one has to be better than.

Each is made for one environment and evaluated like an agent. They see what an agent
sees, nothing more.
"""

import importlib
from collections.abc import Callable
from typing import Any

import jax

from orac import envs, presets
from orac.config import unknown_name
from orac.evaluation import Episodes, roll_out, summarise

RULES: dict[str, dict[str, str]] = {
    "orac/GuardedMaze-v0": {
        "short_path": "orac.envs.maze_controllers:short_path",
        "long_path": "orac.envs.maze_controllers:long_path",
    },
    "orac/CityLearn-v0": {
        "uniform_random": "orac.envs.citylearn_rules:UniformRandom",
        "no_cooling": "orac.envs.citylearn_rules:NoCooling",
        "thermostat": "orac.envs.citylearn_rules:Thermostat",
        "battery_reserve": "orac.envs.citylearn_rules:BatteryReserve",
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


def evaluate_rule(
    env_id: str,
    name: str,
    episodes: int,
    seed: int = 0,
    tails: tuple[float, ...] = (),
    params: dict[str, Any] | None = None,
) -> tuple[dict[str, float], Episodes]:
    """Whole episodes of a rule, and its numbers under the paper's constraint there."""
    if env_id not in RULES:
        raise unknown_name("an environment that has rules", env_id, RULES)
    env = envs.make(env_id, **(params or {}))
    rule = make_rule(env_id, name, env)
    key = jax.random.key(seed)
    rolled = roll_out(key, None, env, lambda _, __, observed: rule(observed), episodes)
    constraints = presets.preset("orac", env_id).constraints
    return summarise(rolled, constraints, env.spec.cost_names, tails), rolled
