"""Environments of Brax and MuJoCo Playground as JAX environments.

`brax:halfcheetah` and `playground:CartpoleBalance` name one of theirs; an object of either
library works too. Its cost is computed by a function written with `jax.numpy`, or read
from its metrics. The raw environment is stepped and the time limit is counted here,
because their own episode wrappers report a time limit as the end of an episode and replace
the last observation by the first one of the next episode.
"""

import importlib
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

EPISODE_LENGTH = 1000
"""Steps of an episode if neither the user nor the environment says otherwise."""
WRAPPERS = ("EpisodeWrapper", "AutoResetWrapper", "BraxAutoResetWrapper", "VmapWrapper")
"""Wrappers of both libraries that count, restart or batch episodes, which we do."""
COLUMNS = ("env_steps", "env", "episode", "reward", "cost", "length")
"""Columns of a run's tables, which metrics must not have as names."""
BRAX_OPTIONS = ("cost_keys", "cost_bound")
"""Options of an agent in such an environment, of those for environments on the host."""
COMPILED = (
    "The step of this environment is compiled, so write it with jax.numpy: "
    "jnp.where(condition, 1.0, 0.0) instead of float(condition) or if."
)

JaxCostFn = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""Function of (obs, action, next_obs, info) of JAX arrays, without a batch axis."""


@dataclass(frozen=True)
class BraxEnv:
    """One environment of Brax or MuJoCo Playground, with a cost and a time limit."""

    env: Any = field(compare=False, repr=False)
    key: Any
    """What two equal environments share: the id and its parameters, or the object."""
    name: str
    episode_length: int
    cost_fn: JaxCostFn | None
    """Computes the costs; None: they are the metrics of `cost_keys`."""
    cost_names: tuple[str, ...]
    cost_keys: tuple[str, ...]
    cost_bounds: tuple[float, ...] | None = None

    @cached_property
    def _reset(self) -> Any:
        """Their reset, compiled: its operations one by one would take minutes."""
        return jax.jit(self.env.reset)

    @cached_property
    def _first(self) -> Any:
        """Shapes of the state after a reset."""
        return jax.eval_shape(self._reset, jax.random.key_data(jax.random.key(0)))

    @cached_property
    def _metric_names(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, value in sorted(self._first.metrics.items())
            if value.shape == () and name not in (*COLUMNS, *self.cost_keys)
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
            vector(self._first.obs, jax.eval_shape).shape[0],
            (-1.0,) * size,
            (1.0,) * size,
            self.episode_length,
            self.cost_names,
            self.cost_bounds,
            tuple(MetricSpec(name) for name in self._metric_names),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Array]:
        """Start an episode; return its state and first observation."""
        # Keys of the old kind are plain arrays, which a checkpoint can hold.
        state = self._reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), vector(state.obs)

    def step(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, " action"]
    ) -> tuple[EnvState, Step]:
        """Take one step; return the next state and the result."""
        before, steps = state
        # Their steps change the dicts of the state that they are given.
        own = jax.tree.map(lambda leaf: leaf, before)
        after = self.env.step(own, action)
        after = jax.tree.map(
            lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, before
        )
        observation = vector(after.obs)
        terminated = jnp.asarray(after.done).astype(bool)
        step = Step(
            observation,
            jnp.asarray(after.reward, jnp.float32),
            self._cost(vector(before.obs), action, observation, after),
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
            found = self.cost_fn(observation, action, next_observation, info)
        else:
            found = [info[key] for key in self.cost_keys]
        parts = jax.tree.leaves(found)
        costs = [jnp.asarray(part, jnp.float32).reshape(-1) for part in parts]
        return jnp.concatenate([*costs, jnp.zeros(0, jnp.float32)])

    def check(self) -> None:
        """Raise an error if the cost is missing, or a step cannot be compiled."""
        if "truncation" in self._first.info:
            raise ValueError(
                f"{self.name} must not count its own time limit, but it is inside an "
                "EpisodeWrapper. Pass the environment without it, and episode_length=."
            )
        known = sorted({**self._first.info, **self._first.metrics})
        for name in self.cost_keys:
            if name not in known:
                raise ValueError(
                    f"{self.name} reports no cost: {name!r} is not among its metrics "
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
                f"the cost function of {self.name} cannot be compiled. {COMPILED}"
            ) from error
        if step.cost.shape != (len(self.cost_names),):
            raise ValueError(
                f"the cost function of {self.name} must return one number for each of the "
                f"{len(self.cost_names)} constraints ({', '.join(self.cost_names)}), got "
                f"{step.cost.shape[0]}."
            )


def vector(observation: Any, run: Any = None) -> Any:
    """Return an observation as one vector.

    Of a dict that has the entry `state`, only this is used, because the others are
    privileged: a policy that is deployed does not see them.
    """
    if isinstance(observation, Mapping) and "state" in observation:
        observation = observation["state"]

    def join(tree: Any) -> Array:
        leaves = [
            jnp.asarray(x, jnp.float32).reshape(-1) for x in jax.tree.leaves(tree)
        ]
        return jnp.concatenate(leaves)

    return run(join, observation) if run else join(observation)


def is_brax_like(env: Any) -> bool:
    """Return whether this is an environment object of Brax or MuJoCo Playground."""
    names = ("reset", "step", "observation_size", "action_size")
    # Asking the object itself would compute its sizes, which takes seconds.
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
    if declared is None:
        declared = getattr(getattr(env, "_config", None), "episode_length", None)
    length = episode_length or declared or EPISODE_LENGTH
    check_count("episode_length", length)
    names = tuple(cost_names)
    keys = tuple(cost_keys or names) if cost_fn is None else ()
    if keys and len(keys) != len(names):
        raise ValueError(
            f"cost_keys must name one metric for each of the {len(names)} constraints, got "
            f"{len(keys)}."
        )
    bounds = None
    if cost_bound is not None:
        several = isinstance(cost_bound, Sequence)
        bounds = tuple(cost_bound) if several else (cost_bound,)
        for bound in bounds:
            check_range("cost_bound", bound, 0)
        if len(bounds) != len(names):
            raise ValueError(
                f"cost_bound must have one number for each of the {len(names)} "
                f"constraints, got {len(bounds)}."
            )
    adapted = BraxEnv(env, key, name, length, cost_fn, names, keys, bounds)
    adapted.check()
    return adapted


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
            f"{env_id} needs {package}: pip install {package} ({error})."
        ) from error
    known = found._envs if library == "brax" else found.registry.ALL_ENVS
    check_choice(f"An environment of {package}", name, sorted(known))
    with warnings.catch_warnings():
        # Brax warns that it is no longer developed, and MuJoCo about old fields of models.
        warnings.simplefilter("ignore")
        if library == "brax":
            return found.get_environment(name, **params)
        return found.registry.load(name, config_overrides=dict(params) or None)
