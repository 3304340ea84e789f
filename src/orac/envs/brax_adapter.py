"""Environments of Brax and MuJoCo Playground as JAX environments.

An id such as `brax:halfcheetah` or `playground:CartpoleBalance` names an environment of one
of these libraries. An environment object can be passed instead of an id. The cost is
computed by a function written with `jax.numpy`, or read from the environment's info and
metrics. This module steps the environment without its episode wrapper and counts the steps
itself, because the wrappers of both libraries report a time limit as the end of an episode
and replace the last observation by the first one of the next episode.

MuJoCo Playground has several implementations of its physics. Only the one written in JAX
(`impl="jax"`) can be compiled into training. Ids of Playground are made with it, although
the default of Playground is MuJoCo Warp.
"""

import importlib
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from orac.config.validation import check_choice, check_count, check_range
from orac.envs.base import EnvSpec, EnvState, MetricSpec, Step
from orac.envs.registry import LIBRARIES
from orac.envs.user_code import call_cost_fn

EPISODE_LENGTH = 1000
"""Number of steps of an episode if neither the user nor the environment sets it."""
WRAPPERS = ("EpisodeWrapper", "AutoResetWrapper", "BraxAutoResetWrapper", "VmapWrapper")
"""Wrappers of both libraries that count, restart or batch episodes. `adapt` removes them,
because training does all of this itself."""
RESERVED_METRIC_NAMES = ("env_steps", "env", "episode", "reward", "cost", "length")
"""Columns of a run's tables. Metrics with these names are left out."""
BRAX_OPTIONS = ("cost_keys", "cost_bound")
"""Options for Gymnasium environments that environments of both libraries accept too."""
COMPILE_ADVICE = (
    "The steps of this environment are compiled, so write the function with jax.numpy: "
    "jnp.where(condition, 1.0, 0.0) instead of float(condition) or if."
)

PHYSICS = "jax"
"""The implementation of MuJoCo Playground's physics that can be compiled into training."""

JaxCostFn = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""Function of (observation, action, next_observation, info).

