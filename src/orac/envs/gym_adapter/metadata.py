"""What an environment says about itself: how long an episode is, what its costs are called.

Facts come from the layers of a wrapped environment: Gymnasium's time limits and specs,
and the attributes `episode_length`, `cost_names`, `cost_bound` (the most an episode can
cost), `step_cost_bound` and `metric_names`, which our own environments carry and any other
may. An attribute of another kind than expected is somebody else's word and is passed
over. Knows nothing of spaces or stepping.
"""

from collections.abc import Iterator
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv


class Facts(NamedTuple):
    """What is known before the first step; None or empty where nothing is said."""

    name: str
    kind: str = ""
    """The outermost class that is not Gymnasium's own, else the name."""
    episode_length: int | None = None
    cost_names: tuple[str, ...] | None = None
    cost_bounds: tuple[float, ...] | None = None
    step_cost_bounds: tuple[float, ...] | None = None
    metric_names: tuple[str, ...] = ()

    @property
    def episode_cost_bounds(self) -> tuple[float, ...] | None:
        """The most an episode can cost: what is said of episodes, else of its steps."""
        if self.cost_bounds is not None:
            return self.cost_bounds
        if self.step_cost_bounds is None or self.episode_length is None:
            return None
        return tuple(self.episode_length * bound for bound in self.step_cost_bounds)


def read_facts(env: Any) -> Facts:
    """The facts of one environment or of a vector environment, outermost layer first."""
    layers = [*_layers(env), *_first_sub_environment(env)]

    def bounds(attribute: str) -> Any:
        return _first(_bounds(getattr(layer, attribute, None)) for layer in layers)

    return Facts(
        name=_name(env, layers),
        kind=_kind(layers) or _name(env, layers),
        episode_length=_least(length for layer in layers for length in _lengths(layer)),
        cost_names=_first(_names(getattr(_, "cost_names", None)) for _ in layers),
        cost_bounds=bounds("cost_bound"),
        step_cost_bounds=bounds("step_cost_bound"),
        metric_names=_first(_names(getattr(_, "metric_names", None)) for _ in layers)
        or (),
    )


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("env") if hasattr(env, "__dict__") else None


def _first_sub_environment(env: Any) -> Iterator[Any]:
    """The layers of the first environment inside one of Gymnasium's vector ones."""
    bare = getattr(env, "unwrapped", env)
    if isinstance(bare, SyncVectorEnv):
        yield from _layers(bare.envs[0])
    elif isinstance(bare, AsyncVectorEnv):
        # Every environment has a spec; asking a worker for what it lacks would end it.
        yield SimpleNamespace(spec=bare.get_attr("spec")[0])


def _name(env: Any, layers: list[Any]) -> str:
    for layer in layers:
        registered = getattr(getattr(layer, "spec", None), "id", None)
        if isinstance(registered, str):
            return registered
    return type(getattr(env, "unwrapped", env)).__name__


def _kind(layers: list[Any]) -> str | None:
    """A wrapper of the user's own around Pendulum is not Pendulum."""
    for layer in layers:
        if type(layer).__module__.partition(".")[0] != "gymnasium":
            return type(layer).__name__
    return None


def _lengths(layer: Any) -> Iterator[int]:
    """What a layer says itself; Gymnasium's registry counts where it says nothing.

    A vector environment's spec keeps the registered limit though it was made with another.
    """
    own = (
        _length(getattr(layer, "episode_length", None)),
        _length(getattr(layer, "_max_episode_steps", None)),
    )
    registered = getattr(getattr(layer, "spec", None), "max_episode_steps", None)
    for length in own if any(own) else (_length(registered),):
        if length is not None:
            yield length


def _length(value: Any) -> int | None:
    is_whole = isinstance(value, int | np.integer) and value is not True
    return int(value) if is_whole and value > 0 else None


def _bounds(bound: Any) -> tuple[float, ...] | None:
    if isinstance(bound, Real | np.ndarray | list | tuple):
        array = np.asarray(bound)
        if array.dtype.kind in "iuf" and np.isfinite(array).all() and array.size:
            return tuple(float(number) for number in array.reshape(-1))
    return None


def _names(names: Any) -> tuple[str, ...] | None:
    if isinstance(names, list | tuple) and all(isinstance(_, str) for _ in names):
        return tuple(names)
    return None


def _first(candidates: Iterator[Any]) -> Any:
    return next((candidate for candidate in candidates if candidate), None)


def _least(lengths: Iterator[int]) -> int | None:
    return min(lengths, default=None)
