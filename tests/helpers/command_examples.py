"""Options with which `orac train` learns within seconds."""

ENV = "orac/GuardedMaze-v0"
QUICK = [
    "--quiet",
    "--set=agent.hidden_sizes=[16, 16]",
    "--set=agent.embedding_size=8",
    "--set=agent.num_quantiles=8",
    "--set=agent.num_policy_quantiles=8",
    "--set=training.gradient_steps=0.125",
    "--set=training.learning_starts=400",
    "--set=training.buffer_size=3000",
    "--set=training.batch_size=32",
    "--set=training.log_every=160",
    "--set=training.checkpoint_every=320",
    "--set=evaluation.episodes=10",
]


def spins(observation, action, next_observation, info):
    """Return a cost of 1 if the pendulum turns fast, and of 0 otherwise."""
    return float(abs(next_observation[2]) > 6)


def train_arguments(total_steps, evaluate_every, num_envs=8):
    """Return the options of a short run with these numbers of steps."""
    return [
        f"--total-steps={total_steps}",
        f"--num-envs={num_envs}",
        *QUICK,
        f"--set=evaluation.every={evaluate_every}",
    ]