The arguments are JAX arrays without a batch axis."""


@dataclass(frozen=True)
class BraxEnv:
    """One environment of Brax or MuJoCo Playground, with a cost and a time limit."""

    env: Any = field(compare=False, repr=False)
    key: Any
    """The id and its parameters, or the environment object. `==` compares it, not `env`."""
    name: str
    episode_length: int
    cost_fn: JaxCostFn | None
    """Function that computes the costs. If it is None, the costs are read from the
    environment's info and metrics under `cost_keys`."""
    cost_names: tuple[str, ...]
    cost_keys: tuple[str, ...]
    cost_bounds: tuple[float, ...] | None = None

    @cached_property
    def _reset(self) -> Any:
        """The compiled `reset` of the environment, which takes minutes if not compiled."""
        return jax.jit(self.env.reset)

    @cached_property
    def _reset_shapes(self) -> Any:
        """Shapes of the state after a reset."""
        return jax.eval_shape(self._reset, jax.random.key_data(jax.random.key(0)))

    @cached_property
    def _metric_names(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, value in sorted(self._reset_shapes.metrics.items())
            if value.shape == ()
            and name not in (*RESERVED_METRIC_NAMES, *self.cost_keys)
            if not name.startswith("cost/")
        )

    @property
    def spec(self) -> EnvSpec:
        """Sizes, bounds and names. Actions are in [-1, 1], as both libraries expect."""
        return self._spec

    @cached_property
    def _spec(self) -> EnvSpec:
        size = int(self.env.action_size)
        return EnvSpec(
            self.name,
            jax.eval_shape(flatten_observation, self._reset_shapes.obs).shape[0],
            (-1.0,) * size,
            (1.0,) * size,
            self.episode_length,
            self.cost_names,
            self.cost_bounds,
            tuple(MetricSpec(name) for name in self._metric_names),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Array]:
        """Start an episode; return its state and first observation."""
        # Environments of both libraries expect a key of the old kind: a plain array.
        state = self._reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), flatten_observation(state.obs)

    def step(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, " action"]
    ) -> tuple[EnvState, Step]:
        """Take one step; return the next state and the result."""
        before, steps = state
        # The environment's `step` changes the dicts in its argument, so it gets a copy.
        copy = jax.tree.map(lambda leaf: leaf, before)
        after = self.env.step(copy, action)
        after = jax.tree.map(
            lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, before
        )
        observation = flatten_observation(after.obs)
        terminated = jnp.asarray(after.done).astype(bool)
        step = Step(
            observation,
            jnp.asarray(after.reward, jnp.float32),
            self._cost(flatten_observation(before.obs), action, observation, after),
            terminated,
            (steps + 1 >= self.episode_length) & ~terminated,
            {n: after.metrics[n].astype(jnp.float32) for n in self._metric_names},
        )
        return (after, steps + 1), step

    def _cost(
        self, observation: Array, action: Array, next_observation: Array, state: Any
    ) -> Array:
        info = {**state.info, **state.metrics}
        if self.cost_fn is not None:
            values = observation, action, next_observation, info
            found = call_cost_fn(self.cost_fn, *values)
        else:
            found = [info[key] for key in self.cost_keys]
        parts = jax.tree.leaves(found)
        costs = [jnp.asarray(part, jnp.float32).reshape(-1) for part in parts]
        return jnp.concatenate([*costs, jnp.zeros(0, jnp.float32)])

    def check(self) -> None:
        """Raise an error if the cost is missing, or if a step cannot be compiled.

        An environment that counts its own time limit raises an error too.
        """
        if "truncation" in self._reset_shapes.info:
            raise ValueError(
                f"{self.name} must not count its own time limit, but it is inside an "
                "EpisodeWrapper. Pass the environment without the wrapper, and "
                "episode_length=."
            )
        known = sorted({**self._reset_shapes.info, **self._reset_shapes.metrics})
        for name in self.cost_keys:
            if name not in known:
                raise ValueError(
                    f"{self.name} reports no cost: {name!r} is not in its info or metrics "
                    f"({', '.join(known) or 'none'}). Compute the cost with cost_fn=, or "
                    "name metrics with cost_keys=."
                )
        key = jax.random.key(0)
        try:
            state, _ = jax.eval_shape(self.reset, key)
            action = jnp.zeros(int(self.env.action_size))
            _, step = jax.eval_shape(self.step, key, state, action)
        except (
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerArrayConversionError,
        ) as error:
            raise ValueError(
                f"a step of {self.name} with its cost cannot be compiled. {COMPILE_ADVICE}"
            ) from error
        if step.cost.shape != (len(self.cost_names),):
            source = "cost function" if self.cost_fn else "cost metrics"
            raise ValueError(
                f"the {source} of {self.name} must give one number per constraint "
                f"({', '.join(self.cost_names)}), got {step.cost.shape[0]}."
            )


def flatten_observation(observation: Any) -> Array:
    """Return an observation as one vector.

    If the observation is a dict with the entry `state`, only this entry is used. The other
    entries are privileged: a deployed policy does not see them.
    """
    if isinstance(observation, Mapping) and "state" in observation:
        observation = observation["state"]
    leaves = jax.tree.leaves(observation)
    return jnp.concatenate([jnp.asarray(x, jnp.float32).reshape(-1) for x in leaves])


def is_brax_like(env: Any) -> bool:
    """Return whether this is an environment object of Brax or MuJoCo Playground."""
    names = ("reset", "step", "observation_size", "action_size")
    # Only the class is inspected, because reading the sizes from the object would compute
    # them, which takes seconds.
    return (
        not isinstance(env, type)
        and all(hasattr(type(env), name) for name in names)
        and not hasattr(env, "observation_space")
    )


