"""From what a user hands over to one Gymnasium vector environment.

An id, an environment object, a factory and a vector environment all become a `Source`.
What we vectorise ourselves is made of `LearnerView`s that restart when we say so; a
vector environment that already exists is taken as it is. Knows nothing of stepping.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from orac.envs.gym_adapter.autoreset import AnyVector
from orac.envs.gym_adapter.cost_wrapper import COST, LearnerView
from orac.envs.gym_adapter.costs import CostFn, CostKeys
from orac.envs.gym_adapter.metadata import Facts, read_facts

AnyEnv = gymnasium.Env[Any, Any]
EnvLike = Any
"""An id, an environment, a factory or a vector environment; others get a sentence."""
VECTORIZATIONS = ("auto", "sync", "async", "vector")


class Wishes(NamedTuple):
    """What the user asked for besides the environment itself."""

    num_envs: int
    cost_keys: CostKeys
    cost_fn: CostFn | None
    metric_names: tuple[str, ...]
    episode_length: int | None
    env_kwargs: Mapping[str, Any]
    vectorization: str


class Source(NamedTuple):
    """A vector environment, what it says of itself, and where its costs are found."""

    vector: AnyVector
    facts: Facts
    cost_keys: CostKeys
    cost_fn: CostFn | None
    """None when the views compute the cost themselves, beside the environment."""
    viewed: bool
    """Whether the vector environment is made of our views."""


def open_source(env: EnvLike, wishes: Wishes) -> Source:
    """Make the vector environment that `env` stands for."""
    if wishes.vectorization not in VECTORIZATIONS:
        near = difflib.get_close_matches(wishes.vectorization, VECTORIZATIONS, 1, 0.3)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"There is no vectorization {wishes.vectorization!r}.{hint} Choose one of "
            f"{', '.join(VECTORIZATIONS)}."
        )
    if isinstance(env, str):
        return _from_id(env, wishes)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _from_vector(env, wishes)
    if isinstance(env, gymnasium.Env):
        return _from_object(env, wishes)
    if callable(env):
        return _from_factory(partial(env, **wishes.env_kwargs), wishes)
    raise ValueError(
        f"env must be a Gymnasium id, environment, factory or vector environment, got a "
        f"{type(env).__name__}. Environments must subclass gymnasium.Env."
    )


def _from_id(name: str, wishes: Wishes) -> Source:
    spec = _registered(name)
    if "max_episode_steps" in wishes.env_kwargs:
        raise ValueError(
            "max_episode_steps is a word of Gymnasium's, not a parameter of "
            f"{spec.id}. Pass episode_length={wishes.env_kwargs['max_episode_steps']!r} "
            "(env.episode_length in a config) instead."
        )
    mode = wishes.vectorization
    if mode == "vector" and spec.vector_entry_point is None:
        raise ValueError(
            f"{name} has no vector entry point of its own. Use vectorization='sync' or "
            "'async'."
        )
    if mode == "vector" or (mode == "auto" and spec.vector_entry_point is not None):
        return _from_vector(_make_vector(spec, wishes), wishes)
    # Choice: our view counts the steps, because Gymnasium's time limit takes only steps
    # of five values. The cost of a six-value step would be lost on the way.
    make = partial(
        _make, spec, max_episode_steps=-1, disable_env_checker=True, **wishes.env_kwargs
    )
    return _from_factory(make, wishes, spec.max_episode_steps)


def _from_object(env: AnyEnv, wishes: Wishes) -> Source:
    if wishes.num_envs != 1:
        raise ValueError(
            f"num_envs is {wishes.num_envs}, but one environment object can only be "
            "stepped once at a time. Pass its id or a factory instead."
        )
    if wishes.vectorization == "async":
        raise ValueError(
            "An environment object cannot be moved to another process. Pass its id or a "
            "factory, or use vectorization='sync'."
        )
    if wishes.env_kwargs:
        raise ValueError(
            f"env_kwargs {sorted(wishes.env_kwargs)} were given with an environment that "
            "is already made. Pass its id or a factory instead."
        )
    return _from_factory(lambda: env, wishes)


def _from_factory(
    make: Callable[[], Any], wishes: Wishes, usual_length: int | None = None
) -> Source:
    """Views of what `make` returns; `usual_length` counts where none was asked for."""
    if wishes.vectorization == "vector":
        raise ValueError(
            "vectorization='vector' needs an id with a vector entry point. For a factory "
            "use 'sync' or 'async', or pass the vector environment itself."
        )
    view = partial(
        _make_view,
        make,
        wishes.episode_length,
        cost_keys=wishes.cost_keys,
        cost_fn=wishes.cost_fn,
        metric_names=wishes.metric_names,
        episode_length=wishes.episode_length or usual_length,
    )
    views = [view] * wishes.num_envs
    if wishes.vectorization == "async":
        # JAX runs threads, and a process forked from threads can hang: none is forked.
        vector = AsyncVectorEnv(
            views, context="spawn", autoreset_mode=AutoresetMode.DISABLED
        )
        facts = vector.get_attr("facts")[0]
        return Source(vector, facts, CostKeys((COST,)), None, True)
    vector = SyncVectorEnv(views, copy=False, autoreset_mode=AutoresetMode.DISABLED)
    if len({id(one.unwrapped) for one in vector.envs}) < wishes.num_envs:
        raise ValueError(
            "The factory returned the same environment twice. Make a new one in each call."
        )
    facts = vector.envs[0].facts  # pyright: ignore[reportAttributeAccessIssue]
    return Source(vector, facts, CostKeys((COST,)), None, True)


def _from_vector(vector: AnyVector, wishes: Wishes) -> Source:
    if wishes.num_envs not in (1, vector.num_envs):
        raise ValueError(
            f"num_envs is {wishes.num_envs}, but the vector environment has "
            f"{vector.num_envs}. Leave num_envs out."
        )
    facts = read_facts(vector)
    known, asked = facts.episode_length, wishes.episode_length
    if known and asked and known != asked:
        raise _too_early(facts, asked)
    facts = facts._replace(
        episode_length=known or asked,
        metric_names=wishes.metric_names or facts.metric_names,
    )
    return Source(vector, facts, wishes.cost_keys, wishes.cost_fn, False)


def _registered(name: str) -> Any:
    """Gymnasium's spec of an id, with or without the module that registers it."""
    module, _, bare = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{name!r} names the module {module!r}, which cannot be imported "
                f"({error}). Install it or correct the name."
            ) from error
    try:
        return gymnasium.spec(bare)
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(bare, gymnasium.registry, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"There is no environment {name!r}.{hint} Gymnasium says: {error} If another "
            "package registers it, write 'package:Name-v0'."
        ) from error


