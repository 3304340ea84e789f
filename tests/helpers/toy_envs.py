"""A JAX environment with known observations, rewards and costs."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from orac.envs.base import EnvSpec, MetricSpec, Step


@dataclass(frozen=True)
class Counter:
    """Counts its steps from a random start in the hundreds; ends at its third step.

    The observation is the start plus the count; costs are the count and, with two
    constraints, ten times the count. Odd starts terminate, even ones are truncated.
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
    """The same environment, which draws a whole batch from one key."""

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
