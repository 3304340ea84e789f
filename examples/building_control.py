"""Control a house with a battery and power outages, and compare with hand-coded rules.

An episode is one month, in hourly steps, of a house with a heat pump, a hot water tank,
solar panels and a battery. The reward is minus the electricity drawn from the grid. The cost
of an hour is the distance, of at most 20 degrees, of the room temperature from its set point.
The mean cost of the worst 5 % of months has a limit of 720 degree hours. For comparison,
two hand-coded rules play the same number of months.

    python examples/building_control.py                    # about ten minutes
    python examples/building_control.py --steps 3000000    # as long as the paper
"""

import argparse
from pathlib import Path

import orac
from orac.api import evaluate_baseline
from orac.envs.citylearn.drawing import plot_episode
from orac.envs.citylearn.env import CityLearn
from orac.evaluation.rollout import baseline_config, record_episodes

HOUSE = "orac/CityLearn-v0"
RULES = ("thermostat", "battery_reserve")
COLUMNS = {
    "reward/mean": "reward",
    "cost/mean": "mean cost",
    "cost/cvar_0.05": "worst 5 %",
    "env/unserved_energy": "unserved",
}


def print_row(name: str, summary) -> None:
    """Print one row of the table."""
    print(f"{name:<18}" + "".join(f"{summary[key]:>12.4g}" for key in COLUMNS))


def train(steps: int) -> orac.Agent:
    """Train ORAC with the preset `paper`, but fewer gradient steps, in eight environments."""
    agent = orac.ORAC(
        HOUSE,
        num_envs=8,
        seed=0,
        settings={
            # One gradient step per eight simulated hours; the paper makes one per hour.
            "training.gradient_steps": 1 / 8,
            "training.buffer_size": 200_000,
            "evaluation.every": 0,
        },
    )
    return agent.learn(total_timesteps=steps)


def draw(agent: orac.Agent, path: Path) -> None:
    """Draw temperature, energy and storage of one week under the trained agent."""
    house = CityLearn()
    month = record_episodes(house, lambda seen: agent.predict(seen)[0])
    title = "A week under ORAC, outages shaded"
    figure = plot_episode(house, month.observations[:, 0], hours=(72, 240), title=title)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120_000, help="hours to train for")
    parser.add_argument("--months", type=int, default=100, help="months to evaluate")
    parser.add_argument("--out", type=Path, default=Path("building.png"))
    options = parser.parse_args()
    print(f"{'':<18}" + "".join(f"{title:>12}" for title in COLUMNS.values()))
    for rule in RULES:
        config = baseline_config(HOUSE, rule)
        print_row(rule, evaluate_baseline(config, options.months, (0.05,))[0])
    agent = train(options.steps)
    print_row("ORAC", agent.evaluate(options.months, tails=(0.05,)))
    draw(agent, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