def _make(spec: Any, **kwargs: Any) -> AnyEnv:
    try:
        return gymnasium.make(spec, **kwargs)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise ValueError(
            f"{spec.id} could not be made ({error}). Check env_kwargs and what it needs "
            "installed."
        ) from error


def _make_vector(spec: Any, wishes: Wishes) -> AnyVector:
    kwargs = dict(wishes.env_kwargs)
    # Gymnasium hands the limit of an id to its vector environment, so that one takes it.
    if wishes.episode_length is not None and spec.max_episode_steps is not None:
        kwargs["max_episode_steps"] = wishes.episode_length
    try:
        return gymnasium.make_vec(
            spec, wishes.num_envs, vectorization_mode="vector_entry_point", **kwargs
        )
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise ValueError(
            f"{spec.id} could not be made ({error}). Check env_kwargs and what it needs "
            "installed."
        ) from error


def _too_early(facts: Facts, asked: int) -> ValueError:
    return ValueError(
        f"episode_length is {asked}, but {facts.name} ends its episodes after "
        f"{facts.episode_length} steps by itself. Leave episode_length out, or make it "
        "with another limit."
    )


def _make_view(
    make: Callable[[], Any], asked: int | None, **kwargs: Any
) -> LearnerView:
    env = make()
    if isinstance(env, gymnasium.Env):
        facts = read_facts(env)
        if asked and facts.episode_length and asked > facts.episode_length:
            raise _too_early(facts, asked)
        return LearnerView(env, **kwargs)
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise ValueError(
            "The factory returned a vector environment. Pass the vector environment "
            "itself, or a factory of single ones."
        )
    raise ValueError(
        f"The factory returned a {type(env).__name__}, which is no Gymnasium environment. "
        "Return a subclass of gymnasium.Env (the old gym package's is another class)."
    )
