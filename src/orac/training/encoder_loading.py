"""Find the user's encoder, which is a pair of functions or the name of such a pair.

A name has the form `module:name`. orac imports a name that the user gives. It imports a name
that is read from a file only if the user allowed its module with `--import`. The same rule
applies to cost functions. `core.encoders` describes the two functions of an encoder.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from orac.config.schema import Config, Encoder
from orac.config.validation import shown
from orac.core import normalization
from orac.core.agent import AgentState
from orac.core.encoders import Encoded, encode
from orac.envs.user_code import (
    ALLOWED_MODULES,
    NotImported,
    can_be_imported,
    import_object,
    importable_module,
)

EncoderPair = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
"""The functions `init(key, observation_shape)` and `apply(params, observation)`."""
EXAMPLE = "For ENCODER = (init, apply) in my_networks.py write my_networks:ENCODER."


def with_encoder(config: Config, encoder: EncoderPair | str | None) -> Config:
    """Return the config with this encoder, given as a pair of functions or by name.

    If `encoder` is None, use the encoder that the config names, if any. The config may come
    from a file. So orac imports this encoder only if the user allowed its module with
    `--import`, and raises an error otherwise.
    """
    named = config.agent.encoder
    if encoder is None:
        if not isinstance(named, str):
            return config
        found = encoder_of_file(named)
    elif isinstance(encoder, str):
        found = import_encoder(encoder)
    else:
        init, apply = checked_pair(encoder, "encoder")
        found = Encoder(name_of_pair(init, apply), init, apply)
    return replace(config, agent=replace(config.agent, encoder=found))


def import_encoder(name: str) -> Encoder:
    """Import the encoder with the name `module:name`. This runs the code of the module.

    The user must have given the name, or must have allowed its module with `--import`.
    """
    what = f"encoder {name!r}"
    found = import_object(name, "encoder", "pair", EXAMPLE)
    return Encoder(name, *checked_pair(found, what))


def encoder_of_file(name: str) -> Encoder:
    """Return the encoder that a file names, if the user allowed its module (`--import`)."""
    module, _, attribute = name.partition(":")
    if module not in ALLOWED_MODULES:
        why = f"the encoder is {name!r}, and orac never imports code that a file names."
        if not can_be_imported(name):
            raise NotImported(
                module,
                why,
                "Pass the pair itself as encoder=.",
                "This pair cannot be imported by its name: write ENCODER = (init, apply) "
                "at the top level of a file, such as my_networks.py, and add --encoder "
                "my_networks:ENCODER.",
            )
        raise NotImported(
            module,
            why,
            f"Pass the pair itself as encoder=, or its name, encoder={name!r}.",
            f"Add --encoder {name} or --import {module} to the command.",
            "--encoder",
            name,
        )
    if "." in attribute:
        raise ValueError(
            f"the encoder {name!r}, which a file names, must be at the top level of "
            f"{module}, so that a file cannot use objects that this module imports. Define "
            "the pair there."
        )
    return import_encoder(name)


def checked_pair(pair: Any, what: str) -> EncoderPair:
    """Return the two functions of an encoder, or raise an error if it is not a pair."""
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2
    if not is_pair or not all(map(callable, pair)):
        raise ValueError(
            f"{what} must be a pair of functions, init(key, observation_shape) and "
            f"apply(params, observation), or the name of a pair, got {shown(pair)}. "
            f"{EXAMPLE}"
        )
    try:
        hash(tuple(pair))
    except TypeError as error:
        raise ValueError(
            f"{what} must consist of functions that can be hashed, because orac looks up "
            f"compiled programs by them: {error}. Wrap them in plain functions."
        ) from error
    return pair[0], pair[1]


def name_of_pair(init: Any, apply: Any) -> str:
    """Return the name of a pair for a config: its module and the variable that contains it.

    The modules of the two functions and the running script are searched. If none of their
    variables contains the pair, the names of the two functions, in brackets, take the place
    of the variable's name. Such a name cannot be imported.
    """
    functions = init, apply
    modules = [getattr(function, "__module__", None) for function in functions]
    for module in dict.fromkeys([*modules, "__main__"]):
        for name, value in vars(sys.modules.get(module or "", object)).items():
            is_pair = isinstance(value, tuple | list) and len(value) == 2
            if is_pair and value[0] is init and value[1] is apply:
                return f"{importable_module(module or '')}:{name}"
    parts = (
        getattr(x, "__qualname__", None) or type(x).__qualname__ for x in functions
    )
    return f"{importable_module(modules[1] or '')}:({', '.join(parts)})"


def place_of_encoder(encoder: Encoder) -> dict[str, Any]:
    """Return where an encoder is defined, for meta.json: module, file and name."""
    module, _, name = encoder.name.partition(":")
    # The script that is running is loaded as `__main__`, not under the name of its file.
    file = getattr(sys.modules.get(module, sys.modules["__main__"]), "__file__", None)
    return {"module": module, "file": file, "name": name}


def check_features(
    agent: AgentState, observation: Float[Array, "batch observation"], config: Config
) -> None:
    """Raise an error if an encoder's new parameters or its features are not finite.

    The features are computed for these observations, the first ones of the environments.
    """
    actor, encoder = agent.actor.params, config.agent.encoder
    if not isinstance(actor, Encoded) or not isinstance(encoder, Encoder):
        return
    scaled = normalization.scale(
        agent.observation_stats, jnp.asarray(observation), config.agent
    )
    for what, arrays in (
        ("parameters that init returns", jax.tree.leaves(actor.encoder)),
        (
            "features that apply returns for the environment's first observation",
            [encode(actor, scaled)[1]],
        ),
    ):
        if not all(np.isfinite(x).all() for x in arrays):
            raise ValueError(
                f"encoder {encoder.name!r}: the {what} must be finite, but they are not. Look "
                "for a division by 0, a logarithm or a root."
            )
