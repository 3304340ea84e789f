"""An environment and a config to the loop that fits them.

What a user gives as `env` may be an id, an object, a factory or a JAX environment. A file
may name an environment or a cost function too, but no code runs because of that: whoever
loads it says so again.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium

from orac import envs
from orac.config.schema import Config
from orac.envs.base import EnvSpec
from orac.envs.gym_adapter.checks import check_environment
from orac.envs.gym_adapter.costs import CostFn
from orac.envs.gym_adapter.import_cost_fn import import_cost_fn, name_of_cost_fn
from orac.envs.gym_adapter.make import make_host
from orac.training.runners import DeviceRunner, HostRunner, Runner

UNNAMED = (lambda: None).__name__
"""What Python calls every factory that has no name of its own."""


def with_cost_fn(
    config: Config, cost_fn: CostFn | str | None
) -> tuple[Config, CostFn | None]:
    """The config that names this cost function, and the function itself.

    A config alone never makes us import what it names: importing runs code, and configs
    are read from files. Whoever loads one gives the function, or its name, again.
    """
    named = config.env.cost_fn
    if cost_fn is None:
        if named is None:
            return config, None
        raise ValueError(
            f"the cost of this run is computed by {named!r}, which a file only names and "
            f"which is not imported unasked. Say so with --cost-fn {named} (in Python "
            f"cost_fn={named!r}, or the function itself)."
        )
    by_name = isinstance(cost_fn, str)
    function = import_cost_fn(cost_fn) if by_name else cost_fn
    name = cost_fn if by_name else name_of_cost_fn(function)
    return replace(config, env=replace(config.env, cost_fn=name)), function


def make_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None = None,
    host_options: Mapping[str, Any] | None = None,
) -> Runner:
    """The loop that fits the environment: compiled for JAX, else on the host."""
    params = dict(config.env.params)
    if isinstance(env, str) and envs.has_jax_form(env) and cost_fn is None:
        return DeviceRunner(envs.make(env, **params), config)
    if not isinstance(env, str) and isinstance(getattr(env, "spec", None), EnvSpec):
        if cost_fn is not None:
            raise ValueError(
                "cost_fn must be None for a JAX environment, which reports its own cost."
            )
        return DeviceRunner(env, config)
    return make_host_runner(env, config, cost_fn, host_options or {}, params)


def make_host_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None,
    host_options: Mapping[str, Any],
    params: Mapping[str, Any],
) -> HostRunner:
    """The loop for a Gymnasium environment, which is tried before it is trained on."""
    names = tuple(c.name for c in config.constraints) or None
    options: dict[str, Any] = {
        "cost_fn": cost_fn,
        "cost_names": names,
        "episode_length": config.env.episode_length,
        "env_kwargs": params or None,
        **host_options,
    }
    host = make_host(env, config.training.num_envs, **options)
    if config.env.id == UNNAMED:
        config = replace(config, env=replace(config.env, id=host.kind))
    check_environment(host, seed=config.seed)
    # An object cannot be made twice: it serves for both, and is reset in between.
    shared = not (isinstance(env, str) or callable(env))
    evaluation_env = host if shared else make_host(env, 1, **options)
    return HostRunner(host, evaluation_env, config)


def name_of(env: Any) -> str:
    """A name for the run directory of an environment that is no id."""
    if isinstance(env, partial):
        return name_of(env.func)
    spec = getattr(env, "spec", None)
    for attribute in ("id", "name"):
        if isinstance(getattr(spec, attribute, None), str):
            return getattr(spec, attribute)
    return getattr(env, "__name__", type(env).__name__)


def is_id(env_id: str) -> bool:
    """Whether an environment can be had by this name, and is not only called so."""
    return ":" in env_id or env_id in gymnasium.registry or envs.has_jax_form(env_id)


def env_of(config: Config, env: Any) -> Any:
    """The environment that was given, else the config's, if nobody's module must run."""
    env_id = config.env.id
    module = env_id.rpartition(":")[0]
    if env is None and module and module not in sys.modules:
        raise ValueError(
            f"the environment of this run is {env_id!r}, whose module a file only names "
            f"and which is not imported unasked. Say so with --env-id {env_id} (in Python "
            f"env={env_id!r})."
        )
    if env is None and not is_id(env_id):
        raise ValueError(
            f"the environment of this run is called {env_id!r}, which Gymnasium does not "
            "know here. Give it again as env= (the class, factory or object that it was "
            "trained in), or import what registers it (in the shell --env-id "
            "module:Name-v0)."
        )
    return env_id if env is None else env
