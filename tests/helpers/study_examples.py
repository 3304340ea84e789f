"""Settings with which a run of 2,000 steps learns, in seconds."""

STEPS = 2_000
SETTINGS = {
    # So low that pivots lie below the costs: in the dual form's dead zone, where 2,000
    # steps at the paper's limit stay, optimism about cost changes nothing at all.
    "constraints.0.limit": 0.01,
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
    "evaluation.every": 2000,
    "evaluation.episodes": 1,
}
# One checkpoint, at the end: nobody interrupts these.
ONCE = {**SETTINGS, "training.checkpoint_every": STEPS}
WORDS = [f"--set={name}={value}" for name, value in ONCE.items()]
