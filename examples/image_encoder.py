"""Learn from images: put a small convolutional encoder in front of the networks.

A boat drives through a channel from left to right. It earns most in the middle of the
channel, where a rock lies at a random place. The agent sees the channel from above, as an
image of 12 x 12 pixels with two colours, and steers up or down. Each step on the rock costs
1. The encoder below is a pair of functions: one makes its parameters, and the other turns an
image into features with two convolutions. The actor and each critic train their own copy of
the parameters.

    pip install "orac-rl[plots,stablehlo]"
    python examples/image_encoder.py              # about a minute of processor time
    python examples/image_encoder.py --help
"""

import argparse
from pathlib import Path

import gymnasium
import jax
import numpy as np

import orac

PIXELS = 12
"""Height and width of the image. An episode has `PIXELS - 1` steps."""
ROCK = 4
"""Height and width of a rock."""


class Channel(gymnasium.Env):
    """A boat in a channel. In the image, the boat has the first colour and the rock the second."""

    observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 2), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode_length, cost_bound = PIXELS - 1, float(ROCK)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.column, self.row = 0, (PIXELS - 1) / 2
        self.rock_row = int(self.np_random.integers(2, PIXELS - ROCK - 1))
        self.rock_column = int(self.np_random.integers(4, PIXELS - ROCK + 1))
        return self.observe(), {}

    def step(self, action):
        self.column += 1
        self.row = float(np.clip(self.row + 2 * action[0], 0, PIXELS - 1))
        middle = (PIXELS - 1) / 2
        reward = 1 - abs(self.row - middle) / middle
        on_rock = (
            0 <= self.column - self.rock_column < ROCK
            and 0 <= self.row - self.rock_row + 0.5 < ROCK
        )
        ends = self.column == PIXELS - 1
        return self.observe(), reward, ends, False, {"cost": float(on_rock)}

    def observe(self):
        image = np.zeros((PIXELS, PIXELS, 2), np.uint8)
        rows = np.arange(PIXELS)
        # If the boat is between two rows, a part of it is drawn in each.
        image[:, self.column, 0] = 255 * np.clip(1 - abs(rows - self.row), 0, 1)
        corner = slice(self.rock_row, None), slice(self.rock_column, None)
        image[corner][:ROCK, :ROCK, 1] = 255
        return image


def init(key, observation_shape):
    """Return the parameters: filters of 3 x 3 pixels for two convolutions."""
    keys, channels = jax.random.split(key), (observation_shape[-1], 8, 16)
    return [
        jax.random.normal(keys[i], (3, 3, channels[i], channels[i + 1]))
        * (2 / (9 * channels[i])) ** 0.5
        for i in range(2)
    ]


def apply(params, observation):
    """Return the features of one image, whose pixels are numbers from 0 to 255."""
    layer = observation[None] / 255
    for filters in params:
        layer = jax.lax.conv_general_dilated(
            layer,
            filters,
            window_strides=(2, 2),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        layer = jax.nn.relu(layer)
    return layer.reshape(-1)


CONVOLUTION = (init, apply)
"""The encoder. In the shell, `--encoder image_encoder:CONVOLUTION` selects it."""

SETTINGS = {
    # Small networks and one gradient step per four steps make the training short.
    "agent.hidden_sizes": [64, 64],
    "training.gradient_steps": 1 / 4,
    "training.batch_size": 64,
    "training.buffer_size": 20_000,
    "training.learning_starts": 500,
    "evaluation.every": 2_000,
}


def drive(agent: orac.Agent, seed: int) -> tuple[Channel, np.ndarray]:
    """Play the episode of a seed. Return its environment, and the boat's row at each step."""
    env = Channel()
    image, _ = env.reset(seed=seed)
    rows, over = [env.row], False
    while not over:
        action, _ = agent.predict(image)
        image, _, over, _, _ = env.step(action)
        rows.append(env.row)
    return env, np.array(rows)


def draw(journeys: list[tuple[Channel, np.ndarray]], path: Path) -> None:
    """Draw one panel per episode, with the rock and the boat's way around it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * len(journeys), 2.2), layout="constrained")
    panels = figure.subplots(1, len(journeys), sharey=True)
    for axes, (env, rows) in zip(panels, journeys, strict=True):
        axes.imshow(env.observe()[:, :, 1], cmap="Greys")
        axes.plot(rows, color="#D55E00", marker=".")
        axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8_000, help="steps to train for")
    parser.add_argument(
        "--episodes", type=int, default=500, help="episodes to evaluate"
    )
    parser.add_argument("--out", type=Path, default=Path("channel.png"))
    parser.add_argument("--policy", type=Path, default=Path("channel.stablehlo"))
    options = parser.parse_args()
    agent = orac.ORAC(
        Channel,
        encoder=CONVOLUTION,
        cost_limit=0.5,
        tail=0.2,
        num_envs=8,
        settings=SETTINGS,
    )
    agent.learn(options.steps, progress_bar=False)
    print(agent.evaluate(options.episodes))
    draw([drive(agent, seed) for seed in range(5)], options.out)
    print(f"picture: {options.out}")
    agent.export(options.policy, overwrite=True)
    print(f"policy: {options.policy}")


if __name__ == "__main__":
    main()
