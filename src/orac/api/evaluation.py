"""The result of an evaluation: its summary, its episodes and its plot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from orac.config.schema import Config, Constraint, RiskMeasure
from orac.config.validation import shown
from orac.envs.base import EnvSpec
from orac.evaluation.result import Episodes, cost_column, summarise
from orac.evaluation.rollout import play_baseline
from orac.reports.charts import evaluation_histogram
from orac.reports.matplotlib_figures import draw_histogram
from orac.reports.tables import Table, number, to_html


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Summary of an evaluation by name (`evaluation["cost/cvar_0.05"]`) and its episodes."""

    summary: dict[str, float]
    episodes: Episodes
    constraints: tuple[Constraint, ...] = ()
    cost_names: tuple[str, ...] = ("cost",)

    def __getitem__(self, name: str) -> float:
        return self.summary[name]

    def __str__(self) -> str:
        width = max(map(len, self.summary))
        return "\n".join(f"{k:<{width}}  {v:.6g}" for k, v in self.summary.items())

    def __repr__(self) -> str:
        parts = [f"reward {self.summary['reward/mean']:.4g}"]
        limited = {constraint.name: constraint for constraint in self.constraints}
        for name in self.cost_names:
            column, constraint = cost_column(name), limited.get(name)
            if constraint is None:
                parts.append(f"mean {column} {self.summary[f'{column}/mean']:.4g}")
                continue
            risk = (
                f"{constraint.measure} of {column} {self.summary[f'{column}/risk']:.4g}"
            )
            parts.append(f"{risk} (limit {constraint.limit:g})")
        return f"<Evaluation of {len(self.episodes):,} episodes: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = tuple((name, number(value)) for name, value in self.summary.items())
        return to_html(Table("Evaluation", ("name", "value"), rows))

    def plot(self) -> Any:
        """Draw the distribution of every cost, with its limit, VaR and CVaR.

        Returns a matplotlib figure, which a notebook shows; `savefig` writes it to a file.
        """
        limited = {constraint.name: constraint for constraint in self.constraints}
        columns = zip(self.cost_names, self.episodes.cost.T, strict=True)
        found = [
            evaluation_histogram(x, name, limited.get(name)) for name, x in columns
        ]
        return draw_histogram(*found)


def summarised(
    episodes: Episodes,
    constraints: tuple[Constraint, ...],
    spec: EnvSpec,
    tails: Sequence[float] = (),
) -> Evaluation:
    """Return the evaluation of these episodes."""
    about = constraints, spec.cost_names
    summary = summarise(episodes, *about, spec.metrics, tails)
    return Evaluation(summary, episodes, *about)


def evaluate_baseline(
    config: Config, episodes: int, tails: Sequence[float] = ()
) -> tuple[Evaluation, EnvSpec]:
    """Evaluate the hand-coded policy of a `baseline_config`; also return its `EnvSpec`."""
    played, spec = play_baseline(config, episodes)
    return summarised(played, config.constraints, spec, tails), spec


def checked_tails(tails: Any) -> tuple[float, ...]:
    """Return one or several tails as a tuple, after checking each of them."""
    single = isinstance(tails, Real | str)
    if not single and not isinstance(tails, Iterable):
        raise ValueError(f"tails must be numbers in (0, 1], got {shown(tails)}.")
    several: tuple[Any, ...] = (tails,) if single else tuple(tails)
    return tuple(RiskMeasure("cvar", tail).parameter for tail in several)
