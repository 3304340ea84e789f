"""Safety-Gymnasium's tasks on a current stack; `register` makes their ids known.

`orac/Safety{Point,Car}{Goal,Button}{0,1,2}-v0` are the paper's variants: a physics step of
6 ms for Point and 10 ms for Car, ten of them a step, 400 steps an episode. The package's
own ids, such as `SafetyPointGoal1-v0`, keep its timestep and its episode's length.
Importing this room needs neither the package nor MuJoCo; making an environment does.
"""

import gymnasium

from orac.envs.safety.import_compat import INSTALL, missing
from orac.envs.safety.tasks import PAPER_STEPS, PAPER_TASKS, TIMESTEPS, parse, stock_ids

__all__ = ["INSTALL", "missing", "register"]

ENTRY_POINT = "orac.envs.safety.adapter:SafetyEnv"
VECTOR_ENTRY_POINT = "orac.envs.safety.vector:SafetyVectorEnv"


def register() -> None:
    """Add the ids to Gymnasium's registry; ids that are there already are left alone."""
    for name in PAPER_TASKS:
        timestep = TIMESTEPS[str(parse(name).agent)]
        _register(f"orac/{name}", name, PAPER_STEPS, {"timestep": timestep})
    for name in stock_ids():
        _register(name, name, parse(name).episode_length, {})


def _register(id: str, task: str, steps: int, settings: dict[str, float]) -> None:
    if id in gymnasium.registry:
        return
    gymnasium.register(
        id,
        entry_point=ENTRY_POINT,
        vector_entry_point=VECTOR_ENTRY_POINT,
        max_episode_steps=steps,
        kwargs={"task": task, "time_limit": steps, **settings},
    )
