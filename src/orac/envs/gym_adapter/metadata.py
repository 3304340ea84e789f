"""Read the metadata and spaces of a Gymnasium environment.

Metadata are read from all layers of a wrapped environment: from Gymnasium's time limits and
specs, and from the attributes `episode_length`, `cost_names`, `cost_bound` (the maximum
cost of an episode), `step_cost_bound` and `metric_names`. Our environments have these
attributes, and any other environment may have them. An attribute of an unexpected type is
ignored. The action space must be one bounded `Box`. Observations of any space that
Gymnasium can flatten become flat float32 vectors.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import (
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RecordVideo,
    TimeLimit,
)
from jaxtyping import Float32

from orac.envs.identity import describe_env

TRANSPARENT_WRAPPERS = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers whose state does not matter, except the step count of `TimeLimit`, which is saved.
The flags of the others do not affect an episode."""
SAME_TASK_WRAPPERS = (*TRANSPARENT_WRAPPERS, RecordEpisodeStatistics, RecordVideo)
"""Wrappers that do not change the task. The length of an episode is compared separately."""


class EnvMetadata(NamedTuple):
    """Metadata of an environment. A field that is not declared is None or empty."""

    name: str
    """Registered id, or the class name if there is none."""
    class_name: str = ""
    """Class of the outermost layer that is not Gymnasium's own; `name` if there is none."""
    episode_length: int | None = None
    cost_names: tuple[str, ...] | None = None
    cost_bounds: tuple[float, ...] | None = None
    step_cost_bounds: tuple[float, ...] | None = None
    metric_names: tuple[str, ...] = ()
    observation_structure: str = ""
    """Observation space as JSON; empty if it is a vector or cannot be described."""
    description: Mapping[str, Any] | None = None
    """Description of the environment that another one is compared with (`identity`)."""

    @property
    def episode_cost_bounds(self) -> tuple[float, ...] | None:
        """Maximum cost of an episode, as declared or computed from the bound of a step."""
        if self.cost_bounds is not None:
            return self.cost_bounds
        if self.step_cost_bounds is None or self.episode_length is None:
            return None
        return tuple(self.episode_length * bound for bound in self.step_cost_bounds)


def read_metadata(env: Any) -> EnvMetadata:
    """Read the metadata of an environment or vector environment, outermost layer first."""
    bare = getattr(env, "unwrapped", env)
    layers = [*_layers(env)]
    if isinstance(bare, SyncVectorEnv):
        layers += _layers(bare.envs[0])
    elif isinstance(bare, AsyncVectorEnv):
        # Asking for a missing attribute would end the worker process, so only the spec is
        # read, which every environment has.
        layers.append(SimpleNamespace(spec=bare.get_attr("spec")[0]))

    def first(attribute: str, convert: Callable[[Any], Any]) -> Any:
        found = (convert(getattr(layer, attribute, None)) for layer in layers)
        return next((value for value in found if value), None)

    ids = (getattr(getattr(layer, "spec", None), "id", None) for layer in layers)
    registered = (one for one in ids if isinstance(one, str))
    name = next(registered, type(bare).__name__)
    kinds = [type(layer) for layer in layers]
    own = (k.__name__ for k in kinds if k.__module__.partition(".")[0] != "gymnasium")
    lengths = (length for layer in layers for length in _lengths(layer))
    return EnvMetadata(
        name=name,
        class_name=next(own, name),
        episode_length=min(lengths, default=None),
        cost_names=first("cost_names", _names),
        cost_bounds=first("cost_bound", _bounds),
        step_cost_bounds=first("step_cost_bound", _bounds),
        metric_names=first("metric_names", _names) or (),
        description=_description(layers, bare),
    )


def _description(layers: list[Any], bare: Any) -> dict[str, Any]:
    """Return the description of an environment with these layers, the outermost first."""
    specs = [getattr(layer, "spec", None) for layer in layers]
    spec = next((one for one in reversed(specs) if one is not None), None)
    if isinstance(bare, AsyncVectorEnv):
        return describe_env(None, spec, None)
    base = bare.envs[0].unwrapped if isinstance(bare, SyncVectorEnv) else bare
    kinds = gymnasium.Wrapper | VectorWrapper
    wrappers = [
        layer
        for layer in layers
        if isinstance(layer, kinds) and not isinstance(layer, SAME_TASK_WRAPPERS)
    ]
    return describe_env(base, spec, wrappers)


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("env") if hasattr(env, "__dict__") else None


def _lengths(layer: Any) -> list[int]:
    """Return the episode lengths that a layer declares; otherwise the registered length.

    Declared lengths come first, because the spec of a vector environment has the registered
    limit even if the vector environment was made with another limit.
    """
    names = "episode_length", "_max_episode_steps"
    declared = [getattr(layer, name, None) for name in names]
    registered = getattr(getattr(layer, "spec", None), "max_episode_steps", None)
    return _positive_integers(declared) or _positive_integers([registered])


def _positive_integers(values: Iterable[Any]) -> list[int]:
    kinds = int | np.integer
    return [int(x) for x in values if isinstance(x, kinds) and x is not True and x > 0]


def _bounds(bound: Any) -> tuple[float, ...] | None:
    if isinstance(bound, Real | np.ndarray | list | tuple):
        array = np.asarray(bound)
        if array.dtype.kind in "iuf" and np.isfinite(array).all() and array.size:
            return tuple(float(number) for number in array.reshape(-1))
    return None


def _names(names: Any) -> tuple[str, ...] | None:
    if isinstance(names, list | tuple) and all(isinstance(x, str) for x in names):
        return tuple(names)
    return None


