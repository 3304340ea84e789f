"""How an update's time grows with ensemble size, quantiles and batch: one plot.

    python benchmarks/scaling.py [--out results/benchmarks]

Each line doubles one size of the maze's ORAC-IQN or of the 256 x 256 dual agent and keeps
the others. Times are shares of the first point's, so a line at or below the dotted one
grows no worse than linearly.
"""

import argparse
import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import learner

from orac.config.schema import AgentConfig

SIZES = {
    "num_cost_critics": (2, 4, 8, 16),
    "num_quantiles": (8, 16, 32, 64),
    "batch": (64, 128, 256, 512),
}
AGENTS = ("maze orac-iqn", "safety orac-lin")


def resized(config: AgentConfig, what: str, size: int) -> AgentConfig:
    if what == "batch":
        return config
    config = replace(config, **{what: size})
    if what == "num_quantiles":
        config = replace(config, num_policy_quantiles=size)
    return config


def measure() -> list[dict[str, Any]]:
    rows = []
    for agent in AGENTS:
        config, problem = learner.cases()[agent]
        for what, sizes in SIZES.items():
            for size in sizes:
                batch_size = size if what == "batch" else 256
                batch = learner.random_batch(problem, batch_size)
                ms = learner.time_update(resized(config, what, size), problem, batch)
                row = {"agent": agent, "what": what, "size": size, "ms": round(ms, 2)}
                print(row, flush=True)
                rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3), sharey=True)
    for axis, (what, sizes) in zip(axes, SIZES.items(), strict=True):
        growth = [size / sizes[0] for size in sizes]
        axis.plot(growth, growth, "k:", label="linear")
        for agent in AGENTS:
            times = [r["ms"] for r in rows if r["agent"] == agent and r["what"] == what]
            axis.plot(growth, [t / times[0] for t in times], "o-", label=agent)
        axis.set(xscale="log", yscale="log", title=what.replace("_", " "))
        axis.set_xticks(growth, [str(size) for size in sizes], minor=False)
        axis.set_xticks([], minor=True)
        axis.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axis.set_yticks([], minor=True)
    axes[0].set_ylabel("time, in units of the first")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} threads, load {os.getloadavg()[0]:.1f}")
    rows = measure()
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "scaling.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, options.out / "scaling.png")


if __name__ == "__main__":
    main()