def adapt(
    env: Any,
    *,
    params: Mapping[str, Any],
    episode_length: int | None,
    cost_fn: JaxCostFn | None,
    cost_names: Sequence[str],
    cost_keys: Sequence[str] | None = None,
    cost_bound: Any = None,
) -> BraxEnv:
    """Return the JAX environment of an id or an object of Brax or MuJoCo Playground."""
    key: Any = env
    name = env if isinstance(env, str) else type(env).__name__
    if isinstance(env, str):
        key = env, tuple(sorted(params.items()))
        env = load(env, params)
    elif params:
        raise ValueError(
            f"env_params must be left out for an environment object, got {dict(params)}. "
            "Pass them to the environment itself."
        )
    declared = None
    while type(env).__name__ in WRAPPERS:
        declared = getattr(env, "episode_length", declared)
        if getattr(env, "action_repeat", 1) != 1:
            raise ValueError(
                f"action_repeat must be 1, got {env.action_repeat}. Give the environment "
                "more frames per step instead."
            )
        env = env.env
    check_playground(env, name)
    if declared is None:
        declared = getattr(getattr(env, "_config", None), "episode_length", None)
    if declared is None:
        declared = EPISODE_LENGTH
    length = declared if episode_length is None else episode_length
    check_count("episode_length", length)
    names = tuple(cost_names)
    keys = tuple(cost_keys or names) if cost_fn is None else ()
    if keys and len(keys) != len(names):
        raise ValueError(
            f"cost_keys must name one metric per constraint ({', '.join(names)}), got "
            f"{', '.join(keys)}."
        )
    bounds = None
    if cost_bound is not None:
        several = isinstance(cost_bound, Sequence)
        bounds = tuple(cost_bound) if several else (cost_bound,)
        for bound in bounds:
            check_range("cost_bound", bound, 0)
        if len(bounds) != len(names):
            raise ValueError(
                f"cost_bound must have one number per constraint ({', '.join(names)}), "
                f"got {cost_bound}."
            )
    adapted = BraxEnv(env, key, name, length, cost_fn, names, keys, bounds)
    adapted.check()
    return adapted


def check_playground(env: Any, name: str) -> None:
    """Raise an error for an environment of MuJoCo Playground that cannot be trained in.

    Environments of Brax have neither of the attributes that are read here.
    """
    physics = getattr(getattr(env, "mjx_model", None), "impl", None)
    physics = getattr(physics, "value", physics)
    if physics not in (None, PHYSICS):
        raise ValueError(
            f"{name} must have physics that JAX can compile, but its impl is {physics!r}: "
            "make it with mujoco_playground.registry.load(NAME, "
            f'config_overrides={{"impl": "{PHYSICS}"}}), or pass "playground:NAME", where '
            "NAME is the name of the environment, such as CartpoleBalance."
        )
    config: Any = getattr(env, "_config", None)
    repeat = getattr(config, "action_repeat", 1)
    if repeat != 1:
        raise ValueError(
            f"action_repeat of {name} must be 1, got {repeat}. Make its steps longer instead, "
            f'with the parameters {{"action_repeat": 1, "ctrl_dt": {config.ctrl_dt * repeat:g}, '
            f'"episode_length": {config.episode_length // repeat}}} in env_params= or '
            "config_overrides=."
        )


def load(env_id: str, params: Mapping[str, Any]) -> Any:
    """Make the environment of an id such as `brax:halfcheetah`."""
    library, _, name = env_id.partition(":")
    package, module = LIBRARIES[library]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{env_id} needs {package}: pip install "orac-rl[{library}]" ({error}).'
        ) from error
    known = found._envs if library == "brax" else found.registry.ALL_ENVS
    check_choice(f"An environment of {package}", name, sorted(known))
    with warnings.catch_warnings():
        # Brax warns that it is no longer developed, and MuJoCo about old model fields.
        warnings.simplefilter("ignore")
        if library == "brax":
            return found.get_environment(name, **params)
        return load_playground(found.registry, name, params)


def load_playground(registry: Any, name: str, params: Mapping[str, Any]) -> Any:
    """Make an environment of MuJoCo Playground, with its physics in JAX.

    `params` change the environment's config. `registry` is Playground's own registry.
    """
    env_id = f"playground:{name}"
    config = registry.get_default_config(name).lock()
    for parameter in params:
        check_choice(f"A parameter of {env_id}", parameter.split(".")[0], list(config))
    if params.get("impl", PHYSICS) != PHYSICS:
        raise ValueError(
            f"impl of {env_id} must be {PHYSICS!r}, because no other physics can be "
            f"compiled into training, got {params['impl']!r}."
        )
    changes = dict(params)
    if "impl" in config:
        changes["impl"] = PHYSICS
    try:
        config.update_from_flattened_dict(changes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the parameters of {env_id} must fit its config: {error}"
        ) from error
    try:
        return registry.load(name, config_overrides=changes)
    except NotImplementedError as error:
        raise ValueError(
            f"{env_id} has no physics that can be compiled into training, because MuJoCo "
            f"does not implement a part of its model in JAX: {error}"
        ) from error
    except (subprocess.CalledProcessError, OSError) as error:
        raise OSError(
            f"{env_id} needs the robot models of MuJoCo Menagerie, which MuJoCo Playground "
            "downloads with git when it makes its first robot, but they cannot be read here "
            f"({str(error).rstrip('.')}): make the environment once with a connection to GitHub."
        ) from error
