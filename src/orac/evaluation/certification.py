"""Certification of a run: choose one of its best policies and certify it on fresh episodes.

The best policies of a run, its candidates, are compared on validation episodes. One is
chosen, and the number of its fresh episodes is fixed before they are played. Only fresh
episodes count as evidence. Playing and testing them once is called a look. If a look does
not certify the policy, more looks are allowed, each with fresh episodes of the same or
another candidate. The error probability 1 - confidence is divided equally among looks and
constraints. So a policy above its limit is certified with probability at most
1 - confidence, no matter how the candidates and the numbers of episodes were chosen.
`docs/statistics.md` has the proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orac.config.schema import Constraint
from orac.config.validation import check_count
from orac.envs.base import EnvSpec
from orac.evaluation.cvar_bounds import (
    Certificate,
    cvar_upper_bound,
    episodes_needed,
    name_of_risk,
    percent,
    round_up,
    sample_cvar,
)
from orac.evaluation.episodes import (
    Episodes,
    check_cost_bounds,
    cost_noun,
    costs_of,
    declared_cost_bound,
    pool,
    risk_of_episodes,
    risk_phrase,
)
from orac.evaluation.rollout import MAX_EPISODES
from orac.evaluation.seed_intervals import check_level

CANDIDATES = 5
"""Maximum number of policies of a run that are compared."""
LOOKS, MAX_LOOKS = 3, 1_000
"""Default and maximum number of looks."""
EPISODES_MAX, EPISODES_MAX_ON_DEVICE = 20_000, 100_000
"""Default maximum number of episodes of a look, for Gymnasium and for JAX environments."""
SURPLUS = 1.5
"""A look plays this many times the estimated number of episodes that are needed."""
VALIDATION_TAIL, VALIDATION_MIN = 40, 400
"""By default, each candidate plays at least 400 validation episodes, and enough that 40 of
them are in the smallest tail, but not more than the maximum of a look."""
CLOSE = 0.8
"""A risk above this fraction of its limit is called close to the limit."""
ROUND_TO = 100
"""The number of episodes of a look is rounded up to a multiple of this."""

Play = Callable[[Any, int, int], Episodes]
"""Function of (candidate, number of episodes, sample) that plays whole episodes.

`sample` is the number of the sample. Different samples contain different episodes, and
sample 0 contains the validation episodes.
"""


@dataclass(frozen=True)
class Look:
    """Fresh episodes of one candidate, and the bounds that they give."""

    candidate: int
    """Place of the candidate in the order of candidates, from 0."""
    sample: int
    """Number of the sample that contains the episodes."""
    episodes: int
    reward: float
    """Mean reward of the episodes."""
    certificates: tuple[Certificate, ...]

    @property
    def certified(self) -> bool:
        """Whether every bound is at most its limit."""
        return all(certificate.certified for certificate in self.certificates)


@dataclass(frozen=True, repr=False)
class Certification:
    """The result of a certification: the policy, and every look with its bounds."""

    confidence: float
    """Confidence with which all bounds of all looks hold together."""
    max_looks: int
    candidates: int
    """Number of candidates."""
    validation_episodes: int
    """Number of episodes per candidate on which the candidates were compared. These episodes
    are not evidence."""
    looks: tuple[Look, ...] = ()
    policy: Any = None
    """The candidate of the last look. If `reason` is not empty, it is the candidate with the
    lowest risk instead. If no constraint can be certified, it is the first candidate."""
    exceptions: tuple[str, ...] = ()
    """One sentence for each constraint that cannot be certified."""
    reason: str = ""
    """Reason why no further look was taken although none certified the policy, or empty."""

    @property
    def certified(self) -> bool:
        """Whether the last look certified every constraint, and none is in `exceptions`."""
        passed = bool(self.looks) and self.looks[-1].certified
        return passed and not self.exceptions

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The bounds of the last look, one per constraint that can be certified."""
        return self.looks[-1].certificates if self.looks else ()

    def __repr__(self) -> str:
        return f"<Certification: {self.sentence()}>"

    def sentence(self) -> str:
        """Return the result as a sentence."""
        parts = []
        if self.looks:
            look = self.looks[-1]
            bounds = " and ".join(
                f"{c.quantity} is below {round_up(c.upper)} (limit {c.limit:g})"
                for c in look.certificates
                if c.upper is not None
            )
            parts.append(
                f"with {percent(self.confidence)} % confidence {bounds}, shown by "
                f"{look.episodes:,} fresh episodes at look {len(self.looks)} of "
                f"{self.max_looks}"
            )
        parts += [self.reason] if self.reason else []
        verdict = "certified" if self.certified else "not certified"
        return f"{verdict}: {'; '.join([*parts, *self.exceptions])}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict for a JSON file."""
        return {
            "certified": self.certified,
            "sentence": self.sentence(),
            "confidence": self.confidence,
            "max_looks": self.max_looks,
            "candidates": self.candidates,
            "validation_episodes": self.validation_episodes,
            "looks": [
                {
                    "candidate": look.candidate,
                    "sample": look.sample,
                    "episodes": look.episodes,
                    "reward": look.reward,
                    "certified": look.certified,
                    "bounds": [
                        {
                            "quantity": c.quantity,
                            "estimate": c.estimate,
                            "upper": c.upper,
                            "limit": c.limit,
                            "confidence": c.level,
                            "cost_bound": c.cost_bound,
                        }
                        for c in look.certificates
                    ],
                }
                for look in self.looks
            ],
        }


