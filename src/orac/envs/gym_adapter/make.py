"""Any Gymnasium environment behind one face; the door that users' environments enter by.

`make_host` takes an id, an object, a factory or a vector environment and the words about
its costs, and hands out a `HostEnv`. Steps are taken in `stepping`, and `checks` tries an
environment before training. Knows nothing of agents or training.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from orac.envs.gym_adapter.costs import CostFn, CostKeys, fault, read_value
from orac.envs.gym_adapter.metadata import Facts
from orac.envs.gym_adapter.sources import EnvLike, Wishes, open_source
from orac.envs.gym_adapter.vector import HostEnv, HostStep

__all__ = ["HostEnv", "HostStep", "make_host"]


def make_host(
    env: EnvLike,
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
    """Any Gymnasium environment, ready to be stepped in batches.

    `env` is an id (`"Pendulum-v1"`, `"module:Name-v0"`), an environment, a factory or a
    vector environment. `cost_keys` are the info keys of the constraints' costs, and
    `cost_names` what the constraints are called; without `cost_keys` the costs of several
    names are read under those where info has them all, else from its flat array "cost", as
    a single cost is. `episode_length` truncates episodes;
    `cost_bound` is the most one episode can cost, per constraint. `metric_names` are info
    keys to report. `vectorization` is `"auto"` (an id's own vector environment where it
    has one), `"sync"`, `"async"` (one process each; scripts then need the usual
    `if __name__ == "__main__":`) or `"vector"`.
    """
    wishes = Wishes(
        num_envs=_positive(num_envs, "num_envs"),
        cost_keys=_keys(cost_keys, cost_names),
        cost_fn=_checked_cost_fn(cost_fn),
        metric_names=_names(metric_names, "metric_names"),
        episode_length=None
        if episode_length is None
        else _positive(episode_length, "episode_length"),
        env_kwargs=env_kwargs or {},
        vectorization=vectorization,
    )
    source = open_source(env, wishes)
    try:
        host = HostEnv(source)
        names = _constraint_names(host, source.facts, wishes, cost_names)
        bounds = _cost_bounds(cost_bound, source.facts, names)
    except BaseException:
        if not isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
            source.vector.close()
        raise
    host.spec = replace(host.spec, cost_names=names, cost_bounds=bounds)
    return host


def _constraint_names(
    host: HostEnv, facts: Facts, wishes: Wishes, asked: Sequence[str] | None
) -> tuple[str, ...]:
    """What the user says, else the environment, else the keys, else as many as it has."""
    keys, flat = wishes.cost_keys
    said = (
        facts.cost_names
        if wishes.cost_fn is None and (len(keys) == 1 or flat)
        else None
    )
    if asked is not None:
        names = _names(asked, "cost_names")
        if flat and said and said != names and {*said} == {*names}:
            raise ValueError(
                f"cost_names are {', '.join(names)}, but {facts.name} reports its costs in "
                f"the order {', '.join(said)}. Name them, or give their constraints, so."
            )
        if wishes.cost_fn is None and len(keys) > 1 and len(keys) != len(names):
            raise ValueError(
                f"cost_names {names} and cost_keys {keys} differ in number. Give one name "
                "per key."
            )
        return names
    if said is not None:
        return said
    if len(keys) > 1 and wishes.cost_fn is None:
        return keys
    count = _count_costs(host)
    stem = "cost" if wishes.cost_fn is not None else "".join(keys)
    return (stem,) if count == 1 else tuple(f"{stem}_{_}" for _ in range(count))


def _count_costs(host: HostEnv) -> int:
    """How many costs a step has, learned by taking one; a run resets before its first."""
    host.reset(seed=0)
    middle = (np.array(host.spec.action_low) + np.array(host.spec.action_high)) / 2
    _, readings, _ = host.advance(np.tile(middle, (host.num_envs, 1)))
    host.steps = 0
    first = read_value(readings[0])
    wrong = fault(first, None)
    if wrong is not None:
        raise ValueError(
            f"{host.spec.name}: at its first step it reported {wrong.reason}. {wrong.fix}"
        )
    return len(first)


def _cost_bounds(
    asked: int | float | Sequence[int | float] | None,
    facts: Facts,
    names: tuple[str, ...],
) -> tuple[float, ...] | None:
    if asked is None:
        said = facts.episode_cost_bounds
        return said if said is not None and len(said) == len(names) else None
    bounds = np.asarray(asked, float).reshape(-1)
    if len(bounds) != len(names) or not (np.isfinite(bounds) & (bounds > 0)).all():
        raise ValueError(
            f"cost_bound must be one positive number per constraint ({len(names)}: "
            f"{', '.join(names)}), got {asked}. It is the most that one episode can cost."
        )
    return tuple(float(bound) for bound in bounds)


def _positive(number: Any, option: str) -> int:
    if number is True or not isinstance(number, int | np.integer) or number < 1:
        raise ValueError(f"{option} must be a whole number from 1 on, got {number!r}.")
    return int(number)


def _keys(keys: Any, names: Any) -> CostKeys:
    """The keys that the user says; those of several names are a guess."""
    if keys is not None:
        return CostKeys(_names(keys, "cost_keys"))
    several = () if names is None else _names(names, "cost_names")
    return CostKeys(several, CostKeys().named[0]) if len(several) > 1 else CostKeys()


def _names(names: Any, option: str) -> tuple[str, ...]:
    """A single string counts as one name, not as its letters."""
    given = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in given):
        raise ValueError(f"{option} must be strings, got {names!r}.")
    if len(set(given)) != len(given):
        raise ValueError(f"{option} must differ from each other, got {names!r}.")
    if not given and option != "metric_names":
        raise ValueError(f"{option} is empty. Name at least one cost.")
    return given


def _checked_cost_fn(cost_fn: Any) -> CostFn | None:
    if cost_fn is None:
        return None
    if not callable(cost_fn):
        raise ValueError(
            f"cost_fn must be a function of (obs, action, next_obs, info), got {cost_fn!r}."
        )
    try:
        inspect.signature(cost_fn).bind(None, None, None, {})
    except TypeError as error:
        raise ValueError(
            "cost_fn is called with (obs, action, next_obs, info), which it does not "
            f"take: {error}."
        ) from error
    except ValueError:
        pass  # A built-in without a signature; calling it will show.
    return cost_fn
