"""Settings with which a run of 2,000 steps learns, in seconds."""

STEPS = 2_000
SETTINGS = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "agent.pivot.every": 400,
    "training.num_envs": 8,
    "training.gradient_steps": 0.125,
    "training.batch_size": 32,
    "training.learning_starts": 200,
    "training.buffer_size": 3000,
    "training.log_every": 200,
    "training.checkpoint_every": 400,
    "evaluation.every": 1000,
    "evaluation.episodes": 4,
}
WORDS = [f"--set={name}={value}" for name, value in SETTINGS.items()]
