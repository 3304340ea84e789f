"""What a pure JAX environment is, and how a batch of them is reset and stepped.

An environment is a hashable object (a frozen dataclass) with a `spec` and two pure
functions, `reset` and `step`, written for one environment; batches are made here.
Cost is its own value with one entry per constraint, `terminated` and `truncated` are
apart, and `Step.observation` is the true next observation, also at an episode's end:
the observation of the next episode is returned beside it, never in its place.

An environment that can draw a whole batch from one key is a `BatchedEnvironment`: random
bits are most of the cost of a small world, and a key for each environment doubles them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from orac.envs.metrics import MetricSpec

EnvState = Any
"""A pytree of arrays; only the environment that made it looks inside."""


@dataclass(frozen=True)
class EnvSpec:
    """What a learner, a logger and a certificate must know before the first step."""

    name: str
    observation_size: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    episode_length: int | None
    """Most steps an episode can have; None when there is no time limit."""
    cost_names: tuple[str, ...] = ("cost",)
    cost_bounds: tuple[float, ...] | None = None
    """Most that one episode can cost, per constraint; None when nothing is known."""
    metrics: tuple[MetricSpec, ...] = ()
    """Metrics that `Step.metrics` reports, in order."""
    observation_low: tuple[float, ...] | None = None
    observation_high: tuple[float, ...] | None = None
    """Bounds of the observations; None when nothing is known."""

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return len(self.action_low)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics, which are the keys of `Step.metrics`."""
        return tuple(metric.name for metric in self.metrics)

    @property
    def hidden_metric_names(self) -> tuple[str, ...]:
        """Names of the metrics that agents must not see before the episode has ended."""
        return tuple(metric.name for metric in self.metrics if metric.hidden)

    @property
    def num_costs(self) -> int:
        """Costs that a step has, one per constraint."""
        return len(self.cost_names)


class Step(NamedTuple):
    """What one step gives back. In a batch every field has a leading axis."""

    observation: Float[Array, "*batch observation"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch constraint"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    metrics: dict[str, Array]

    @property
    def done(self) -> Bool[Array | np.ndarray, "*batch"] | np.bool_:
        """Whether the episode is over, for either reason."""
        return self.terminated | self.truncated


@runtime_checkable
class Environment(Protocol):
    """One environment; `action` is in the environment's own box."""

    @property
    def spec(self) -> EnvSpec:
        """What must be known before the first step."""
        ...

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Array]:
        """Start an episode: its state and first observation."""
        ...

    def step(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, " action"]
    ) -> tuple[EnvState, Step]:
        """Take one step: the next state, and what it gave."""
        ...


@runtime_checkable
class BatchedEnvironment(Environment, Protocol):
    """An environment that also resets and steps independent copies from one key.

    The distribution must be that of `reset` and `step`; the draws need not be.
    """

    def reset_many(self, key: Key[Array, ""], num_envs: int) -> tuple[EnvState, Array]:
        """Start `num_envs` independent episodes."""
        ...

    def step_many(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, "batch action"]
    ) -> tuple[EnvState, Step]:
        """Take one step of each."""
        ...


def reset_batch(
    env: Environment, key: Key[Array, ""], num_envs: int
) -> tuple[EnvState, Float[Array, "batch observation"]]:
    """Start `num_envs` independent episodes."""
    if isinstance(env, BatchedEnvironment):
        return env.reset_many(key, num_envs)
    return jax.vmap(env.reset)(jax.random.split(key, num_envs))


def step_batch(
    env: Environment,
    key: Key[Array, ""],
    state: EnvState,
    action: Float[Array, "batch action"],
) -> tuple[EnvState, Float[Array, "batch observation"], Step]:
    """Step every environment and restart the ones that ended.

    Returns the states and observations to act on next, and the steps as they were.
    Resets are computed only when some episode ended: drawing a month of power outages
    at each step would cost more than the step.
    """
    num_envs = action.shape[0]
    step_key, reset_key = jax.random.split(key)
    if isinstance(env, BatchedEnvironment):
        stepped, step = env.step_many(step_key, state, action)
    else:
        step_keys = jax.random.split(step_key, num_envs)
        stepped, step = jax.vmap(env.step)(step_keys, state, action)

    def restart() -> tuple[EnvState, Array]:
        fresh, first = reset_batch(env, reset_key, num_envs)
        select = jax.vmap(
            lambda done, new, old: jax.tree.map(
                lambda a, b: jnp.where(done, a, b), new, old
            )
        )
        return select(step.done, (fresh, first), (stepped, step.observation))

    next_state, observation = jax.lax.cond(
        step.done.any(), restart, lambda: (stepped, step.observation)
    )
    return next_state, observation, step


def to_box(
    spec: EnvSpec, action: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """An action in [-1, 1], as agents have it, in the environment's own box."""
    low, high = jnp.array(spec.action_low), jnp.array(spec.action_high)
    return low + (action + 1) / 2 * (high - low)
