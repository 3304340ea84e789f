"""Building control: a house, its battery and a grid that fails, against today's rules.

One month of hours with a heat pump, a hot water tank, solar panels and a battery. The
reward is minus the electricity drawn from the grid, the cost is how far the rooms are
from the temperature that was asked for, and its worst 5 % of months have a limit of 720
degree hours. Two rules show what a building does today; ORAC has to be better.

    python examples/building_control.py                    # about ten minutes
    python examples/building_control.py --steps 3000000    # as long as the paper
"""

import argparse
from pathlib import Path

import jax

import orac
from orac.core import agent as agents
from orac.envs.base import to_box
from orac.envs.citylearn.drawing import plot_episode, record_episode
from orac.envs.citylearn.env import CityLearn
from orac.evaluation.baselines import evaluate_rule, rule_config

HOUSE = "orac/CityLearn-v0"
RULES = ("thermostat", "battery_reserve")
COLUMNS = {
    "reward/mean": "reward",
    "cost/mean": "mean cost",
    "cost/cvar_0.05": "worst 5 %",
    "env/unserved_energy": "unserved",
}


def print_row(name: str, summary) -> None:
    """One line of the table."""
    print(f"{name:<18}" + "".join(f"{summary[key]:>12.4g}" for key in COLUMNS))


def train(steps: int) -> orac.Agent:
    """ORAC with the paper's settings, eight houses side by side."""
    agent = orac.ORAC(
        HOUSE,
        num_envs=8,
        seed=0,
        settings={
            # One gradient step for eight hours of experience: the paper has eight.
            "training.gradient_steps": 1 / 8,
            "training.buffer_size": 200_000,
            "evaluation.every": 0,
        },
    )
    return agent.learn(total_timesteps=steps)


def draw(agent: orac.Agent, path: Path) -> None:
    """A week of the trained house: temperature, energy, storage; outages are shaded."""
    house, state = CityLearn(), agent.runner.state.agent

    def policy(observation):
        action = agents.mean_action(state, observation[None], agent.config.agent)[0]
        return to_box(house.spec, action)

    month = record_episode(jax.random.key(0), house, policy)
    title = "A week under ORAC, outages shaded"
    plot_episode(house, month, hours=(72, 240), title=title).savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=120_000, help="hours to learn from"
    )
    parser.add_argument("--months", type=int, default=100, help="months to judge by")
    parser.add_argument("--out", type=Path, default=Path("building.png"))
    options = parser.parse_args()
    print(f"{'':<18}" + "".join(f"{word:>12}" for word in COLUMNS.values()))
    for rule in RULES:
        config = rule_config(HOUSE, rule)
        print_row(rule, evaluate_rule(config, options.months, (0.05,))[0])
    agent = train(options.steps)
    print_row("ORAC", agent.evaluate(options.months, tails=(0.05,)))
    draw(agent, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
