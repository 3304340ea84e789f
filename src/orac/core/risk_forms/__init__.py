"""The risk forms: different kinds of cost critics, each with its way to compute risk.

`make_learner` looks up the form that `agent.risk_form` names. To add a form, write a
function `(problem, config) -> CostModel`, enter it in `COST_MODELS`, and add its name to the
choices of `AgentConfig.risk_form`.
"""

from collections.abc import Callable

from orac.config.schema import AgentConfig
from orac.core.agent import Learner
from orac.core.cost_models import CostModel, Problem
from orac.core.optimizers import make_optimizers
from orac.core.risk_forms.dual import dual_model
from orac.core.risk_forms.fixed_quantiles import quantile_model, scalar_model
from orac.core.risk_forms.implicit import implicit_model

COST_MODELS: dict[str, Callable[[Problem, AgentConfig], CostModel]] = {
    "scalar": scalar_model,
    "quantile": quantile_model,
    "implicit": implicit_model,
    "dual": dual_model,
}


def make_learner(problem: Problem, config: AgentConfig) -> Learner:
    """Return the learner for this problem, with the risk form that the config names."""
    costs = COST_MODELS[config.risk_form](problem, config)
    return Learner(problem, config, costs, make_optimizers(config))
