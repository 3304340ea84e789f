"""An environment of small images, and a convolution as its encoder."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

SHAPE = (6, 5, 2)
CHANNELS = 3


class Screen(gymnasium.Env):
    """Shows random images. The reward is the first action, the cost the second one."""

    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    episode_length, cost_bound = 5, 5.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        ends = self.steps == self.episode_length
        cost = abs(float(action[1]))
        return self.observe(), float(action[0]), False, ends, {"cost": cost}

    def observe(self):
        return self.np_random.integers(0, 256, SHAPE, np.uint8)

    def get_state(self):
        return {"steps": self.steps, "random": self.np_random.bit_generator.state}

    def set_state(self, state):
        self.steps = int(state["steps"])
        self.np_random.bit_generator.state = state["random"]


def init(key, observation_shape):
    """Return filters of 3 x 3 pixels, and a bias, which is a NumPy array of float64."""
    filters = 0.3 * jax.random.normal(key, (3, 3, observation_shape[-1], CHANNELS))
    return {"filters": filters, "bias": np.full(CHANNELS, 0.1)}


def apply(params, observation):
    """Return the outputs of a strided convolution as one vector."""
    images = jax.lax.conv_general_dilated(
        observation[None] / 255,
        params["filters"],
        window_strides=(2, 2),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return jax.nn.relu(images + params["bias"]).reshape(-1)


CONVOLUTION = (init, apply)
NUM_FEATURES = 3 * 3 * CHANNELS


def as_matrix(params, observation):
    return observation.reshape(2, -1)


def as_dict(params, observation):
    return {"features": observation.reshape(-1)}


def as_integers(params, observation):
    return observation.reshape(-1).astype(int)


def divided_by_zero(params, observation):
    return observation.reshape(-1) / jnp.zeros(())


def with_a_fault(params, observation):
    return observation @ jnp.ones((3, 7))


def integer_parameters(key, observation_shape):
    return {"rows": np.arange(3)}
