"""A JAX environment with known observations, rewards and costs."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from orac.envs.base import EnvSpec, MetricSpec, Step


@dataclass(frozen=True)
class Counter:
    """Counts steps from a start that is a random multiple of 100; ends at the third step.

    The observation is the start plus the count. The cost is the count, and a second cost is
    ten times the count. Starts at odd multiples terminate, the others are truncated.
    """

    num_costs: int = 1

    @property
    def spec(self):
        return EnvSpec(
            name="Counter",
            observation_size=1,
            action_low=(-2.0,),
            action_high=(2.0,),
            episode_length=3,
            cost_names=("first", "second")[: self.num_costs],
            cost_bounds=(6.0, 60.0)[: self.num_costs],
            metrics=(MetricSpec("count"), MetricSpec("secret", hidden=True)),
        )

    def reset(self, key):
        start = 100.0 * jax.random.randint(key, (), 1, 1000)
        return (start, jnp.zeros((), jnp.int32)), start[None]

    def step(self, key, state, action):
        start, count = state[0], state[1] + 1
        is_last = count == 3
        is_odd = start % 200 == 100
        step = Step(
            observation=(start + count)[None],
            reward=action[0],
            cost=count * jnp.array([1.0, 10.0])[: self.num_costs],
            terminated=is_last & is_odd,
            truncated=is_last & ~is_odd,
            metrics={"count": count, "secret": start},
        )
        return (start, count), step


@dataclass(frozen=True)
class BatchedCounter:
    """A `Counter` that has only the methods for whole batches, with one key per batch."""

    inner: Counter = Counter()

    @property
    def spec(self):
        return self.inner.spec

    def reset(self, key):
        raise AssertionError("a batched environment must use reset_many and step_many")

    step = reset

    def reset_many(self, key, num_envs):
        return jax.vmap(self.inner.reset)(jax.random.split(key, num_envs))

    def step_many(self, key, state, action):
        return jax.vmap(self.inner.step, (None, 0, 0))(key, state, action)


@dataclass(frozen=True)
class TwoKindsOfStart:
    """One step from one of two kinds of start. Actions above 0 take door B, others door A.

    The observation shows the kind. Door A costs 0 and earns 0. Door B earns 1; it costs 0
    from the first kind of start and 10 from the second. If B is always taken, the CVaRs of
    the two kinds have a mean of 5, and the CVaR of all episodes at tail 0.5 is 10.
    """

    cost_scale: float = 1.0

    @property
    def spec(self):
        return EnvSpec(
            name="TwoKindsOfStart",
            observation_size=2,
            action_low=(-1.0,),
            action_high=(1.0,),
            episode_length=1,
            cost_names=("cost",),
            cost_bounds=(10.0 * self.cost_scale,),
        )

    def reset(self, key):
        second = jax.random.bernoulli(key)
        return second, jnp.where(second, jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]))

    def step(self, key, state, action):
        takes_b = action[0] > 0
        return state, Step(
            observation=jnp.zeros(2),
            reward=jnp.where(takes_b, 1.0, 0.0),
            cost=self.cost_scale * jnp.where(takes_b & state, 10.0, 0.0)[None],
            terminated=jnp.array(True),
            truncated=jnp.array(False),
            metrics={},
        )