def checked_action_space(space: Any, name: str) -> spaces.Box:
    """Return `space` if it is a `Box` with finite bounds; else raise a `ValueError`."""
    if not isinstance(space, spaces.Space):
        raise ValueError(
            f"{name} has {space!r} as action_space, which is not a Gymnasium space. Set it "
            "to a gymnasium.spaces.Box with finite bounds."
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ValueError(
            f"{name} has discrete actions ({space}), but agents need continuous ones. "
            f"{_continuous_advice(space)}"
        )
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"{name} has the action space {space}, but agents need one Box. Wrap it so "
            "that its action_space is a single gymnasium.spaces.Box."
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{name} has integer actions ({space}), but agents act continuously. Wrap it "
            "with a float Box action_space and round inside the environment."
        )
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if low.size == 0:
        raise ValueError(f"{name} has an empty action space ({space}). Add an action.")
    for index, (least, most) in enumerate(zip(low, high, strict=True)):
        if not (np.isfinite(least) and np.isfinite(most)):
            raise ValueError(
                f"{name}: action {index} has the bounds [{least}, {most}], but both must "
                "be finite. Wrap it, for example with "
                "gymnasium.wrappers.RescaleAction or TransformAction onto Box(-1, 1)."
            )
        if not least < most:
            raise ValueError(
                f"{name}: action {index} has the bounds [{least}, {most}], which leave "
                "nothing to choose. Remove it from the action space."
            )
    return space


def _continuous_advice(space: Any) -> str:
    """Return advice on how to give an environment continuous actions."""
    if isinstance(space, spaces.Discrete):
        shape, rule = (int(space.n),), "use the largest"
        function = "int(a.argmax())" + (f" + {space.start}" if space.start else "")
    elif isinstance(space, spaces.MultiBinary):
        shape, rule, function = space.shape, "use the signs", "(a > 0).astype('int8')"
    else:
        return "Wrap it so that its action_space is one gymnasium.spaces.Box."
    return (
        f"Wrap it so that an agent chooses one number per choice, and {rule}: "
        f"gymnasium.wrappers.TransformAction(env, lambda a: {function}, "
        f"gymnasium.spaces.Box(-1, 1, {shape})). For the shell, write a function that "
        "returns the wrapped environment in a module, such as my_envs.py, register it there "
        "with gymnasium.register('Name-v0', entry_point=...), and add --env-id "
        "my_envs:Name-v0."
    )


def observation_structure(space: Any) -> str:
    """Return an observation space as JSON for `orac.policy.flatten`.

    The result is empty for a vector, and for spaces that only Gymnasium itself can
    flatten, such as texts.
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return ""
    structure = _structure(space)
    return "" if structure is None else json.dumps(structure)


def _structure(space: Any) -> dict[str, Any] | None:
    if isinstance(space, spaces.Dict):
        parts: Any = {key: _structure(part) for key, part in space.spaces.items()}
        known = None not in parts.values() and all(isinstance(x, str) for x in parts)
        return {"kind": "dict", "parts": parts} if known else None
    if isinstance(space, spaces.Tuple):
        parts = [_structure(part) for part in space.spaces]
        return None if None in parts else {"kind": "tuple", "parts": parts}
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        is_image = space.dtype == np.uint8 and len(space.shape) in (2, 3)
        more = {"image": True} if is_image else {}
        return {"kind": "box", "shape": [*space.shape], **more}
    if isinstance(space, spaces.Discrete):
        start, n = [int(space.start)], [int(space.n)]
        return {"kind": "choices", "shape": [], "start": start, "n": n}
    if isinstance(space, spaces.MultiDiscrete):
        start, n = space.start.reshape(-1).tolist(), space.nvec.reshape(-1).tolist()
        return {"kind": "choices", "shape": [*space.shape], "start": start, "n": n}
    return None


def make_flatten(space: Any, name: str) -> tuple[int, Callable[[Any], np.ndarray]]:
    """Return the size of a flat observation, and the function that flattens one."""
    if not isinstance(space, spaces.Space):
        raise ValueError(
            f"{name} has {space!r} as observation_space, which is not a Gymnasium space. "
            "Set it to a gymnasium.spaces.Box, Dict or Tuple."
        )
    flat = flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box):
        raise ValueError(
            f"{name} has the observation space {space}, whose size varies and which "
            "cannot be flattened. Wrap it so that every observation is a fixed-size Box."
        )
    size = int(np.prod(flat.shape))
    if size == 0:
        raise ValueError(f"{name} has an empty observation space ({space}).")
    is_box = isinstance(space, spaces.Box)
    shape = space.shape if is_box else (size,)

    def flatten_one(observation: Any) -> Float32[np.ndarray, " observation"]:
        try:
            array = np.asarray(observation if is_box else flatten(space, observation))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"{name} returned an observation that is not in its observation_space "
                f"{space} ({type(error).__name__}: {error}). Make the two agree."
            ) from error
        if array.shape != shape:
            raise ValueError(
                f"{name} returned an observation of shape {array.shape}, but its "
                f"observation_space has the shape {shape}. Make the two agree."
            )
        check_numbers(array, name)
        try:
            return array.astype(np.float32, copy=False).reshape(-1)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} returned an observation that is not made of numbers ({error})."
            ) from error

    return size, flatten_one


def check_numbers(array: np.ndarray, name: str) -> None:
    """Raise a `ValueError` if an observation has texts or complex numbers.

    NumPy would convert the text "1" to a number, and would drop an imaginary part.
    """
    if array.dtype.kind in "SUc":
        raise ValueError(
            f"{name} returned an observation of type {array.dtype}, which is not made of "
            "real numbers. Return an array of the type of its observation_space."
        )
