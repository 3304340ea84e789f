"""What a run is held to: a cost, its limit, and the measure of its risk."""

import re
from dataclasses import dataclass

from orac import risk
from orac.checks import check_range, freeze
from orac.risk import RiskMeasure

COST_NAME = re.compile(r"[\w.-]+( +[\w.-]+)*")


def check_cost_name(name: str) -> None:
    """Refuse a name that cannot head a column or be part of a metric's name."""
    if not isinstance(name, str) or not COST_NAME.fullmatch(name):
        raise ValueError(
            "the name of a constraint must be letters, digits, '_', '.', '-' or inner "
            f"spaces, got {name!r}. It heads columns of the run's files."
        )


@dataclass(frozen=True)
class Constraint:
    """One cost, the limit of its risk per episode, and how its risk is measured."""

    name: str = "cost"
    """Name of the cost: the environment's, or a label for what `cost_fn` returns."""
    limit: float = 25.0
    """Most that the risk of an episode's undiscounted cost may be."""
    tail: float = 1.0
    """Worst-case mass in (0, 1] for CVaR: 0.05 is the worst 5 %, 1 is risk-neutral."""
    risk: str = "cvar"
    """Risk measure: cvar, mean, wang, power, dual_power or cpw."""
    risk_parameter: float | None = None
    """Parameter of a risk measure other than cvar and mean."""

    def __post_init__(self):
        freeze(self)
        check_cost_name(self.name)
        check_range(
            f"limit of constraint {self.name!r}",
            self.limit,
            0,
            advice="It is the most that an episode may cost; costs are at least 0.",
        )
        _ = self.measure
        RiskMeasure("cvar", self.tail)
        if self.risk in ("cvar", "mean") and self.risk_parameter is not None:
            raise ValueError(
                f"risk_parameter must be None for risk measure {self.risk!r}, got "
                f"{self.risk_parameter!r}. Set tail: it is what CVaR looks at."
            )

    @property
    def measure(self) -> RiskMeasure:
        """The risk measure that the fields describe."""
        if self.risk == "cvar":
            return RiskMeasure("cvar", self.tail)
        if self.risk == "mean":
            return RiskMeasure("mean")
        if self.risk_parameter is None and self.risk in risk.DISTORTIONS:
            raise ValueError(
                f"risk_parameter must be {risk.DISTORTIONS[self.risk].expects} for risk "
                f"measure {self.risk!r}, got None. Set risk_parameter."
            )
        return RiskMeasure(self.risk, self.risk_parameter or 0.0)
