"""Make any Gymnasium environment ready to be stepped in batches.

`make_host` takes an id, an environment, a factory (a function that makes an environment) or
a vector environment, and returns a `HostEnv`. Vector environments that this module builds
consist of `CostWrapper`s. A vector environment of the user, or one that is registered for
an id, is used as it is. `check_environment` takes a few steps in an environment before an
agent is trained on it.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from orac.config.validation import (
    FLOAT32_MAX,
    check_choice,
    check_count,
    did_you_mean,
    frozen_value,
    is_number,
    shown,
)
from orac.envs.gym_adapter.costs import CostKeys, find_fault, read_value
from orac.envs.gym_adapter.metadata import (
    EnvMetadata,
    observation_structure,
    read_metadata,
)
from orac.envs.gym_adapter.vector import AnyVector, HostEnv, VectorSource
from orac.envs.gym_adapter.wrapper import (
    COST_KEY,
    length_error,
    make_registered,
    make_wrapped,
)
from orac.envs.user_code import CostFn, checked_cost_fn, import_named

MAX_HOST_ENVS = 10_000
VECTORIZATIONS = ("auto", "sync", "async", "vector")
LARGE_OBSERVATION = 10_000
"""Observations of this size or more cause a warning. An image in colour with 58 x 58
pixels has about this size."""


class AdapterOptions(NamedTuple):
    """Checked options of `make_host`."""

    num_envs: int
    cost_keys: CostKeys
    cost_fn: CostFn | None
    metric_names: tuple[str, ...]
    episode_length: int | None
    env_kwargs: Mapping[str, Any]
    vectorization: str


def make_host(
    env: Any,
    num_envs: int = 1,
    *,
    cost_fn: CostFn | None = None,
    cost_names: Sequence[str] | None = None,
    cost_keys: Sequence[str] | None = None,
    episode_length: int | None = None,
    cost_bound: int | float | Sequence[int | float] | None = None,
    metric_names: Sequence[str] = (),
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization: str = "auto",
) -> HostEnv:
    """Make any Gymnasium environment ready to be stepped in batches.

    Args:
        env: An id (`"Pendulum-v1"`, `"module:Name-v0"`), an environment, a factory or a
            vector environment.
        num_envs: Number of environments in the batch.
        cost_fn: Function of (observation, action, next_observation, info) that returns the costs.
        cost_names: Names of the constraints. Without `cost_keys`, the costs of several
            constraints are read from info keys of these names if they all exist, and
            otherwise from the array `info["cost"]`.
        cost_keys: Info keys of the constraints' costs. The default is `"cost"`; for several
            constraints see `cost_names`.
        episode_length: Number of steps after which episodes are truncated.
        cost_bound: Maximum cost of one episode, per constraint. Without it, the bound that
            the environment declares is used, but only for the costs that it reports itself.
        metric_names: Info keys to report as metrics.
        env_kwargs: Keyword arguments for an id or a factory.
        vectorization: `"sync"` steps the environments in this process, `"async"` each in
            its own process (scripts then need the usual `if __name__ == "__main__":`), and
            `"vector"` uses the vector environment that is registered for the id. `"auto"`
            is the same as `"vector"` if one is registered, and as `"sync"` otherwise.
    """
    check_choice("vectorization", vectorization, VECTORIZATIONS)
    num_envs, episode_length = frozen_value((num_envs, episode_length))
    advice = (
        "Each one is a Python object. JAX environments can be run in larger numbers."
    )
    check_count("num_envs", num_envs, advice=advice, high=MAX_HOST_ENVS)
    if episode_length is not None:
        check_count("episode_length", episode_length)
    names = None if cost_names is None else _checked_names(cost_names, "cost_names")
    keys = CostKeys(names, "cost") if names and len(names) > 1 else CostKeys()
    if cost_keys is not None:
        keys = CostKeys(_checked_names(cost_keys, "cost_keys"))
    options = AdapterOptions(
        num_envs=num_envs,
        cost_keys=keys,
        cost_fn=None if cost_fn is None else checked_cost_fn(cost_fn),
        metric_names=_checked_names(metric_names, "metric_names"),
        episode_length=episode_length,
        env_kwargs=dict(env_kwargs or {}),
        vectorization=vectorization,
    )
    source = _open(env, options)
    try:
        host = HostEnv(source)
        names = _constraint_names(host, source.metadata, options, names)
        bounds = _cost_bounds(cost_bound, source.metadata, options, names)
    except BaseException:
        if not isinstance(env, gymnasium.Env | VectorEnv):
            source.vector.close()
        raise
    host.spec = replace(host.spec, cost_names=names, cost_bounds=bounds)
    return host


def check_environment(
    host: HostEnv, *, seed: int = 0, has_encoder: bool = False
) -> None:
    """Check that `host` can be trained on; if not, raise a `ValueError` with advice.

    `make_host` has already checked spaces and options. This function takes 20 random
    steps after `reset(seed)`, with the same checks as all later steps. The caller must
    reset the environments before its own first step. `has_encoder` tells whether the
    agent has an encoder for images.
    """
    spec = host.spec
    if spec.episode_length is None:
        raise ValueError(
            "limits and certificates need the length of an episode, and "
            f"{spec.name} does not declare it. Pass episode_length=; longer episodes are "
            "then truncated."
        )
    has_images = '"image": true' in spec.observation_structure
    needs_encoder = has_images and not has_encoder
    if needs_encoder or spec.observation_size >= LARGE_OBSERVATION:
        images = " and contains images" if has_images else ""
        networks = (
            "Without an encoder, such as a convolution (examples/image_encoder.py), the "
            "networks are plain layers for vectors. "
            if needs_encoder
            else ""
        )
        gigabytes = spec.observation_size * 8e6 / 1e9
        warnings.warn(
            f"{spec.name}: an observation has {spec.observation_size:,} numbers{images}. "
            f"{networks}A million stored steps take about {gigabytes:,.1f} GB. Make images "
            "small and grey (ResizeObservation and GrayscaleObservation of "
            "gymnasium.wrappers), or observe features instead of pixels.",
            stacklevel=2,
        )
    if not np.array_equal(host.reset(seed), host.reset(seed)):
        warnings.warn(
            f"{spec.name} starts differently after each reset(seed={seed}): runs on it "
            "cannot be repeated. Call super().reset(seed=seed) and draw from "
            "self.np_random in its reset.",
            stacklevel=2,
        )
    generator = np.random.default_rng(seed)
    shape = host.num_envs, spec.action_size
    for _ in range(20):
        host.step(generator.uniform(spec.action_low, spec.action_high, shape))
    host.steps = 0


def check_distinct(*vectors: AnyVector) -> None:
    """Raise a `ValueError` if a factory returned the same environment twice."""
    made = [
        id(one.unwrapped)
        for vector in vectors
        if isinstance(vector, SyncVectorEnv)
        for one in vector.envs
    ]
    if len({*made}) < len(made):
        raise ValueError(
            "The factory returned one environment twice. Make a new one in each call."
        )


def _constraint_names(
    host: HostEnv,
    metadata: EnvMetadata,
    options: AdapterOptions,
    names: tuple[str, ...] | None,
) -> tuple[str, ...]:
    """Return the names of the constraints.

    They are `names`, if given, or the names that the environment declares, or the info keys
    if there are several. Otherwise one step is taken to count the costs, and several costs
    get numbered names.
    """
    keys, array_key = options.cost_keys
    reads_info = options.cost_fn is None
    uses_declared = reads_info and (len(keys) == 1 or array_key)
    declared = metadata.cost_names if uses_declared else None
    if names is not None:
        if array_key and declared and declared != names and {*declared} == {*names}:
            raise ValueError(
                f"cost_names are {', '.join(names)}, but {metadata.name} reports its costs "
                f"in the order {', '.join(declared)}. Use this order for cost_names and "
                "constraints."
            )
        if reads_info and len(keys) > 1 and len(keys) != len(names):
            raise ValueError(
                f"cost_names {names} and cost_keys {keys} differ in number. Give one name "
                "per key."
            )
        return names
    if declared is not None:
        return declared
    if reads_info and len(keys) > 1:
        return keys
    # This step only counts the costs. A run resets the environments before its first step.
    host.reset(seed=0)
    middle = (np.array(host.spec.action_low) + np.array(host.spec.action_high)) / 2
    _, readings, _ = host.advance(np.tile(middle, (host.num_envs, 1)))
    host.steps = 0
    first = read_value(readings[0])
    if (wrong := find_fault(first, None)) is not None:
        raise ValueError(
            f"{host.spec.name}: at its first step it reported {wrong.reason}. {wrong.fix}"
        )
    stem = next(iter(keys)) if reads_info else "cost"
    count = len(first)
    return (stem,) if count == 1 else tuple(f"{stem}_{i}" for i in range(count))


def _cost_bounds(
    given: int | float | Sequence[int | float] | None,
    metadata: EnvMetadata,
    options: AdapterOptions,
    names: tuple[str, ...],
) -> tuple[float, ...] | None:
    if given is None:
        return _declared_bounds(metadata, options, names)
    bounds: Any = [given] if isinstance(given, Real | str) else np.ravel(given)
    valid = all(is_number(x) and 0 < x <= FLOAT32_MAX for x in bounds)
    if len(bounds) != len(names) or not valid:
        raise ValueError(
            f"cost_bound must be one positive number per constraint ({len(names)}: "
            f"{', '.join(names)}), got {shown(given)}. It is the maximum cost of one episode."
        )
    return tuple(float(bound) for bound in bounds)


def _declared_bounds(
    metadata: EnvMetadata, options: AdapterOptions, names: tuple[str, ...]
) -> tuple[float, ...] | None:
    """Return the bounds that the environment declares, or None if they do not apply.

    They do not apply to the result of a cost function. The bound of an episode does not
    apply to episodes that are longer than those of the registered id, but the bound of a step
    does. If `cost_keys` chooses some of the costs or another order, the bounds are chosen and
    ordered in the same way.
    """
    registered = getattr(
        gymnasium.registry.get(metadata.name), "max_episode_steps", None
    )
    length, of_episode = metadata.episode_length or 0, metadata.cost_bounds
    if options.cost_fn is None and of_episode and length > (registered or np.inf):
        metadata = metadata._replace(cost_bounds=None)
        if metadata.step_cost_bounds is None:
            warnings.warn(
                f"{metadata.name} declares the cost_bound {shown(of_episode)} for episodes "
                f"of its registered length, {registered} steps, so the bound is not used for "
                f"episodes of {length} steps. Certificates need cost_bound=, the maximum cost "
                "of such an episode (in the shell --cost-bound).",
                stacklevel=2,
            )
    declared, keys = metadata.episode_cost_bounds, options.cost_keys.keys
    if declared is None or options.cost_fn is not None:
        return None
    if not all(0 <= bound <= FLOAT32_MAX for bound in declared):
        raise ValueError(
            f"{metadata.name} declares the cost_bound {shown(declared)}, but it must be the "
            "maximum cost of an episode, which is finite and at least 0."
        )
    if options.cost_keys.array_key is None and keys != CostKeys().keys:
        known = metadata.cost_names or ()
        if len(known) != len(declared) or not {*keys} <= {*known}:
            return None
        declared = tuple(declared[known.index(key)] for key in keys)
    return declared if len(declared) == len(names) else None


def _checked_names(names: Any, option: str) -> tuple[str, ...]:
    """Return a tuple of names; a single string is one name."""
    given = (names,) if isinstance(names, str) else names
    is_list = isinstance(given, Iterable)
    if not is_list or not all(isinstance(name, str) and name for name in given):
        raise ValueError(
            f"{option} must be a list of non-empty strings, got {shown(names)}."
        )
    given = tuple(given)
    if len(set(given)) != len(given):
        raise ValueError(f"{option} must be unique, got {names!r}.")
    if not given and option != "metric_names":
        raise ValueError(f"{option} is empty. Name at least one cost.")
    return given


def _open(env: Any, options: AdapterOptions) -> VectorSource:
    """Make a vector environment from the `env` that the user passed."""
    if isinstance(env, str):
        return _from_id(env, options)
    if isinstance(env, VectorEnv):
        return _from_vector(env, options)
    if not isinstance(env, gymnasium.Env):
        if callable(env):
            return _from_factory(partial(env, **options.env_kwargs), options)
        raise ValueError(
            "env must be a Gymnasium id, environment, factory or vector environment, got an "
            f"object of type {type(env).__name__}. Environments must subclass gymnasium.Env."
        )
    if options.num_envs != 1:
        raise ValueError(
            f"num_envs is {options.num_envs}, but an environment object is only one "
            "environment. Pass its id or a factory instead."
        )
    if options.vectorization == "async":
        raise ValueError(
            "An environment object cannot be moved to another process. Pass its id or a "
            "factory, or use vectorization='sync'."
        )
    if options.env_kwargs:
        raise ValueError(
            f"env_kwargs {sorted(options.env_kwargs)} were given with an environment that "
            "is already made. Pass its id or a factory instead."
        )
    return _from_factory(lambda: env, options)


def _from_id(name: str, options: AdapterOptions) -> VectorSource:
    spec = _registered(name)
    kwargs = dict(options.env_kwargs)
    if "max_episode_steps" in kwargs:
        raise ValueError(
            f"max_episode_steps is an argument of gymnasium.make, not of {spec.id}. Pass "
            f"episode_length={kwargs['max_episode_steps']!r} (env.episode_length in a "
            "config) instead."
        )
    has_vector = spec.vector_entry_point is not None
    if options.vectorization == "vector" and not has_vector:
        raise ValueError(
            f"{name} has no vector entry point. Use vectorization='sync' or 'async'."
        )
    if has_vector and options.vectorization in ("auto", "vector"):
        # Gymnasium passes a time limit to a vector environment only if the id has a limit.
        if options.episode_length is not None and spec.max_episode_steps is not None:
            kwargs["max_episode_steps"] = options.episode_length
        kwargs |= {"vectorization_mode": "vector_entry_point"}
        make = partial(gymnasium.make_vec, spec, options.num_envs, **kwargs)
        return _from_vector(make_registered(spec.id, make), options)
    # Choice: CostWrapper counts the steps, because Gymnasium's time limit accepts only
    # steps of five values, and a step with a cost may have six.
    kwargs |= {"max_episode_steps": -1, "disable_env_checker": True}
    make = partial(make_registered, spec.id, partial(gymnasium.make, spec, **kwargs))
    return _from_factory(make, options, spec.max_episode_steps)


def _from_factory(
    make: Callable[[], Any],
    options: AdapterOptions,
    registered_length: int | None = None,
) -> VectorSource:
    """Vectorise the environments that `make` returns, each in a `CostWrapper`."""
    if options.vectorization == "vector":
        raise ValueError(
            "vectorization='vector' needs an id with a vector entry point. For a factory "
            "use 'sync' or 'async', or pass the vector environment itself."
        )
    wrap = partial(
        make_wrapped,
        make,
        options.episode_length,
        registered_length,
        cost_keys=options.cost_keys,
        cost_fn=options.cost_fn,
        metric_names=options.metric_names,
    )
    wrappers = [wrap] * options.num_envs
    disabled = AutoresetMode.DISABLED
    if options.vectorization == "async":
        # JAX starts threads, and a process that is forked from a program with threads can
        # hang, so processes are spawned.
        vector = AsyncVectorEnv(wrappers, context="spawn", autoreset_mode=disabled)
        metadata = vector.get_attr("env_metadata")[0]
    else:
        vector = SyncVectorEnv(wrappers, copy=False, autoreset_mode=disabled)
        metadata = vector.envs[0].env_metadata  # pyright: ignore[reportAttributeAccessIssue]
        check_distinct(vector)
    return VectorSource(vector, metadata, CostKeys((COST_KEY,)), None, is_wrapped=True)


def _from_vector(vector: AnyVector, options: AdapterOptions) -> VectorSource:
    if options.num_envs not in (1, vector.num_envs):
        raise ValueError(
            f"num_envs is {options.num_envs}, but the vector environment has "
            f"{vector.num_envs}. Leave num_envs out."
        )
    metadata = read_metadata(vector)
    declared, given = metadata.episode_length, options.episode_length
    if declared and given and declared != given:
        raise length_error(metadata, given)
    metadata = metadata._replace(
        episode_length=declared or given,
        metric_names=options.metric_names or metadata.metric_names,
        observation_structure=observation_structure(vector.single_observation_space),
    )
    keys, cost_fn = options.cost_keys, options.cost_fn
    return VectorSource(vector, metadata, keys, cost_fn, is_wrapped=False)


def _registered(name: str) -> Any:
    """Return Gymnasium's spec of an id, which may start with the module that registers it.

    This module is then imported.
    """
    module, _, bare = name.rpartition(":")
    if module:
        import_named(module, repr(name))
    try:
        return gymnasium.spec(bare)
    except gymnasium.error.Error as error:
        # Ids of Gymnasium share endings, so a lower similarity suggests unrelated ids.
        prefix = f"{module}:" if module else ""
        known = [f"{prefix}{env_id}" for env_id in gymnasium.registry]
        hint = did_you_mean(name, known, 0.8)
        if not (module or hint):
            hint = (
                " If your own module or another package registers it, name that too: "
                f"--env-id your_module:{bare[:100]} (in Python 'your_module:{bare[:100]}')."
            )
        raise ValueError(
            f"There is no environment {shown(name)}.{hint} (Gymnasium reports: "
            f"{str(error)[:300]})."
        ) from error
