"""Turn the user's `env` argument (an id, an object or a function) into a runner.

`make_runner` chooses how an environment is stepped. JAX environments are stepped in a
compiled program, and all other environments are stepped on the host.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from orac import envs
from orac.config.schema import Config
from orac.config.validation import check_choice
from orac.envs.base import EnvSpec, check_shapes
from orac.envs.brax_adapter import BRAX_OPTIONS, BraxEnv, is_brax_like
from orac.envs.brax_adapter import adapt as adapt_brax
from orac.envs.gym_adapter.make import check_distinct, check_environment, make_host
from orac.envs.gym_adapter.vector import HostEnv
from orac.envs.identity import describe_env, plain_arguments
from orac.envs.registry import is_library_id
from orac.envs.user_code import (
    CostFn,
    check_env_module,
    cost_fn_from_file,
    import_cost_fn,
    name_of_cost_fn,
)
from orac.runs.atomic_io import shown_path
from orac.runs.directory import read_meta
from orac.runs.machine import check_memory
from orac.training.device_loop import DeviceRunner
from orac.training.host_loop import HostRunner
from orac.training.run_loop import Runner
from orac.training.state import memory_needs

LAMBDA = (lambda: None).__name__
"""`<lambda>`, the `__name__` of a lambda function."""


def make_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None,
    host_options: Mapping[str, Any],
) -> Runner:
    """Return a `DeviceRunner` for a JAX environment, and a `HostRunner` for any other.

    If `cost_fn` is given, this package's JAX environments are also stepped as Gymnasium
    environments when they are named by id. `host_options` are arguments of `make_host`.
    Environments of Brax and MuJoCo
    Playground accept only those in `BRAX_OPTIONS`, and other JAX environments none.
    """
    params = dict(config.env.params)
    if isinstance(env, str) and envs.is_jax_env(env) and cost_fn is None:
        env = envs.make(env, **params)
    if is_library_id(env) if isinstance(env, str) else is_brax_like(env):
        for name in host_options:
            check_choice(f"an option of {config.env.id}", name, BRAX_OPTIONS)
        adapted = adapt_brax(
            env,
            params=params,
            episode_length=config.env.episode_length,
            cost_fn=cost_fn,
            cost_names=[constraint.name for constraint in config.constraints],
            **host_options,
        )
        check_memory(memory_needs(adapted.spec, config, with_replay=False))
        return DeviceRunner(adapted, config)
    if not isinstance(env, str) and isinstance(getattr(env, "spec", None), EnvSpec):
        if cost_fn is not None:
            raise ValueError(
                "cost_fn must be None for a JAX environment, which reports its own cost."
            )
        if host_options.get("cost_bound") is not None:
            raise ValueError(
                "cost_bound must be left out for a JAX environment. Set cost_bounds in its "
                f"spec instead; it is {env.spec.cost_bounds} now."
            )
        for name in host_options:
            if name != "cost_bound":
                raise ValueError(
                    f"{name} must be left out for a JAX environment, which declares its own "
                    "costs and metrics and steps all copies at once."
                )
        check_shapes(env)
        check_memory(memory_needs(env.spec, config, with_replay=False))
        return DeviceRunner(env, config)
    options: dict[str, Any] = {
        "cost_fn": cost_fn,
        "cost_names": tuple(c.name for c in config.constraints) or None,
        "episode_length": config.env.episode_length,
        "env_kwargs": params or None,
        **host_options,
    }
    return make_host_runner(env, config, options)


def make_host_runner(env: Any, config: Config, options: dict[str, Any]) -> HostRunner:
    """Return the runner of a Gymnasium environment. `options` are passed to `make_host`."""
    host = make_host(env, config.training.num_envs, **options)
    if config.env.id == LAMBDA:
        config = replace(config, env=replace(config.env, id=host.class_name))
    has_encoder = config.agent.encoder is not None
    check_environment(host, seed=config.seed, has_encoder=has_encoder)
    check_memory(memory_needs(host.spec, config, with_replay=False))
    # An environment object cannot be copied, so training and evaluation share it.
    if not (isinstance(env, str) or callable(env)):
        return HostRunner(host, config)
    num_envs = config.evaluation.num_envs
    if isinstance(host.vector, SyncVectorEnv):
        # Evaluate in single environments even if the id also has a vectorized version, so
        # that each episode can have a separate seed.
        options["vectorization"] = "sync"
    if isinstance(host.vector, AsyncVectorEnv):
        num_envs = min(num_envs, host.num_envs)

    def make_evaluation_env() -> HostEnv:
        made = make_host(env, num_envs, **options)
        check_distinct(host.vector, made.vector)
        return made

    return HostRunner(host, config, make_evaluation_env)


def with_cost_fn(
    config: Config, cost_fn: CostFn | str | None
) -> tuple[Config, CostFn | None]:
    """Return the config with the name of this cost function, and the function itself.

    If `cost_fn` is None, use the function that the config names, if any. The config may come
    from a file. So orac imports this function only if the user allowed its module with
    `--import`, and raises an error otherwise.
    """
    named = config.env.cost_fn
    if cost_fn is None:
        return config, None if named is None else cost_fn_from_file(named)
    by_name = isinstance(cost_fn, str)
    function = import_cost_fn(cost_fn) if by_name else cost_fn
    name = cost_fn if by_name else name_of_cost_fn(function)
    return replace(config, env=replace(config.env, cost_fn=name)), function


def choose_env(config: Config, env: Any) -> Any:
    """Return `env`, or the id of the config's environment if `env` is None.

    If `env` is None, raises an error if the id is not registered, or if it names a module
    of the user that has not been imported.
    """
    env_id = config.env.id
    if env is None:
        check_env_module(env_id)
    if env is None and not is_env_id(env_id):
        shell = f"name the module that registers it, as in --env-id my_envs:{env_id}"
        if env_id.isidentifier():
            shell = (
                "register it in a module, such as my_envs.py, with "
                f"gymnasium.register('{env_id}-v0', entry_point={env_id}), and add --env-id "
                f"my_envs:{env_id}-v0"
            )
        raise ValueError(
            f"the environment of this run is {env_id!r}, which is not registered with "
            "Gymnasium here. In Python, pass it again as env= (the class, factory or object "
            f"that was used for training). In the shell, {shell}."
        )
    return env_id if env is None else env


def is_env_id(env_id: str) -> bool:
    """Return whether this is the id of an environment: a registered one, or one with a prefix,
    such as `my_envs:Cart-v0` or `brax:halfcheetah`.
    """
    return ":" in env_id or env_id in gymnasium.registry or envs.is_jax_env(env_id)


def name_of_env(env: Any) -> str:
    """Return the name that an environment has in a run directory: its id if it has one."""
    if isinstance(env, str):
        return env
    if isinstance(env, partial):
        return name_of_env(env.func)
    spec = getattr(env, "spec", None)
    for attribute in ("id", "name"):
        if isinstance(getattr(spec, attribute, None), str):
            return getattr(spec, attribute)
    return getattr(env, "__name__", type(env).__name__)


def describe_task(runner: Runner) -> dict[str, Any]:
    """Return the description of the runner's environment for meta.json."""
    if isinstance(runner, HostRunner):
        made = runner.env.description
    else:
        env: Any = getattr(runner, "env", None)
        made = describe_env(env.env if isinstance(env, BraxEnv) else env, None, None)
    if "id" not in made:
        made = {**made, "kwargs": plain_arguments(dict(runner.config.env.params))}
    length = runner.spec.episode_length
    return {**made, "episode_length": None if length is None else int(length)}


