"""SBX's SAC on a problem of the same size as Safety-Gymnasium's PointGoal1."""

import gymnasium
import numpy as np
from timing import median_ms


class Noise(gymnasium.Env):
    """60 random observations, 2 actions: only the learner's time matters."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (60,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=60).astype(np.float32), {}

    def step(self, action):
        observation = self.np_random.normal(size=60).astype(np.float32)
        return observation, float(observation[0]), False, False, {}


def time_sbx_update() -> float:
    from sbx import SAC

    model = SAC(
        "MlpPolicy",
        Noise(),
        learning_starts=100,
        batch_size=256,
        policy_kwargs={"net_arch": [256, 256]},
    )
    model.learn(400)
    return (
        median_ms(lambda: model.train(gradient_steps=20, batch_size=256), calls=3) / 20
    )
