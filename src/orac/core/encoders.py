"""Networks with a user's encoder in front of them.

An encoder is a pair of functions. `init(key, observation_shape)` returns its parameters, and
`apply(params, observation)` returns a vector of features of one observation. The actor and
every critic have separate encoder parameters. The record `Encoded` contains them together
with the parameters of the layers, so that averages, target networks and checkpoints include
both.

Everywhere else observations are flat vectors, but the encoder receives each observation in
its original shape, as float32. The pivot and the action, which follow the observation in a
network's input rows, are not encoded.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.schema import AgentConfig, Encoder
from orac.core.cost_models import Problem


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["encoder", "network"],
    meta_fields=["apply", "size", "structure"],
)
@dataclass(frozen=True)
class Encoded:
    """A network and the encoder in front of it."""

    encoder: Any
    """Parameters of the encoder."""
    network: Any
    """Parameters of the network that takes the features."""
    apply: Callable[[Any, Any], Any]
    """Function of the encoder's parameters and one observation that returns features."""
    size: int
    """Number of entries of a flat observation."""
    structure: str
    """Structure of an observation, as in `EnvSpec.observation_structure`."""


def init_encoded(
    key: Key[Array, ""],
    input_size: int,
    make: Callable[[Array, int], Any],
    problem: Problem,
    config: AgentConfig,
) -> Any:
    """Return a new network, with an encoder in front of it if the config has one.

    `make(key, input_size)` returns the network without an encoder. `input_size` is the width
    of the input rows, whose first entries are the observation.
    """
    encoder = config.encoder
    if encoder is None:
        return make(key, input_size)
    if isinstance(encoder, str):
        raise ValueError(
            f"the encoder {encoder!r} must be imported first. Pass encoder={encoder!r} in "
            f"Python or --encoder {encoder} on the command line."
        )
    size, structure = problem.observation_size, problem.observation_structure
    features = feature_size(encoder, size, structure)
    encoder_key, network_key = jax.random.split(key)
    params = encoder.init(encoder_key, observation_of(size, structure)[1])
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    network = make(network_key, input_size - size + features)
    return Encoded(params, network, encoder.apply, size, structure)


def init_ensemble(
    keys: Key[Array, " member"],
    input_size: int,
    make: Callable[[Array, int], Any],
    problem: Problem,
    config: AgentConfig,
) -> tuple[Any, ...]:
    """Return one new network per key, as `init_encoded` does.

    Members without an encoder are drawn together, because that compiles faster. A user's
    `init` is called for one member at a time.
    """
    if config.encoder is not None or len(keys) < 2:
        return tuple(init_encoded(k, input_size, make, problem, config) for k in keys)
    stacked = jax.vmap(lambda key: make(key, input_size))(keys)
    return tuple(jax.tree.map(itemgetter(i), stacked) for i in range(len(keys)))


def fold_in_each(key: Key[Array, ""], count: int) -> Key[Array, " count"]:
    """Return the key with each of the numbers from 0 to `count` - 1 folded in."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count))


def encode(
    network: Any, rows: Float[Array, "batch input"]
) -> tuple[Any, Float[Array, "batch feature"]]:
    """Return the network behind the encoder, and its input rows.

    These rows contain features in place of the observation. If there is no encoder, the
    network and the rows are returned unchanged.
    """
    if not isinstance(network, Encoded):
        return network, rows

    def features(row: Float[Array, " observation"]) -> Array:
        observation = unflatten(row, network.structure)
        return network.apply(network.encoder, observation).astype(jnp.float32)

    observations, rest = jnp.split(rows, [network.size], axis=-1)
    return network.network, jnp.concatenate(
        [jax.vmap(features)(observations), rest], axis=-1
    )


def unflatten(flat: Float[Array, " observation"], structure: str) -> Any:
    """Return a flat observation in its original shape: the inverse of `policy.flatten`.

    An observation of a Dict or Tuple space becomes a dict or tuple of arrays again. An
    observation of a Discrete space stays a one-hot vector.
    """
    return _unflatten(flat, json.loads(structure))[0] if structure else flat


def _unflatten(flat: Array, structure: dict[str, Any]) -> tuple[Any, Array]:
    """Return the value at the start of a flat array, and the rest of the array."""
    kind = structure["kind"]
    if kind == "box":
        size = math.prod(structure["shape"])
        return flat[:size].reshape(structure["shape"]), flat[size:]
    if kind == "choices":
        size = sum(structure["n"])
        return flat[:size], flat[size:]
    parts, values = structure["parts"], []
    for part in parts.values() if kind == "dict" else parts:
        value, flat = _unflatten(flat, part)
        values.append(value)
    if kind == "dict":
        return dict(zip(parts, values, strict=True)), flat
    return tuple(values), flat


def observation_of(size: int, structure: str) -> tuple[Any, Any]:
    """Return a placeholder for an observation, and the shape that `init` receives."""
    flat = jax.ShapeDtypeStruct((size,), jnp.float32)
    observation = jax.eval_shape(partial(unflatten, structure=structure), flat)
    return observation, jax.tree.map(lambda x: x.shape, observation)


@lru_cache(maxsize=64)
def feature_size(encoder: Encoder, size: int, structure: str) -> int:
    """Return the number of features of one observation.

    The encoder's functions are only traced, not run. If one of them is invalid, a
    `ValueError` says why.
    """
    what = f"encoder {encoder.name!r}"
    observation, shape = observation_of(size, structure)

    def trace(function: str, *arguments: Any) -> Any:
        try:
            return jax.eval_shape(*arguments)
        except Exception as error:  # The user's function may raise anything.
            reason = (str(error).splitlines() or [""])[0].rstrip(".")
            raise ValueError(
                f"{what}: {function} fails for an observation of shape {shape}: "
                f"{type(error).__name__}: {reason}."
            ) from error

    def init(key: Array) -> Any:
        return jax.tree.map(jnp.asarray, encoder.init(key, shape))

    params = trace("init(key, observation_shape)", init, jax.random.key(0))
    for leaf in jax.tree.leaves(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"{what}: the parameters that init returns must be arrays of floats, which "
                f"can be trained, got {leaf.dtype}. Keep constants inside apply."
            )
    features = trace("apply(params, observation)", encoder.apply, params, observation)
    if not isinstance(features, jax.ShapeDtypeStruct):
        found = f"a {type(features).__name__}"
    elif features.ndim != 1 or not features.size:
        found = f"an array of shape {features.shape}"
    elif not jnp.issubdtype(features.dtype, jnp.floating):
        found = f"an array of {features.dtype}"
    else:
        return features.size
    raise ValueError(
        f"{what}: apply(params, observation) must return a vector of float features of "
        f"one observation, got {found}. .reshape(-1) makes a vector. orac itself applies the "
        "function to batches."
    )
