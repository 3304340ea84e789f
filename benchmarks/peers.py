"""Training loops of other libraries, which `bench.py` compares with ours.

    python benchmarks/peers.py PROCESSOR NAME [NAME ...]

`bench.py` runs this script with the Python of an environment that has the other libraries. A
name consists of a library, an environment and the sizes of our agent there as JSON, so that
the networks, the batch size and the ratio of updates to steps are the same.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from workloads import Workload, serve

STEPS = 400


def prepare(name: str) -> Workload:
    """Return a workload of training steps of another library."""
    library, env_id, sizes = name.split(" ", 2)
    if library == "omnisafe":
        return omnisafe(env_id, json.loads(sizes))
    return stable_baselines(library, env_id, json.loads(sizes))


def stable_baselines(library: str, env_id: str, sizes: dict[str, Any]) -> Workload:
    """Return a workload of SAC of Stable-Baselines3 (`sb3`) or SBX (`sbx`), after warm-up."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    if library == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    num_envs = sizes["num_envs"]
    env = make_vec_env(lambda: make_env(env_id), num_envs)
    model = SAC(
        "MlpPolicy",
        env,
        learning_starts=STEPS,
        buffer_size=20_000,
        batch_size=sizes["batch_size"],
        train_freq=1,
        gradient_steps=max(round(sizes["gradient_steps"] * num_envs), 1),
        policy_kwargs={"net_arch": list(sizes["hidden_sizes"])},
        device="cpu",
    )
    model.learn(2 * STEPS)

    def call() -> None:
        model.learn(STEPS, reset_num_timesteps=False)

    return Workload(call, STEPS, {})


def make_env(env_id: str) -> Any:
    """Return an environment of orac, of Gymnasium, or of the package Safety-Gymnasium."""
    import gymnasium

    if env_id.startswith("orac/"):
        import orac.envs  # noqa: F401
    if not env_id.startswith("package/"):
        return gymnasium.make(env_id)
    from orac.envs.safety.env import SafetyEnv
    from orac.envs.safety.tasks import PAPER_STEPS, TIMESTEPS, parse_id

    task = env_id.removeprefix("package/")
    timestep = TIMESTEPS[str(parse_id(task).agent)]
    return SafetyEnv(
        task=task, timestep=timestep, episode_length=PAPER_STEPS, fast=False
    )


def omnisafe(env_id: str, sizes: dict[str, Any]) -> Workload:
    """Return a workload of OmniSafe's SAC-Lagrangian, in the package's environment.

    Each call trains a new agent from the start.
    """
    import omnisafe

    steps = 5 * STEPS
    config = {
        "train_cfgs": {
            "total_steps": steps,
            "vector_env_nums": sizes["num_envs"],
            "torch_threads": 1,
        },
        "algo_cfgs": {
            "steps_per_epoch": steps,
            "update_cycle": sizes["num_envs"],
            "update_iters": max(round(sizes["gradient_steps"] * sizes["num_envs"]), 1),
            "batch_size": sizes["batch_size"],
            "start_learning_steps": STEPS,
        },
        "logger_cfgs": {"use_wandb": False, "use_tensorboard": False},
        "model_cfgs": {
            kind: {"hidden_sizes": list(sizes["hidden_sizes"])}
            for kind in ("actor", "critic")
        },
    }
    task = env_id.removeprefix("package/")
    return Workload(
        lambda: omnisafe.Agent("SACLag", task, custom_cfgs=config).learn(), steps, {}
    )


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    serve(prepare, sys.argv[2:])
