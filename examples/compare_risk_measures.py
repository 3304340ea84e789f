"""Compare risk measures in the guarded maze: their values on two paths, and trained agents.

First, one hand-coded policy takes the short path, past the guard, and another one takes the
long path, around the guard, for 10,000 episodes each. All risk measures of their costs are
computed. Then one agent is trained for each measure. The picture shows the risks of both
paths and which path each agent takes.

    python examples/compare_risk_measures.py               # some minutes per measure
    python examples/compare_risk_measures.py --measures mean cvar
"""

import argparse
from pathlib import Path

import numpy as np

import orac
from orac.api import evaluate_baseline
from orac.evaluation.episodes import risk_of_episodes
from orac.evaluation.rollout import baseline_config

MAZE, LIMIT = "orac/GuardedMaze-v0", 5.0
CONSTRAINTS = {
    "mean": orac.Constraint(limit=LIMIT, risk="mean"),
    "cvar": orac.Constraint(limit=LIMIT, tail=0.05),
    "wang": orac.Constraint(limit=LIMIT, risk="wang", risk_parameter=0.75),
    "dual_power": orac.Constraint(limit=LIMIT, risk="dual_power", risk_parameter=2.0),
    "cpw": orac.Constraint(limit=LIMIT, risk="cpw", risk_parameter=0.71),
}
PATHS = {"short path": -1, "long path": 1, "not arrived": 0}


def measure_paths(
    measures: list[str], episodes: int = 10_000
) -> dict[str, list[float]]:
    """Print and return the risk of both paths under each measure."""
    costs = []
    for baseline in ("short_path", "long_path"):
        result, _ = evaluate_baseline(baseline_config(MAZE, baseline), episodes)
        costs.append(result.episodes.cost[:, 0])
    print(f"{'measure':<28}{'short path':>12}{'long path':>12}   limit {LIMIT:g}")
    risks = {}
    for name in measures:
        measure = CONSTRAINTS[name].measure
        risks[name] = [risk_of_episodes(paid, measure) for paid in costs]
        short, long = risks[name]
        allowed = "both paths are allowed" if short <= LIMIT else "only the long path"
        print(f"{measure!s:<28}{short:>12.2f}{long:>12.2f}   {allowed}")
    return risks


def train(name: str, steps: int) -> orac.Agent:
    """Train ORAC with the fast preset and one risk measure."""
    constraints = [CONSTRAINTS[name]]
    agent = orac.make_agent("orac", MAZE, preset="fast", constraints=constraints)
    return agent.learn(total_timesteps=steps, progress_bar=False)


def shares(paths: np.ndarray) -> list[float]:
    """Return the share of the episodes that took each path."""
    return [float((paths == number).mean()) for number in PATHS.values()]


def draw(risks: dict, taken: dict, path: Path) -> None:
    """Draw the risks of both paths on the left, and the agents' choices on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = np.arange(len(risks))
    for i, (path_name, colour) in enumerate(
        (("short path", "#D55E00"), ("long path", "#0072B2"))
    ):
        values = [pair[i] for pair in risks.values()]
        left.barh(rows + 0.4 * i, values, 0.38, color=colour, label=path_name)
    left.axvline(LIMIT, color="black", ls=":", label="limit")
    left.set(title="risk of each path's cost", yticks=rows + 0.2, yticklabels=[*risks])
    start = np.zeros(len(taken))
    for i, colour in enumerate(("#D55E00", "#0072B2", "#BBBBBB")):
        values = np.array([share[i] for share in taken.values()])
        right.barh([*taken], values, left=start, color=colour, label=[*PATHS][i])
        start = start + values
    right.set(title="path of the trained agent", xlim=(0, 1))
    for axes in (left, right):
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--measures", nargs="+", default=[*CONSTRAINTS], choices=CONSTRAINTS
    )
    parser.add_argument(
        "--steps", type=int, default=300_000, help="training steps per agent"
    )
    parser.add_argument(
        "--episodes", type=int, default=1_000, help="episodes to evaluate"
    )
    parser.add_argument("--out", type=Path, default=Path("risk_measures.png"))
    options = parser.parse_args()
    risks, taken = measure_paths(options.measures), {}
    for name in options.measures:
        agent = train(name, options.steps)
        found = agent.evaluate(options.episodes, tails=(0.05,))
        taken[name] = shares(found.episodes.metrics["path"])
        print(
            f"{name}: {taken[name][0]:.0%} past the guard, {taken[name][1]:.0%} around; "
            f"mean cost {found['cost/mean']:.2f}, worst 5 % {found['cost/cvar_0.05']:.2f}"
        )
    draw(risks, taken, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
