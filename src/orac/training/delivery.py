"""Choose the policy that a run delivers.

Every evaluation makes the deployed policy a candidate. A small sample can look good by
chance, so a policy that would be the new best is tested again at once on many more
episodes, and both samples are pooled. The training state contains the best candidates, and
also the policy with the lowest risk, which is delivered if no candidate was within the
limits.
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
from orac.evaluation.result import Episodes, pool
from orac.runs.directory import read_certificate
from orac.training.measurement import held_measure, sample_risk

KEPT = 10
"""Largest number of stored candidates within the limits."""
RETEST_TAIL = 40
"""A new best is tested on this many episodes divided by the smallest tail."""
RETEST_SHARE = 0.02
"""Fraction of the run's steps that such a test may take in environments on the host."""


class Candidates(NamedTuple):
    """Policies that were evaluated. The last entry is the one with the lowest risk.

    Arrays are NumPy with a leading axis of `KEPT + 1`. Empty entries have `episodes` 0.
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


class Delivered(NamedTuple):
    """A candidate with its measured reward and risk."""

    policy: PolicyState
    samples: bool
    reward: float
    risk: tuple[float, ...]
    episodes: int
    step: int
    feasible: bool
    """Whether every measured risk is at most its limit minus the margin."""


def init(agent: AgentState, config: Config) -> Candidates:
    """Return an empty list of candidates."""
    count = KEPT + 1
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
    """Return the risk of these episodes, per constraint."""
    return np.array(
        [
            sample_risk(episodes.cost[:, m], held_measure(constraint, config))
            for m, constraint in enumerate(config.constraints)
        ]
    )


def within_limits(risk: np.ndarray, config: Config) -> bool:
    """Return whether every risk is at most its limit minus the margin."""
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
    """Add the deployed policy to the candidates if it is good enough, and return them.

    `episodes` are those of its evaluation, and `play` plays more of them.
    """
    risk = measure_risk(episodes, config)
    feasible = within_limits(risk, config)
    reward, retested = float(episodes.reward.mean()), False
    best = best_index(candidates)
    if feasible and (best is None or reward > candidates.reward[best]):
        episodes = pool(episodes, play(retest_episodes(config, episode_length)))
        risk = measure_risk(episodes, config)
        feasible, retested = within_limits(risk, config), True
        reward = float(episodes.reward.mean())
    place = None
    if feasible:
        # The empty places come first, then the one of lowest reward.
        rewards = np.where(candidates.episodes > 0, candidates.reward, -math.inf)[:KEPT]
        lowest = int(rewards.argmin())
        place = lowest if reward > rewards[lowest] else None
    elif not candidates.episodes[:KEPT].any():
        excess = relative_risk(risk, config)
        held = relative_risk(candidates.risk[KEPT], config)
        if not candidates.episodes[KEPT] or excess < held:
            place = KEPT
    if place is None:
        return candidates

    def put(array: Any, value: Any) -> np.ndarray:
        array = np.array(array)
        array[place] = value
        return array

    new = Candidates(
        policies=jax.tree.map(put, candidates.policies, deployed_policy(agent)),
        samples=put(candidates.samples, bool(agent.steering.samples)),
        reward=put(candidates.reward, reward),
        risk=put(candidates.risk, risk),
        episodes=put(candidates.episodes, len(episodes.reward)),
        steps=put(candidates.steps, step),
        retested=put(candidates.retested, retested),
    )
    return new


def relative_risk(risk: np.ndarray, config: Config) -> float:
    """Return the largest risk relative to its limit."""
    units = np.array([c.unit or 1.0 for c in config.constraints])
    return float((risk / units).max())


def best_index(candidates: Candidates) -> int | None:
    """Return the index of the candidate of highest reward that was tested again."""
    fit = (candidates.episodes > 0) & candidates.retested
    fit[KEPT] = False
    if not fit.any():
        return None
    return int(np.where(fit, candidates.reward, -math.inf).argmax())


def ranked(candidates: Candidates) -> list[int]:
    """Return the indices of all candidates within the limits, best first.

    Those that were tested again come before the others. If there is none, only the policy
    with the lowest risk is returned.
    """
    held = [i for i in range(KEPT) if candidates.episodes[i]]
    order = sorted(
        held, key=lambda i: (not candidates.retested[i], -candidates.reward[i])
    )
    return order or ([KEPT] if candidates.episodes[KEPT] else [])


def delivered(candidates: Candidates, place: int | None = None) -> Delivered | None:
    """Return the candidate at this index, by default the best; None if there is none."""
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
        feasible=place < KEPT,
    )


def certified_place(run_dir: Path, candidates: Any) -> int | None:
    """Return the index of the candidate that a run's certificate names, if it exists."""
    certificate = read_certificate(run_dir)
    if not candidates or certificate is None or not certificate.get("certified"):
        return None
    step = certificate.get("step")
    known = (candidates.episodes > 0) & isinstance(step, int)
    places = np.flatnonzero(known & (candidates.steps == step)) if known.any() else []
    return int(places[0]) if len(places) else None


def only(candidates: Candidates, place: int) -> Candidates:
    """Return the candidates with all but the one at this index emptied."""
    others = np.arange(KEPT + 1) != place
    return candidates._replace(episodes=np.where(others, 0, candidates.episodes))


def is_better(new: Episodes, old: Episodes, config: Config) -> bool:
    """Return whether a sample of episodes is clearly better than another one.

    Samples within the limits are compared by reward, and others by risk.
    """
    new_risk, old_risk = (measure_risk(episodes, config) for episodes in (new, old))
    feasible = within_limits(new_risk, config), within_limits(old_risk, config)
    if feasible == (True, True):
        errors = [e.reward.std() / math.sqrt(len(e)) for e in (new, old)]
        gain = new.reward.mean() - old.reward.mean()
        return bool(gain > 2 * math.hypot(*errors))
    if feasible == (False, False):
        return relative_risk(new_risk, config) < 0.9 * relative_risk(old_risk, config)
    return feasible[0]


def retest_episodes(config: Config, episode_length: int | None) -> int:
    """Return the number of episodes of a second test, which depends on the smallest tail.

    Episodes on the host are slow, so it takes at most 2 % of the run's steps there.
    """
    tails = [
        held_measure(c, config).parameter if c.risk == "cvar" else 0.2
        for c in config.constraints
    ]
    wanted = math.ceil(RETEST_TAIL / min(tails, default=1.0))
    env_id = config.env.id
    if registry.has_jax_form(env_id) or registry.is_of_library(env_id):
        return wanted
    allowed = RETEST_SHARE * config.training.horizon / (episode_length or 1)
    return max(min(wanted, int(allowed)), 1)
