"""Everything an agent is, in one place. `agents.init` makes it; `learning` moves its parts."""

from typing import Any, NamedTuple

from jaxtyping import Array, Int

from orac.core.lagrange import Multiplier
from orac.core.normalization import ObservationStats
from orac.core.optimizers import Learned


class AgentState(NamedTuple):
    """Everything an agent is. Checkpoints hold it; `update` builds it anew."""

    actor: Learned
    reward_critics: Learned
    cost_critics: Learned
    target_reward_critics: Any
    target_cost_critics: Any
    log_temperature: Learned
    multiplier: Multiplier
    pivot: Learned
    observation_stats: ObservationStats
    gradient_steps: Int[Array, ""]