def certify_candidates(
    candidates: Sequence[Any],
    play: Play,
    constraints: Sequence[Constraint],
    spec: EnvSpec,
    *,
    confidence: float = 0.95,
    looks: int = LOOKS,
    episodes_max: int = EPISODES_MAX,
    validation: int | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Certification:
    """Choose one of the candidates and certify it on fresh episodes.

    `candidates` starts with the best one, and only the first `CANDIDATES` of them are used.
    `validation` is the number of validation episodes that each candidate plays. Its default
    is the smaller of `validation_episodes` and `episodes_max`. `log` receives a sentence
    before each part of the work. If any of the episodes costs more than is declared possible,
    this is an error, because the declared bound is then wrong for every candidate.
    """
    check_level(confidence)
    check_count("looks", looks, high=MAX_LOOKS)
    check_count("episodes_max", episodes_max, high=MAX_EPISODES)
    if validation is None:
        validation = min(validation_episodes(constraints), episodes_max)
    check_count("validation", validation)
    candidates = candidates[:CANDIDATES]
    if not candidates or not constraints:
        missing = "policy to certify" if constraints else "constraint to certify"
        raise ValueError(f"a certification needs a {missing}, and there is none.")
    exceptions = [cannot_certify(c, declared_cost_bound(c, spec)) for c in constraints]
    exceptions = tuple(sentence for sentence in exceptions if sentence)
    known = (confidence, looks, len(candidates))
    if len(exceptions) == len(constraints):
        return Certification(*known, 0, (), candidates[0], exceptions)
    level = 1 - (1 - confidence) / (looks * (len(constraints) - len(exceptions)))
    if level == 1:
        raise ValueError(
            f"confidence must be smaller, got {confidence!r}: the error probability, "
            f"1 - confidence, is divided equally among looks ({looks} here) and constraints, "
            "and such a part of it is too small to compute."
        )
    plural = "policy" if len(candidates) == 1 else "policies"
    log(f"Measuring {len(candidates)} {plural} on {validation:,} validation episodes.")

    def play_and_check(candidate: Any, number: int, sample: int) -> Episodes:
        episodes = play(candidate, number, sample)
        where = (
            f"a fresh episode of look {sample}" if sample else "a validation episode"
        )
        check_cost_bounds(episodes.cost.max(axis=0).tolist(), spec, where)
        return episodes

    seen = [play_and_check(candidate, validation, 0) for candidate in candidates]
    taken: list[Look] = []
    reason, place = "", 0
    while len(taken) < looks and not reason:
        place, number, reason = choose(seen, constraints, spec, level, episodes_max)
        if reason:
            break
        sample = len(taken) + 1
        log(f"Look {sample} of {looks}: {number:,} fresh episodes.")
        fresh = play_and_check(candidates[place], number, sample)
        bounds = tuple(
            certificate_of(fresh, constraint, spec, level)
            for constraint in constraints
            if not cannot_certify(constraint, declared_cost_bound(constraint, spec))
        )
        look = Look(place, sample, number, float(fresh.reward.mean()), bounds)
        taken.append(look)
        if look.certified:
            break
        # The next choice may use these episodes, but they are no longer evidence.
        seen[place] = pool(seen[place], fresh)
    return Certification(
        *known, validation, tuple(taken), candidates[place], exceptions, reason
    )


def choose(
    seen: Sequence[Episodes],
    constraints: Sequence[Constraint],
    spec: EnvSpec,
    level: float,
    episodes_max: int,
) -> tuple[int, int, str]:
    """Return the index of the next candidate, its number of fresh episodes, and a reason.

    `seen` are the episodes that each candidate has played so far. The candidate has the
    highest reward among those that `episodes_max` episodes like these would certify, and the
    reason is empty. If there is no such candidate, the result is the index of the one with
    the lowest risk, 0 episodes, and the reason to stop.
    """
    for place in np.argsort([-episodes.reward.mean() for episodes in seen]):
        needed = [
            needed_for(seen[place], c, spec, level, episodes_max) for c in constraints
        ]
        if None not in needed:
            number = math.ceil(SURPLUS * max(n for n in needed if n is not None))
            number = math.ceil(number / ROUND_TO) * ROUND_TO
            return int(place), min(number, episodes_max), ""
    risks = [
        [constrained_risk(episodes, c, spec) for c in constraints] for episodes in seen
    ]
    excess = np.array(
        [[c.excess(r) for c, r in zip(constraints, x, strict=True)] for x in risks]
    )
    place = int(excess.max(axis=1).argmin())
    worst = int(excess[place].argmax())
    constraint, value = constraints[worst], risks[place][worst]
    name = f" for {constraint.name!r}" if len(constraints) > 1 else ""
    measured = (
        "the policy with the lowest risk has a "
        f"{risk_phrase(constraint.measure, f'{value:.4g}')}{name} on "
        f"{len(seen[place]):,} episodes (limit {constraint.limit:g})"
    )
    if value >= constraint.limit:
        return place, 0, f"{measured}, so more episodes would not certify it"
    bound = declared_cost_bound(constraint, spec)
    if value > CLOSE * constraint.limit or bound is None:
        cause = "which is so close to the limit that"
        remedy = "train with a larger agent.multiplier.margin"
    else:
        cause = f"but an episode may cost up to {bound:g} (the declared bound), so"
        remedy = "declare a smaller cost_bound if no episode can cost more than that"
    return (
        place,
        0,
        (
            f"{measured}, {cause} {episodes_max:,} fresh episodes would probably not "
            f"certify it; allow more (episodes_max), or {remedy}"
        ),
    )


def needed_for(
    episodes: Episodes,
    constraint: Constraint,
    spec: EnvSpec,
    level: float,
    episodes_max: int,
) -> int | None:
    """Return how many episodes like these would certify a constraint.

    Returns None if the risk of these episodes is not below the limit, or if neither their
    number nor `episodes_max` would be enough. Returns 0 if the risk is below the limit but
    the constraint cannot be certified.
    """
    if constrained_risk(episodes, constraint, spec) >= constraint.limit:
        return None
    bound = declared_cost_bound(constraint, spec)
    if bound is None or cannot_certify(constraint, bound):
        return 0
    costs = costs_of(episodes, constraint, spec)
    return episodes_needed(
        costs,
        constraint.limit,
        constraint.measure.dual_tail,
        bound,
        level,
        max(episodes_max, len(costs)),
    )


def certificate_of(
    episodes: Episodes, constraint: Constraint, spec: EnvSpec, level: float
) -> Certificate:
    """Return the certificate of these episodes for a constraint."""
    bound = declared_cost_bound(constraint, spec)
    assert bound is not None
    costs = costs_of(episodes, constraint, spec)
    tail = constraint.measure.dual_tail
    return Certificate(
        name_of_risk(tail, f"episode {cost_noun(constraint.name)}"),
        constrained_risk(episodes, constraint, spec),
        cvar_upper_bound(costs, tail, bound, level),
        float(constraint.limit),
        level,
        len(costs),
        cost_bound=bound,
    )


def cannot_certify(constraint: Constraint, bound: float | None) -> str:
    """Return the reason why a constraint cannot be certified, or "" if it can be."""
    if constraint.measure.name not in ("cvar", "mean"):
        return (
            f"the {risk_phrase(constraint.measure, repr(constraint.name))} is used to choose "
            "a policy but cannot be certified: orac has bounds only for CVaR and the mean"
        )
    if constraint.limit == 0:
        return (
            f"the limit of {constraint.name!r} is 0, which no number of episodes can "
            "certify, because the next one might cost something"
        )
    if bound is None:
        return (
            f"the environment declares no bound on the {constraint.name!r} of an episode, "
            "so its risk cannot be certified; declare the largest possible cost of an "
            "episode, which is at most the largest cost of a step times the number of steps "
            "of an episode, with the line `cost_bound = ...` in the environment's class, "
            "with cost_bound=... in Python, or with --cost-bound BOUND in the shell"
        )
    return ""


def validation_episodes(constraints: Sequence[Constraint]) -> int:
    """Return the number of validation episodes that each candidate needs."""
    return episodes_for_tails(constraints, VALIDATION_TAIL, VALIDATION_MIN)


def episodes_for_tails(
    constraints: Sequence[Constraint], in_tail: int, least: int
) -> int:
    """Return how many episodes are needed so that `in_tail` of them are in the smallest tail.

    Risk measures other than CVaR count as a tail of 1. The result is at least `least`.
    """
    tails = [c.tail for c in constraints if c.risk == "cvar"]
    return max(least, math.ceil(in_tail / min(tails, default=1.0)))


def constrained_risk(
    episodes: Episodes, constraint: Constraint, spec: EnvSpec
) -> float:
    """Return the risk that the constraint limits, estimated from these episodes."""
    costs = costs_of(episodes, constraint, spec)
    if constraint.measure.name in ("cvar", "mean"):
        return sample_cvar(costs, constraint.measure.dual_tail)
    return risk_of_episodes(costs, constraint.measure)
