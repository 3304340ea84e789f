"""Write your own environment, a reservoir that must not flood, and train agents in it.

A dam generates electricity, and a litre of water generates more when the reservoir is fuller.
Once in a few months there is a storm, and if the reservoir cannot hold the water, the valley
is flooded. A day with a flood costs 1. This script trains one agent with a limit on the mean
cost and one with the same limit on the mean cost of the worst 10 % of months, and draws the
water levels of both. With the first limit, months without a flood make up for those with
one. The second limit counts only the worst months.

    python examples/own_environment.py            # about five minutes on two cores
    python examples/own_environment.py --help
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np

import orac

MONTH = 30
"""Days in an episode."""
STORM_CHANCE, STORM = 1 / 200, 0.4
"""Probability of a storm per day, and its inflow as a share of the reservoir."""


class Reservoir(gymnasium.Env):
    """A reservoir for one month. An observation has the level, the last inflow and the date."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    # Certificates need a bound: there cannot be more floods than days.
    episode_length, cost_bound = MONTH, MONTH

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.inflow, self.day = 0.5, 0.05, 0
        return self.observe(), {}

    def step(self, action):
        release = min(0.15 * float(action[0]), self.level)
        energy = 100 * release * self.level
        storm = self.np_random.random() < STORM_CHANCE
        self.inflow = self.np_random.uniform(0.0, 0.1) + STORM * storm
        filled = self.level - release + self.inflow
        self.level, self.day = min(filled, 1.0), self.day + 1
        flooded = float(filled > 1.0)
        return self.observe(), energy, False, self.day == MONTH, {"cost": flooded}

    def observe(self):
        return np.array([self.level, self.inflow, self.day / MONTH], np.float32)


SETTINGS = {
    # An episode ends with the month, and the level after that has no value for the agent.
    "agent.bootstrap_on_truncation": False,
    # Small networks, a large learning rate and one gradient step per four days make the
    # training short on a laptop.
    "agent.hidden_sizes": [64, 64],
    "agent.actor_learning_rate": 1e-3,
    "agent.exploration.shift_radius": 1.0,
    "training.gradient_steps": 1 / 4,
    "evaluation.every": 0,
}


def train(make, steps: int, **options) -> orac.Agent:
    """Train one agent in eight reservoirs at a time."""
    agent = make(Reservoir, num_envs=8, seed=0, settings=SETTINGS, **options)
    return agent.learn(total_timesteps=steps, progress_bar=False)


def record_levels(agent: orac.Agent, months: int = 5) -> np.ndarray:
    """Return the daily levels of some months, one row per month."""
    env, rows = Reservoir(), []
    for seed in range(months):
        observation, _ = env.reset(seed=seed)
        levels, over = [env.level], False
        while not over:
            action, _ = agent.predict(observation)
            observation, _, _, over, _ = env.step(action)
            levels.append(env.level)
        rows.append(levels)
    return np.array(rows)


def draw(levels: dict[str, np.ndarray], path: Path) -> None:
    """Draw one panel per agent with one line per month."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, (name, months) in zip(
        figure.subplots(1, len(levels), sharey=True), levels.items(), strict=True
    ):
        axes.plot(months.T, color="#0072B2", alpha=0.6)
        axes.axhline(1 - STORM, color="#D55E00", ls="--", label="space for a storm")
        axes.set(title=name, xlabel="day", ylim=(0, 1.02))
        axes.legend(loc="lower left", frameon=False)
    figure.axes[0].set_ylabel("level of the reservoir")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40_000, help="days to train for")
    parser.add_argument("--months", type=int, default=1_000, help="months to evaluate")
    parser.add_argument("--out", type=Path, default=Path("reservoir.png"))
    options = parser.parse_args()
    agents = {
        "mean at most 0.5": (orac.SACLagrangian, {"cost_limit": 0.5, "tail": 1.0}),
        "worst 10 % at most 0.5": (orac.ORAC, {"cost_limit": 0.5, "tail": 0.1}),
    }
    levels = {}
    for name, (make, constraint) in agents.items():
        agent = train(make, options.steps, **constraint)
        result = agent.evaluate(episodes=options.months, tails=(0.1,))
        print(
            f"{name}: energy {result['reward/mean']:.1f}, {result['cost/mean']:.2f} days "
            f"with a flood, and {result['cost/cvar_0.1']:.2f} in the worst 10 % of months"
        )
        for certificate in agent.certify(result.episodes):
            print(f"  {certificate.sentence()}")
        levels[name] = record_levels(agent)
    draw(levels, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