def usable_options(
    recorded: Mapping[str, Any], config: Config, env: Any
) -> dict[str, Any]:
    """Return the options of a run that can be used with `env`, which may be another one."""
    if env is None or env == config.env.id:
        return dict(recorded)
    is_id = isinstance(env, str)
    if is_library_id(env) if is_id else is_brax_like(env):
        return {name: recorded[name] for name in BRAX_OPTIONS if name in recorded}
    if is_id and envs.is_jax_env(env) and config.env.cost_fn is None:
        return {}
    if not is_id and isinstance(getattr(env, "spec", None), EnvSpec):
        return {}
    # Only an id of the same environment can surely be vectorized in the same way.
    same = is_id and is_same_id(env, config.env.id)
    return {x: y for x, y in recorded.items() if same or x != "vectorization"}


def is_same_id(first: str, second: str) -> bool:
    """Return whether two ids name the same environment.

    Another module may register another environment under the same id, so the modules must
    be the same too, if both ids have one.
    """
    modules = {env_id.rpartition(":")[0] for env_id in (first, second)} - {""}
    return bare_id(first) == bare_id(second) and len(modules) < 2


def bare_id(env_id: str) -> str:
    """Return an environment's id without the module that registers it."""
    return env_id.rpartition(":")[2]


def run_arguments(
    path: Path,
    config: Config,
    cost_bound: Sequence[float] | None = None,
    env_id: str | None = None,
) -> str:
    """Return the command-line arguments with which a command can load this run.

    They name the user's modules, because orac never imports code that only a run directory
    names. `env_id` is the id that the user gave, which may name the module even if the
    config does not. If `cost_bound` is None, the arguments contain the bounds that the run was
    started with.
    """
    env, arguments = config.env, [str(shown_path(path))]
    env_id = env_id if ":" in (env_id or "") else env.id
    arguments += ["--env-id", env_id] if env_id and ":" in env_id else []
    arguments += ["--cost-fn", env.cost_fn] if env.cost_fn else []
    encoder = config.agent.encoder_name
    arguments += ["--encoder", encoder] if encoder else []
    return shlex.join([*arguments, *cost_bound_options(path, cost_bound)])


def cost_bound_options(
    path: Path, cost_bound: Sequence[float] | None = None
) -> list[str]:
    """Return the options `--cost-bound` for a command that the user types.

    If `cost_bound` is None, the bounds are those that the run was started with, if any. The
    program never uses these recorded bounds without the option, because certificates rely on
    them. The user confirms them by typing the command.
    """
    bounds: Sequence[float] = cost_bound or ()
    if cost_bound is None:
        meta = read_meta(path) if (path / "meta.json").is_file() else {}
        recorded = meta.get("cost_bound", [])
        valid = isinstance(recorded, list) and all(type(x) is float for x in recorded)
        bounds = recorded if valid else ()
    return [part for x in bounds for part in ("--cost-bound", exact_text(x))]


def exact_text(number: float) -> str:
    """Return the number as short text that converts back to exactly this number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)
