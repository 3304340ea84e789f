"""Metrics that an environment reports in addition to reward and costs.

An environment declares each metric once, with its title, direction and valid range.
Evaluation, reports and experiments read the declarations from `EnvSpec.metrics` or,
without making the environment, from `registry.metrics_of`. This module needs no JAX.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Better = Literal["higher", "lower", ""]
"""Which direction of a metric is better; empty where neither is."""


class MetricLabel(NamedTuple):
    """One kind of episode that a metric can name, such as one of the maze's paths."""

    code: int
    """Value of the metric at the end of such an episode."""
    name: str
    """Suffix in the summary: the share of these episodes is called `<metric>_<name>`."""
    title: str
    """Title of that share in reports."""
    better: Better = ""


@dataclass(frozen=True)
class MetricSpec:
    """Declaration of one metric; an episode's value is the one at its last step."""

    name: str
    title: str = ""
    """Title in reports; the name when left empty."""
    better: Better = ""
    low: float | None = None
    """Smallest possible value; None when unknown."""
    high: float | None = None
    """Largest possible value; None when unknown."""
    labels: tuple[MetricLabel, ...] = ()
    """Kinds of episodes, for a metric whose values are codes instead of quantities."""
    hidden: bool = False
    """Whether agents must not see the metric before the episode has ended."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)
