"""The result of an evaluation, with its summary, its episodes and its plot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import jax
from jaxtyping import Array

from orac.config.schema import SMALLEST_TAIL, Config, Constraint, RiskMeasure
from orac.config.validation import check_range, shown
from orac.envs import registry
from orac.envs.base import EnvSpec
from orac.envs.baselines import make_baseline
from orac.evaluation.episodes import Episodes, cost_column, risk_phrase, summarise
from orac.evaluation.rollout import roll_out
from orac.reports.charts import evaluation_histogram
from orac.reports.matplotlib_figures import draw_histogram
from orac.reports.tables import Table, number, to_html


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The summary of an evaluation, by name, and its episodes.

    `evaluation["cost/cvar_0.05"]` is an entry of the summary.
    """

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
            value = f"{column} {self.summary[f'{column}/risk']:.4g}"
            risk = risk_phrase(constraint.measure, value)
            parts.append(f"{risk} (limit {constraint.limit:g})")
        return f"<Evaluation of {len(self.episodes):,} episodes: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = tuple((name, number(value)) for name, value in self.summary.items())
        return to_html(Table("Evaluation", ("name", "value"), rows))

    def plot(self) -> Any:
        """Draw the distribution of every cost, with its limit, VaR and CVaR.

        Returns a matplotlib figure. A notebook shows it, and its `savefig` writes a file.
        """
        limited = {constraint.name: constraint for constraint in self.constraints}
        columns = zip(self.cost_names, self.episodes.cost.T, strict=True)
        found = [
            evaluation_histogram(x, name, limited.get(name)) for name, x in columns
        ]
        return draw_histogram(*found)


def to_evaluation(
    episodes: Episodes,
    constraints: tuple[Constraint, ...],
    spec: EnvSpec,
    tails: Sequence[float] = (),
) -> Evaluation:
    """Summarise these episodes and return the result as an `Evaluation`."""
    costs = constraints, spec.cost_names
    summary = summarise(episodes, *costs, spec.metrics, tails)
    return Evaluation(summary, episodes, *costs)


def evaluate_baseline(
    config: Config, episodes: int, tails: Sequence[float] = ()
) -> tuple[Evaluation, EnvSpec]:
    """Evaluate the hand-coded policy of a `baseline_config`.

    Returns the evaluation and the `EnvSpec` of the environment.
    """
    env = registry.make(config.env.id, **dict(config.env.params))
    baseline = make_baseline(config.env.id, config.algo, env)

    def policy(params: None, key: Array, observation: Array) -> Array:
        return baseline(observation)

    played = roll_out(jax.random.key(config.seed), None, env, policy, episodes)
    return to_evaluation(played, config.constraints, env.spec, tails), env.spec


def checked_tails(tails: Any) -> tuple[float, ...]:
    """Return one or several tails as a tuple, or raise an error if one is invalid."""
    single = isinstance(tails, Real | str)
    if not single and not isinstance(tails, Iterable):
        raise ValueError(f"tails must be numbers in (0, 1], got {shown(tails)}.")
    several: tuple[Any, ...] = (tails,) if single else tuple(tails)
    checked = tuple(RiskMeasure("cvar", tail).parameter for tail in several)
    for tail in checked:
        check_range("each of tails", tail, SMALLEST_TAIL, 1)
    return checked
