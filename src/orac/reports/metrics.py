"""Which numbers a report has, how each is read, and between what its mean must lie.

Keys are those of `evaluation.summarise`. Computes none of them: that is in `summaries`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from orac import envs
from orac.config.schema import EnvConfig
from orac.evaluation.result import cost_column
from orac.reports.run_groups import Group


@dataclass(frozen=True)
class Measure:
    """A number of the summary: its key in `evaluation.summarise`, and how to read it."""

    key: str
    title: str
    higher_is_better: bool | None = False
    """None where more is neither better nor worse."""
    cost: str = ""
    """Name of the cost that it is the constrained risk of."""


class OwnMetric(NamedTuple):
    """How to read a metric of an environment."""

    title: str
    higher_is_better: bool | None = None
    is_share: bool = False


OWN_METRICS = {
    "unserved_energy": OwnMetric("unserved energy", False, True),
    "outage_violations": OwnMetric("outage violations", False, True),
    "goals": OwnMetric("goals", True),
    "guard_present": OwnMetric("guard present", None, True),
    "moved": OwnMetric("moved in the last step", None, True),
    "path_long": OwnMetric("took the long path", None, True),
    "path_guarded": OwnMetric("took the guarded cell", None, True),
    "path_none": OwnMetric("never arrived", False, True),
}
"""Those that come with us; others have their name for a title, and no better side."""


_COUNTED = ("cost", "length", "episodes", "train/", "constraint/multiplier")


def bounds_of(
    key: str, values: np.ndarray, group: Group | None = None
) -> tuple[float, float]:
    """Between what a mean must lie: shares in [0, 1], and what counts or costs above 0.

    Lengths and costs also end at the most that the group's environment declares.
    """
    own = OWN_METRICS.get(key.removeprefix("env/"))
    if key.endswith("/violation_rate") or (own and own.is_share):
        return 0.0, 1.0
    # A cost may be negative in a user's environment; one that never was starts at 0.
    counted = key.startswith(_COUNTED)
    least = counted and "reward" not in key and values.min() >= 0
    most = _most(key, group.config.env) if group else math.inf
    # Numerics: sums in float32 may overshoot by rounding; what exceeds more was no bound.
    known = values.max() <= most + 1e-6 * abs(most)
    return (
        0.0 if least else -math.inf,
        max(most, float(values.max())) if known else math.inf,
    )


def _most(key: str, env: EnvConfig) -> float:
    """Most that the number of this key can be; infinite where nothing is known."""
    most = _declared(env)
    of = [name for name in most if key == name or key.startswith(f"{name}/")]
    # A cost may be called `cost` beside others, which are `cost/<name>`.
    return most[max(of, key=len)] if of else math.inf


@lru_cache(maxsize=64)
def _declared(env: EnvConfig) -> dict[str, float]:
    """Most that an episode's length and costs can be, by column of the evaluations."""
    if not envs.has_jax_form(env.id):
        return {"length": env.episode_length} if env.episode_length else {}
    try:
        spec = envs.make(env.id, **dict(env.params)).spec
    except (ValueError, TypeError, OSError):
        # It ran under another version: what that one declared is not known here.
        return {}
    costs = zip(spec.cost_names, spec.cost_bounds or (), strict=False)
    found = {cost_column(name): float(bound) for name, bound in costs}
    return found | ({"length": spec.episode_length} if spec.episode_length else {})


def common_tails(groups: Sequence[Group]) -> dict[str, list[float]]:
    """Tails of CVaR by cost that any of the groups constrains: all are judged by them."""
    tails: dict[str, set[float]] = {}
    for group in groups:
        for constraint in group.config.constraints:
            wanted = tails.setdefault(constraint.name, set())
            if constraint.tail < 1:
                wanted.add(constraint.tail)
    return {name: sorted(values) for name, values in tails.items()}


def measures(groups: Sequence[Group]) -> list[Measure]:
    """What to report on groups of one environment, the decisive numbers first."""
    found = [Measure("reward/mean", "reward", higher_is_better=True)]
    tails = common_tails(groups)
    for name in dict.fromkeys(n for group in groups for n in group.cost_names):
        column, words = cost_column(name), name if name == "cost" else f"cost {name}"
        found.append(Measure(f"{column}/mean", f"mean {words}"))
        found += [
            Measure(f"{column}/cvar_{tail:g}", f"CVaR at {tail:g} of {words}")
            for tail in tails.get(name, ())
        ]
        constraints = [
            c for g in groups for c in g.config.constraints if c.name == name
        ]
        if any(c.risk not in ("cvar", "mean") for c in constraints):
            found.append(Measure(f"{column}/risk", f"constrained risk of {words}"))
        if constraints:
            found.append(Measure(f"{column}/violation_rate", f"P({words} > limit)"))
        found.append(Measure(f"{column}/worst", f"worst {words}"))
    return found


def decisive_measures(groups: Sequence[Group]) -> list[Measure]:
    """The reward, and the risk that each constraint is about."""
    found = [Measure("reward/mean", "reward", higher_is_better=True)]
    known: dict[str, set[str]] = {}
    for group in groups:
        for constraint in group.config.constraints:
            known.setdefault(constraint.name, set()).add(str(constraint.measure))
    for name, risks in known.items():
        words = name if name == "cost" else f"cost {name}"
        risk = risks.pop() if len(risks) == 1 else "own constrained risk"
        key = f"{cost_column(name)}/risk"
        found.append(Measure(key, f"{risk} of {words}", cost=name))
    return found


def own_measures(values: Sequence[dict[str, np.ndarray]]) -> list[Measure]:
    """The environment's own metrics, of groups whose `seed_values` these are."""
    keys = dict.fromkeys(k for known in values for k in known if k.startswith("env/"))
    found = []
    for key in keys:
        name = key.removeprefix("env/")
        own = OWN_METRICS.get(name, OwnMetric(name))
        found.append(Measure(key, own.title, own.higher_is_better))
    return found
