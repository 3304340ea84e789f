"""Interface of JAX environments, and functions that reset and step a batch of them.

An environment is a hashable object, such as a frozen dataclass, with a `spec` and two pure
functions, `reset` and `step`, written for a single environment. `reset_batch` and
`step_batch` apply them to a batch of environments. The cost of a step has one entry per
constraint, and `terminated` and `truncated` are separate flags. `Step.observation` is
always the observation that the action led to, even if the episode ended. `step_batch`
returns the first observation of the new episode separately.

An environment declares each of its metrics once, as a `MetricSpec`. Evaluation, reports
and experiments read `EnvSpec.metrics` or, without making the environment,
`registry.metrics_of`.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

EnvState = Any
"""State of an episode: a pytree of arrays that only the environment itself reads."""
Better = Literal["higher", "lower", ""]
"""Whether higher or lower values are better; empty if neither is."""


class MetricLabel(NamedTuple):
    """One kind of episode that a metric distinguishes, such as a path in the maze."""

    code: int
    """Value of the metric at the end of such an episode."""
    name: str
    """Suffix used in summaries: the share of these episodes is reported as `<metric>_<name>`."""
    title: str
    """Title of that share in reports."""
    better: Better = ""


@dataclass(frozen=True)
class MetricSpec:
    """Declaration of one metric. An episode gets the metric's value at its last step."""

    name: str
    title: str = ""
    """Title in reports. If it is left empty, the name is used."""
    better: Better = ""
    low: float | None = None
    """Smallest possible value; None when unknown."""
    high: float | None = None
    """Largest possible value; None when unknown."""
    labels: tuple[MetricLabel, ...] = ()
    """Kinds of episodes, if the metric's values are codes instead of quantities."""
    hidden: bool = False
    """Whether the metric must be hidden from agents until the episode ends."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)


@dataclass(frozen=True)
class EnvSpec:
    """Sizes, bounds and names of an environment, which are known before its first step."""

    name: str
    observation_size: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    episode_length: int | None
    """Maximum number of steps of an episode; None when there is no time limit."""
    cost_names: tuple[str, ...] = ("cost",)
    cost_bounds: tuple[float, ...] | None = None
    """Maximum cost of one episode, per constraint; None when unknown."""
    metrics: tuple[MetricSpec, ...] = ()
    """Metrics that `Step.metrics` reports, in order."""
    observation_low: tuple[float, ...] | None = None
    observation_high: tuple[float, ...] | None = None
    """Bounds of the observations; None when unknown."""
    observation_structure: str = ""
    """Structure of the observations before they were flattened, as JSON for
    `orac.policy.flatten`; empty if they were vectors or cannot be described."""

    @property
    def action_size(self) -> int:
        """Number of entries of an action."""
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
        """Number of costs of a step, one per constraint."""
        return len(self.cost_names)


class Step(NamedTuple):
    """Result of one step. In a batch every field has a leading axis."""

    observation: Float[Array, "*batch observation"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch constraint"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    metrics: dict[str, Array]

    @property
    def done(self) -> Bool[Array | np.ndarray, "*batch"] | np.bool_:
        """Whether the episode ended, for either reason."""
        return self.terminated | self.truncated


@runtime_checkable
class Environment(Protocol):
    """A single environment. Its actions lie within the bounds of its spec."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes, bounds and names."""
        ...

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Array]:
        """Start an episode; return its state and first observation."""
        ...

    def step(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, " action"]
    ) -> tuple[EnvState, Step]:
        """Take one step; return the next state and the result."""
        ...


@runtime_checkable
class BatchedEnvironment(Environment, Protocol):
    """An environment that resets and steps a batch of independent copies from one key.

    A small environment spends most of its time on drawing random bits, and one key per
    copy would double that time. The results must have the same distribution as those of
    `reset` and `step`, but may differ for the same key.
    """

    def reset_many(self, key: Key[Array, ""], num_envs: int) -> tuple[EnvState, Array]:
        """Start `num_envs` independent episodes."""
        ...

    def step_many(
        self, key: Key[Array, ""], state: EnvState, action: Float[Array, "batch action"]
    ) -> tuple[EnvState, Step]:
        """Take one step of every copy."""
        ...


def reset_batch(
    env: Environment, key: Key[Array, ""], num_envs: int
) -> tuple[EnvState, Float[Array, "batch observation"]]:
    """Start `num_envs` independent episodes; return states and first observations."""
    if isinstance(env, BatchedEnvironment):
        return env.reset_many(key, num_envs)
    return jax.vmap(env.reset)(jax.random.split(key, num_envs))


def step_batch(
    env: Environment,
    key: Key[Array, ""],
    state: EnvState,
    action: Float[Array, "batch action"],
) -> tuple[EnvState, Float[Array, "batch observation"], Step]:
    """Step every environment and restart the ones whose episode ended.

    Returns the states and observations for the next action, and the results of this
    step. Resets are computed only if an episode ended, because a reset can take longer
    than a step: CityLearn draws the power outages of a whole month.
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


def check_shapes(env: Environment) -> None:
    """Raise an error if the outputs of an environment do not have the shapes of its spec.

    Without this check, a single cost would be broadcast and count for every constraint.
    Nothing is computed.
    """
    spec, num_envs = env.spec, 2
    expected = {
        "observation": ((spec.observation_size,), "`observation_size` entries"),
        "reward": ((), "a single number"),
        "cost": (
            (spec.num_costs,),
            f"one entry per cost: {', '.join(spec.cost_names)}",
        ),
        "terminated": ((), "a single flag"),
        "truncated": ((), "a single flag"),
    }

    def check(method: str, found: dict[str, Any]) -> None:
        for name, value in found.items():
            (shape, reason), got = expected[name], getattr(value, "shape", None)
            if got != (num_envs, *shape):
                arrived = f"a {type(value).__name__}"
                if got is not None:
                    arrived = f"the shape {got[1:]}"
                raise ValueError(
                    f"{method} of the environment {spec.name} must return the {name} of one "
                    f"environment with the shape {shape} ({reason}), got {arrived}. Correct "
                    f"the {name} or the spec."
                )

    def outputs(key: Array, action: Array) -> dict[str, Any]:
        state, observation = reset_batch(env, key, num_envs)
        keys = jax.random.split(key, num_envs)
        found: dict[str, Any] = {"reset": {"observation": observation}}
        step = jax.vmap(env.step)(keys, state, action)[1]
        found["step"] = {name: getattr(step, name) for name in expected}
        if isinstance(env, BatchedEnvironment):
            step = env.step_many(key, state, action)[1]
            found["step_many"] = {name: getattr(step, name) for name in expected}
        return found

    action = jax.ShapeDtypeStruct((num_envs, spec.action_size), jnp.float32)
    for method, found in jax.eval_shape(outputs, jax.random.key(0), action).items():
        check(method, found)


def to_box(
    spec: EnvSpec, action: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """Scale an agent's action from [-1, 1] to the bounds of the environment."""
    low, high = jnp.array(spec.action_low), jnp.array(spec.action_high)
    return low + (action + 1) / 2 * (high - low)
