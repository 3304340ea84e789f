"""Choose the policy that a run delivers: the best of the policies that it evaluated.

Each evaluation measures the deployed policy, which is the current policy without
exploration. This policy becomes a candidate if each measured risk is at most
(1 - margin) times its limit, where the margin is `agent.multiplier.margin`. A small sample
can look good by chance. So a policy that would be the best candidate is tested again at once
on more episodes, and both samples are pooled. The training state contains up to
`MAX_CANDIDATES` candidates. As long as there is none, it contains the policy with the lowest
risk instead, and that policy is delivered if there is no candidate at the end.

All of this requires that `agent.multiplier.follows` is `episodes`. A run whose multiplier
follows the critics has no candidates and delivers its last policy.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from orac.config.schema import Config
from orac.core.agent import AgentState, PolicyState, deployed_policy
from orac.envs import registry
from orac.evaluation.episodes import Episodes, pool, risk_of_costs
from orac.runs.directory import valid_certificate

MAX_CANDIDATES = 10
"""Maximum number of stored candidates. The policy with the lowest risk does not count."""
RETEST_TAIL = 40
"""Number of episodes of a second test that are in the smallest tail."""
RETEST_SHARE = 0.02
"""Maximum number of steps of a second test, as a fraction of the run's steps. It does not apply
to environments whose id is that of a JAX environment."""


class Candidates(NamedTuple):
    """Evaluated policies that the run may deliver.

    All fields are NumPy arrays with a leading axis of size `MAX_CANDIDATES + 1`. The last
    entry is the policy with the lowest risk. It is used only if all other entries are empty.
    Entries with `episodes` 0 are empty. Checkpoints contain the names of the fields, so a
    renamed field would make older checkpoints unreadable.
    """

    policies: PolicyState
    samples: Bool[np.ndarray, " candidate"]
    """Whether the policy samples its actions instead of using their mean."""
    reward: Float[np.ndarray, " candidate"]
    risk: Float[np.ndarray, "candidate constraint"]
    episodes: Int[np.ndarray, " candidate"]
    steps: Int[np.ndarray, " candidate"]
    """Environment step at which the policy was evaluated."""
    retested: Bool[np.ndarray, " candidate"]
    """Whether the policy had a second test."""


class Delivered(NamedTuple):
    """A policy that the run may deliver, with its measured reward and risk."""

    policy: PolicyState
    samples: bool
    reward: float
    risk: tuple[float, ...]
    episodes: int
    step: int
    feasible: bool
    """Whether every measured risk is at most (1 - margin) times its limit."""

    def __repr__(self) -> str:
        risks = ", ".join(f"{risk:.4g}" for risk in self.risk)
        within = "within" if self.feasible else "not reliably within"
        limited = f"risk {risks}, {within} the limits" if risks else "no limits"
        return (
            f"<policy of step {self.step:,}: reward {self.reward:.4g}, {limited}, measured on "
            f"{self.episodes:,} episodes>"
        )


def init(agent: AgentState, config: Config) -> Candidates:
    """Return candidates whose entries are all empty."""
    count = MAX_CANDIDATES + 1
    blank = jax.tree.map(
        lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), deployed_policy(agent)
    )
    return Candidates(
        policies=blank,
        samples=np.zeros(count, bool),
        reward=np.zeros(count),
        risk=np.zeros((count, len(config.constraints))),
        episodes=np.zeros(count, np.int32),
        steps=np.zeros(count, np.int32),
        retested=np.zeros(count, bool),
    )


def measure_risk(episodes: Episodes, config: Config) -> np.ndarray:
    """Return, for each constraint, the risk of these episodes that training limits."""
    return np.array(
        [
            risk_of_costs(episodes.cost[:, m], config.limited_measure(constraint))
            for m, constraint in enumerate(config.constraints)
        ]
    )


def within_targets(risk: np.ndarray, config: Config) -> bool:
    """Return whether every risk is at most its target, (1 - margin) times its limit."""
    share = 1 - config.agent.multiplier.margin
    limits = np.array([c.limit for c in config.constraints])
    return bool((risk <= share * limits).all())


def consider(
    candidates: Candidates,
    agent: AgentState,
    episodes: Episodes,
    step: int,
    config: Config,
    episode_length: int | None,
    play: Callable[[int], Episodes],
) -> Candidates:
    """Return the candidates, with the agent's deployed policy added if it is good enough.

    The top of this module describes when it is.

    `episodes` are the episodes in which this policy was evaluated. For a second test,
    `play(count)` plays `count` more episodes of the same policy.
    """
    risk = measure_risk(episodes, config)
    feasible = within_targets(risk, config)
    reward, retested = float(episodes.reward.mean()), False
    best = best_index(candidates)
    if feasible and (best is None or reward > candidates.reward[best]):
        episodes = pool(episodes, play(retest_episodes(config, episode_length)))
        risk = measure_risk(episodes, config)
        feasible, retested = within_targets(risk, config), True
        reward = float(episodes.reward.mean())
    place = None
    if feasible:
        # Use an empty entry. If there is none, replace the candidate with the lowest reward,
        # but only if the new one is better.
        rewards = np.where(candidates.episodes > 0, candidates.reward, -math.inf)
        lowest = int(rewards[:MAX_CANDIDATES].argmin())
        place = lowest if reward > rewards[lowest] else None
    elif not candidates.episodes[:MAX_CANDIDATES].any():
        new_risk = relative_risk(risk, config)
        lowest_risk = relative_risk(candidates.risk[MAX_CANDIDATES], config)
        if not candidates.episodes[MAX_CANDIDATES] or new_risk < lowest_risk:
            place = MAX_CANDIDATES
    if place is None:
        return candidates

    def put(array: Any, value: Any) -> np.ndarray:
        array = np.array(array)
        array[place] = value
        return array

    return Candidates(
        policies=jax.tree.map(put, candidates.policies, deployed_policy(agent)),
        samples=put(candidates.samples, bool(agent.steering.samples)),
        reward=put(candidates.reward, reward),
        risk=put(candidates.risk, risk),
        episodes=put(candidates.episodes, len(episodes.reward)),
        steps=put(candidates.steps, step),
        retested=put(candidates.retested, retested),
    )


def uses_mean(agent: AgentState, config: Config) -> bool:
    """Return whether the deployed policy acts with its mean action."""
    if config.agent.follows_episodes:
        return not bool(agent.steering.samples)
    return config.evaluation.deterministic


def relative_risk(risk: np.ndarray, config: Config) -> float:
    """Divide each risk by the unit of its constraint, and return the largest result.

    The unit is the constraint's `cost_scale`, or its limit if `cost_scale` is not set.
    """
    units = np.array([c.unit or 1.0 for c in config.constraints])
    return float((risk / units).max())


def best_index(candidates: Candidates) -> int | None:
    """Return the index of the best candidate, or None if there is none yet.

    The best candidate has the highest reward of those that had a second test.
    """
    tested = (candidates.episodes > 0) & candidates.retested
    tested[MAX_CANDIDATES] = False
    if not tested.any():
        return None
    return int(np.where(tested, candidates.reward, -math.inf).argmax())


def ranked(candidates: Candidates) -> list[int]:
    """Return the indices of all candidates, best first.

    Candidates that had a second test come before the others. If there are no candidates, the
    list contains only the index of the policy with the lowest risk. If there is no such
    policy either, the list is empty.
    """
    filled = [i for i in range(MAX_CANDIDATES) if candidates.episodes[i]]
    order = sorted(
        filled, key=lambda i: (not candidates.retested[i], -candidates.reward[i])
    )
    return order or ([MAX_CANDIDATES] if candidates.episodes[MAX_CANDIDATES] else [])


def delivered(candidates: Candidates, place: int | None = None) -> Delivered | None:
    """Return the policy at index `place`, or the first of `ranked` if `place` is None.

    The result is None if `place` is None and `ranked` is empty.
    """
    order = ranked(candidates)
    if place is None:
        if not order:
            return None
        place = order[0]
    return Delivered(
        policy=jax.tree.map(lambda leaf: jnp.asarray(leaf[place]), candidates.policies),
        samples=bool(candidates.samples[place]),
        reward=float(candidates.reward[place]),
        risk=tuple(float(r) for r in candidates.risk[place]),
        episodes=int(candidates.episodes[place]),
        step=int(candidates.steps[place]),
        feasible=place < MAX_CANDIDATES,
    )


def certified_index(run_dir: Path, candidates: Any) -> int | None:
    """Return the index of the candidate that the run's certificate is about.

    The result is None if the run has no certificate that is still valid and certifies a
    policy, or if this candidate is no longer stored.
    """
    certificate = valid_certificate(run_dir)
    if not candidates or certificate is None or not certificate.get("certified"):
        return None
    step = certificate.get("step")
    known = (candidates.episodes > 0) & isinstance(step, int)
    places = np.flatnonzero(known & (candidates.steps == step)) if known.any() else []
    return int(places[0]) if len(places) else None


def keep_only(candidates: Candidates, place: int) -> Candidates:
    """Return the candidates after emptying all entries except the one at index `place`."""
    others = np.arange(MAX_CANDIDATES + 1) != place
    return candidates._replace(episodes=np.where(others, 0, candidates.episodes))


def is_better(new: Episodes, old: Episodes, config: Config) -> bool:
    """Return whether a new sample of episodes is clearly better than an old one.

    If the risks of both samples are within their targets (see `within_targets`), the mean
    reward must be higher by two standard errors. If neither sample is within its targets, the
    risk must be 10 % lower. If only one sample is, it is the better one.
    """
    new_risk, old_risk = (measure_risk(episodes, config) for episodes in (new, old))
    feasible = within_targets(new_risk, config), within_targets(old_risk, config)
    if feasible == (True, True):
        errors = [e.reward.std() / math.sqrt(len(e)) for e in (new, old)]
        gain = new.reward.mean() - old.reward.mean()
        return bool(gain > 2 * math.hypot(*errors))
    if feasible == (False, False):
        return relative_risk(new_risk, config) < 0.9 * relative_risk(old_risk, config)
    return feasible[0]


def retest_episodes(config: Config, episode_length: int | None) -> int:
    """Return the number of episodes of a second test, which depends on the smallest tail.

    A constraint on another measure than CVaR counts as having a tail of 0.2. Environments
    whose id is not that of a JAX environment may be slow, so there a test takes at most 2 % of
    the run's steps, or one episode if an episode is longer.
    """
    wanted = math.ceil(RETEST_TAIL / min(config.limited_tails(0.2), default=1.0))
    env_id = config.env.id
    if registry.is_jax_env(env_id) or registry.is_library_id(env_id):
        return wanted
    allowed = RETEST_SHARE * config.training.horizon / (episode_length or 1)
    return max(min(wanted, int(allowed)), 1)
