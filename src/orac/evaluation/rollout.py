"""Roll a policy out and keep every episode: tail metrics cannot be rebuilt from means.

The risk of a table and the risk of a critic are the same function, `risk.risk_of`: a dot
product of quantiles with the weights of a risk measure. Episodes are quantiles once they
are sorted (`risk.sample_risk`); critics of the dual form alone have `risk.dual_risk`.
A policy is any function of a batch of observations; nothing here knows how it was made.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from orac.config.schema import Constraint
from orac.core import risk
from orac.envs.base import Environment, reset_batch
from orac.envs.gym_adapter.make import HostEnv

KINDS = {"path": {"long": 1, "guarded": -1, "none": 0}}
"""Metrics that name a kind of episode: the shares of the kinds are summarised."""

SIDE_BY_SIDE = 10_000
"""Most episodes that are played at once: each holds a world in memory."""
MOST_EPISODES = 10_000_000
"""Every episode's row is kept; more of them would not fit, or not end."""

Policy = Callable[[Any, Array, Array], Array]
"""(parameters, key, observations) to actions in the environment's own box."""


@dataclass(frozen=True)
class Episodes:
    """One entry per episode, in order. Costs are undiscounted sums."""

    reward: np.ndarray
    cost: np.ndarray
    """(episode, constraint)"""
    length: np.ndarray
    metrics: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reward)

    def rows(self, cost_names: Sequence[str]) -> list[dict[str, float]]:
        """One plain row per episode, as `evaluations.csv` has them."""
        return [
            {
                "episode": i,
                "reward": float(self.reward[i]),
                **{
                    cost_column(name): float(self.cost[i, m])
                    for m, name in enumerate(cost_names)
                },
                "length": int(self.length[i]),
                **{name: float(values[i]) for name, values in self.metrics.items()},
            }
            for i in range(len(self))
        ]


def cost_column(name: str) -> str:
    """Column of a constraint's cost: `cost` itself, others as `cost/name`."""
    return name if name == "cost" else f"cost/{name}"


@partial(jax.jit, static_argnames=("env", "policy", "episodes"))
def _roll_out(
    key: Key[Array, ""], params: Any, env: Environment, policy: Policy, episodes: int
) -> tuple[Array, Array, Array, dict[str, Array]]:
    reset_key, run_key = jax.random.split(key)
    state, observation = reset_batch(env, reset_key, episodes)
    spec = env.spec
    totals = (
        jnp.zeros(episodes),
        jnp.zeros((episodes, spec.num_costs)),
        jnp.zeros(episodes, jnp.int32),
        {name: jnp.zeros(episodes) for name in spec.metric_names},
    )

    def going(carry: Any) -> Array:
        t, *_, done = carry
        limit = spec.episode_length or 1_000_000
        return (t < limit) & ~done.all()

    def step(carry: Any) -> Any:
        t, state, observation, (reward, cost, length, metrics), done = carry
        action_key, env_key = jax.random.split(jax.random.fold_in(run_key, t))
        action = policy(params, action_key, observation)
        keys = jax.random.split(env_key, episodes)
        state, now = jax.vmap(env.step)(keys, state, action)
        live = ~done
        totals = (
            reward + now.reward * live,
            cost + now.cost * live[:, None],
            length + live,
            {
                name: jnp.where(live, now.metrics[name], metrics[name])
                for name in metrics
            },
        )
        return t + 1, state, now.observation, totals, done | now.done

    start = (jnp.int32(0), state, observation, totals, jnp.zeros(episodes, bool))
    return jax.lax.while_loop(going, step, start)[3]


