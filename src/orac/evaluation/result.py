"""What evaluated episodes say: their numbers by name, and what they prove of each constraint."""

from collections.abc import Sequence
from dataclasses import dataclass

from orac.config.schema import Constraint
from orac.envs.base import EnvSpec
from orac.evaluation.certificates import Certificate, certify_cvar
from orac.evaluation.rollout import Episodes, risk_of_episodes


@dataclass(frozen=True)
class Evaluation:
    """An evaluation's numbers by name (`evaluation["cost/cvar_0.05"]`), and its episodes."""

    summary: dict[str, float]
    episodes: Episodes

    def __getitem__(self, name: str) -> float:
        return self.summary[name]

    def __str__(self) -> str:
        width = max(map(len, self.summary))
        return "\n".join(f"{k:<{width}}  {v:.6g}" for k, v in self.summary.items())


def certify(
    episodes: Episodes,
    constraints: Sequence[Constraint],
    spec: EnvSpec,
    confidence: float = 0.95,
) -> list[Certificate]:
    """A certificate for each constraint, on the cost of its name."""
    certificates = []
    for constraint in constraints:
        m = spec.cost_names.index(constraint.name)
        costs, measure = episodes.cost[:, m], constraint.measure
        bound = None if spec.cost_bounds is None else spec.cost_bounds[m]
        estimate = risk_of_episodes(costs, measure)
        if measure.name in ("cvar", "mean"):
            tail = measure.parameter if measure.name == "cvar" else 1.0
            certificate = certify_cvar(
                costs,
                estimate,
                cost_limit=float(constraint.limit),
                tail=float(tail),
                cost_bound=bound,
                level=confidence,
            )
        else:
            certificate = Certificate(
                f"the {measure} of episode cost",
                estimate,
                upper=None,
                limit=constraint.limit,
                level=confidence,
                episodes=len(costs),
                remark="bounds that hold for finitely many episodes are here for CVaR and "
                "the mean only. Certify with risk 'cvar' and a tail.",
            )
        certificates.append(certificate)
    return certificates
