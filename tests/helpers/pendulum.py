"""Settings of a small agent, and a cost function, for the pendulum of Gymnasium."""

TINY = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "training.learning_starts": 100,
    "training.buffer_size": 2000,
    "training.batch_size": 32,
    "training.log_every": 100,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
}


def too_fast(observation, action, next_observation, info):
    return float(abs(next_observation[2]) > 4.0)
