"""Cases in Safety-Gymnasium, which several studies share: one place for each config.

Training is Appendix A's. An evaluation of 100 episodes takes 40,000 steps on the host, so
it is made every 50th of the run, and not more often than every 10,000 steps.
"""

from collections.abc import Sequence
from typing import Any

from orac.config import presets
from orac.config import serialization as config_text
from orac.experiments.comparison import SAFETY, compare, limit_of
from orac.experiments.curves import Panel, draw
from orac.experiments.study import Case, Found
from orac.reports.seed_statistics import cvar_curve, evaluation_curve

ENVIRONMENTS = {
    "PointGoal1": "orac/SafetyPointGoal1-v0",
    "PointButton1": "orac/SafetyPointButton1-v0",
}
AGENTS = {
    "sac-lag": "SAC-Lag",
    "wcsac": "WCSAC",
    "orac": "ORAC",
    "wcsac-iqn": "WCSAC-IQN",
    "wcsac-lin": "WCSAC-Lin",
}


def evaluate_every(steps: int) -> int:
    return max(10_000, steps // 50)


def make_case(
    world: str,
    algo: str,
    tail: float,
    key: Sequence[str],
    seeds: int = 10,
    change: tuple[str, Any] | None = None,
) -> Case:
    """One agent in one world; `change` is a config field and its value."""
    config = presets.preset(algo, ENVIRONMENTS[world])
    # A SAC-Lagrangian looks at the mean, whatever the tail.
    agent = AGENTS[algo] if algo == "sac-lag" else f"{AGENTS[algo]}-{tail:g}"
    label, name = f"{agent}, {world}", f"tail-{tail:g}"
    words = [f"constraints.0.tail={tail}"]
    if change is not None and config_value(config, change[0]) != change[1]:
        field, value = change
        short = field.split(".")[-1]
        words.append(f"{field}={value}")
        label, name = f"{label}, {short} {value:g}", f"{name}-{short}={value:g}"
    config = config_text.override(config, words)
    return Case(label, name, config, seeds, tuple(key))


def config_value(config: Any, field: str) -> Any:
    """A field of a config by its dotted name."""
    return config_text.flatten(config_text.to_dict(config))[field]


def world_of(found: Found) -> str:
    """The environment's short name."""
    ids = {env_id: name for name, env_id in ENVIRONMENTS.items()}
    return ids[found.case.config.env.id]


def agent_of(found: Found) -> str:
    """The agent with its tail, as the paper writes it."""
    return found.case.label.split(",")[0]


def world_tables(everything: Sequence[Found], title: str) -> list[Any]:
    """One table for each world, agents in order."""
    return [
        compare(
            f"{title}: {world}",
            [
                (agent_of(found), found)
                for found in everything
                if world_of(found) == world
            ],
            SAFETY,
        )
        for world in dict.fromkeys(map(world_of, everything))
    ]


def curves_figure(everything: Sequence[Found], band: str) -> Any:
    """Reward, mean cost and CVaR in evaluations, a row for each world."""
    rows = []
    for world in dict.fromkeys(map(world_of, everything)):
        lines = [(line_label(f), f) for f in everything if world_of(f) == world]
        rows.append(panels(world, lines, tails_of(lines)))
    return draw(rows, band)


def line_label(found: Found) -> str:
    """A label without the world, which the panel names."""
    parts = found.case.label.split(", ")
    return ", ".join([parts[0], *parts[2:]])


def tails_of(lines: Sequence[tuple[str, Found]]) -> list[float]:
    tails = {
        found.case.config.constraints[0].tail
        for _, found in lines
        if found.case.config.algo != "sac-lag"
    }
    return sorted(tails, reverse=True)


def panels(
    title: str, lines: Sequence[tuple[str, Found]], tails: Sequence[float]
) -> list[Panel]:
    """Reward, mean cost and the CVaR at each tail."""
    limit = limit_of(lines[0][1])
    found = [
        Panel(f"{title}: reward", lines, lambda run: evaluation_curve(run, "reward")),
        Panel("mean cost", lines, lambda run: evaluation_curve(run, "cost"), limit),
    ]
    for tail in tails:
        found.append(
            Panel(
                f"CVaR {tail:g} of cost",
                lines,
                lambda run, tail=tail: cvar_curve(run, "cost", tail),
                limit,
            )
        )
    return found
