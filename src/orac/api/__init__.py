"""The Python interface: make an agent, train it and evaluate it.

    agent = orac.ORAC("orac/GuardedMaze-v0", cost_limit=5.0, tail=0.05, seed=0)
    agent.learn(total_timesteps=300_000)
    print(agent.evaluate(episodes=100))

`ORAC`, `WCSAC`, `SACLagrangian` and `SAC` build a config from a preset and the given
options and return an `Agent`. `load` returns an agent from a file or a run directory, and
`resume` continues a run. Methods and arguments that also exist in Stable-Baselines3 have the
same names as there.
"""

from orac.api.agent import Agent, NotRecordedWarning, ShortRunWarning
from orac.api.constructors import (
    ORAC,
    SAC,
    WCSAC,
    AssumedLimitWarning,
    SACLagrangian,
    make_agent,
)
from orac.api.evaluation import Evaluation, evaluate_baseline
from orac.api.loading import load, resume

__all__ = [
    "ORAC",
    "SAC",
    "WCSAC",
    "Agent",
    "AssumedLimitWarning",
    "Evaluation",
    "NotRecordedWarning",
    "SACLagrangian",
    "ShortRunWarning",
    "evaluate_baseline",
    "load",
    "make_agent",
    "resume",
]