def roll_out(
    key: Key[Array, ""], params: Any, env: Environment, policy: Policy, episodes: int
) -> Episodes:
    """Whole episodes of a policy, side by side on device, one environment each."""
    check_episodes(episodes)
    batches = -(-episodes // SIDE_BY_SIDE)
    keys = (
        [jax.random.fold_in(key, i) for i in range(batches)] if batches > 1 else [key]
    )
    # Batches of one size are one program; the few episodes too many are cut.
    size = -(-episodes // batches)
    parts = [
        jax.tree.map(np.asarray, _roll_out(one, params, env, policy, size))
        for one in keys
    ]
    reward, cost, length, metrics = jax.tree.map(
        lambda *arrays: np.concatenate(arrays)[:episodes], *parts
    )
    return Episodes(
        reward.astype(np.float64),
        cost.astype(np.float64),
        length,
        {name: values.astype(np.float64) for name, values in metrics.items()},
    )


def check_episodes(episodes: int) -> None:
    """Refuse a number of episodes that cannot be played and kept."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise ValueError(
            f"episodes must be at least 1 and at most {MOST_EPISODES:,}, got {episodes:,}."
        )


def roll_out_host(
    key: Key[Array, ""],
    policy: Callable[[Array, np.ndarray], Any],
    env: HostEnv,
    episodes: int,
) -> Episodes:
    """Whole episodes in environments on the host, the same number from each.

    An environment that ends its episodes sooner does not get to contribute more of them:
    taking the first to finish would favour short episodes.
    """
    check_episodes(episodes)
    num_envs, spec = env.num_envs, env.spec
    wanted = np.full(num_envs, episodes // num_envs)
    wanted[: episodes % num_envs] += 1
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(num_envs)]
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    observation = env.reset(seed=seed)
    reward, length = np.zeros(num_envs), np.zeros(num_envs, int)
    cost = np.zeros((num_envs, spec.num_costs))
    round_number = 0
    while any(len(rows) < count for rows, count in zip(found, wanted, strict=True)):
        action = policy(jax.random.fold_in(key, round_number), observation)
        step = env.step(np.asarray(action))
        round_number += 1
        observation = step.observation
        reward += np.where(step.valid, step.reward, 0)
        cost += np.where(step.valid[:, None], step.cost, 0)
        length += step.valid
        for i in np.flatnonzero((step.terminated | step.truncated) & step.valid):
            metrics = {name: float(values[i]) for name, values in step.metrics.items()}
            if len(found[i]) < wanted[i]:
                found[i].append((reward[i], cost[i].copy(), length[i], metrics))
            reward[i], cost[i], length[i] = 0, 0, 0
    rows = [row for per_env in found for row in per_env]
    return Episodes(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]).reshape(len(rows), spec.num_costs),
        np.array([row[2] for row in rows]),
        {name: np.array([row[3][name] for row in rows]) for name in spec.metric_names},
    )


def risk_of_episodes(costs: np.ndarray, measure: risk.RiskMeasure) -> float:
    """The critics' own risk function on a column of episode costs, in double precision."""
    with jax.enable_x64(True):
        return float(risk.sample_risk(jnp.asarray(costs, jnp.float64), measure))


def summarise(
    episodes: Episodes,
    constraints: Sequence[Constraint],
    cost_names: Sequence[str],
    tails: Sequence[float] = (),
) -> dict[str, float]:
    """The numbers that decide about a policy, by name."""
    summary: dict[str, float] = {
        "episodes": len(episodes),
        "reward/mean": float(episodes.reward.mean()),
        "length/mean": float(episodes.length.mean()),
    }
    limits = {constraint.name: constraint for constraint in constraints}
    for m, name in enumerate(cost_names):
        costs, prefix = episodes.cost[:, m], cost_column(name)
        constraint = limits.get(name)
        summary[f"{prefix}/mean"] = float(costs.mean())
        summary[f"{prefix}/worst"] = float(costs.max())
        wanted: set[float] = {*tails}
        if constraint:
            wanted.add(constraint.tail)
        for tail in sorted(wanted):
            summary[f"{prefix}/cvar_{tail:g}"] = risk_of_episodes(
                costs, risk.cvar(tail)
            )
            summary[f"{prefix}/var_{tail:g}"] = value_at_risk(costs, tail)
        if constraint:
            summary[f"{prefix}/risk"] = risk_of_episodes(costs, constraint.measure)
            summary[f"{prefix}/limit"] = constraint.limit
            summary[f"{prefix}/violation_rate"] = float(
                # Written so that a cost which is not a number counts as a violation.
                (~(costs <= constraint.limit)).mean()
            )
    for name, values in episodes.metrics.items():
        kinds = KINDS.get(name, {})
        if kinds and np.isin(values, [*kinds.values()]).all():
            for word, kind in kinds.items():
                summary[f"env/{name}_{word}"] = float((values == kind).mean())
            continue
        known = values[~np.isnan(values)]
        summary[f"env/{name}"] = float(known.mean()) if len(known) else math.nan
    return summary


def value_at_risk(costs: np.ndarray, tail: float) -> float:
    """Smallest cost that at least 1 - tail of the episodes do not exceed."""
    rank = math.ceil(len(costs) * (1 - tail) - 1e-9)
    return float(np.sort(costs)[max(rank - 1, 0)])
