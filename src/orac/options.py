"""The words of the Python interface: what they mean in a config, which cannot be meant.

What a person types is refused here in a sentence, before anything is made. Knows no
agent, no loop and no environment.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from orac.config import presets
from orac.config.schema import Config, Constraint
from orac.config.validation import check_range, unknown_name
from orac.core.risk import RiskMeasure
from orac.envs.gym_adapter.make import make_host


def check_words(given: Iterable[str], maker: Callable[..., Any]) -> None:
    """Refuse keywords that neither `maker` nor `make_host`, which gets the rest, takes."""
    takes = [
        name
        for function in (maker, make_host)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for word in given:
        if word not in takes:
            raise unknown_name("an option", word, dict.fromkeys(takes))


def constraints_of(
    config: Config,
    constraints: Sequence[Constraint] | None,
    cost_limit: float | None,
    tail: float | None,
) -> tuple[Constraint, ...]:
    """Those that are given, else the config's with another limit and tail for the first."""
    if constraints is not None:
        if cost_limit is not None or tail is not None:
            raise ValueError(
                "give either constraints or cost_limit and tail, got both. "
                "A constraint has its own limit and tail."
            )
        return _checked_constraints(constraints)
    if cost_limit is not None:
        check_range("cost_limit", cost_limit, 0)
    if tail is not None:
        check_range("tail", tail, 0, 1, open_low=True)
    if not config.constraints:
        return ()
    first = config.constraints[0]
    if cost_limit is not None:
        first = replace(first, limit=float(cost_limit))
    if tail is not None:
        first = replace(first, tail=float(tail))
    return (first, *config.constraints[1:])


def _checked_constraints(constraints: Any) -> tuple[Constraint, ...]:
    example = "constraints=[orac.Constraint('cost', limit=5.0, tail=0.05)]"
    if not isinstance(constraints, list | tuple):
        raise ValueError(
            f"constraints must be a list of them, got {constraints!r}. Write {example}."
        )
    for one in constraints:
        if not isinstance(one, Constraint):
            raise ValueError(
                f"constraints must each be an orac.Constraint, got {one!r}. Write {example}."
            )
    return tuple(constraints)


def assumed_limit(config: Config) -> str:
    """The sentence about a limit that nobody chose; empty where the paper chose it."""
    if presets.has_settings(config.env.id) or not config.constraints:
        return ""
    constraint = config.constraints[0]
    scalar = config.agent.risk_form == "scalar"
    return (
        f"no cost_limit was given for {config.env.id}, so the "
        f"{'mean' if scalar else constraint.measure} of its cost is held below "
        f"{constraint.limit:g} an episode. Pass cost_limit= and tail=."
    )


def checked_tails(tails: Any) -> tuple[float, ...]:
    """One tail or several; each is refused before an episode is played for it."""
    lone = isinstance(tails, Real | str)
    several: tuple[Any, ...] = (tails,) if lone else tuple(tails)
    return tuple(RiskMeasure("cvar", tail).parameter for tail in several)


def check_callback(callback: Any) -> None:
    """Refuse what cannot be called now, and not at the first log row."""
    if callback is not None and not callable(callback):
        raise ValueError(
            f"callback must be a function of one event, got {callback!r}. It is called at "
            "each log row and stops the run by returning False."
        )
