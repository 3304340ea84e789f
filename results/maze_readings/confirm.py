"""Late shares of the confirming runs, arm by arm, from the curves that are kept.

python results/maze_readings/confirm.py
"""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from orac.evaluation.seed_intervals import difference_interval, mean_interval

HERE = Path(__file__).parent
LAST_EVALUATIONS = 10


def late_shares(folder: Path) -> dict[str, list[float]]:
    """By case, of each seed: share of the long path in its last evaluations."""
    curves: dict[tuple[str, str], list[float]] = defaultdict(list)
    with (folder / "curves.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            curves[row["case"], row["seed"]].append(float(row["long_path"]))
    found: dict[str, list[float]] = defaultdict(list)
    for (case, _), shares in curves.items():
        found[case].append(float(np.mean(shares[-LAST_EVALUATIONS:])))
    return found


def main() -> None:
    arms = late_shares(HERE / "confirm_orac") | late_shares(HERE / "confirm_wcsac")
    first, *others = arms
    for case, shares in arms.items():
        mean = mean_interval(shares, bounds=(0.0, 1.0))
        seeds = ", ".join(f"{share:.0%}" for share in shares)
        print(
            f"{case}: {mean.estimate:.0%} [{mean.low:.0%}, {mean.high:.0%}] ({seeds})"
        )
    for case in others:
        gap = difference_interval(arms[case], arms[first])
        print(
            f"{case} minus {first}: {gap.estimate:+.0%} [{gap.low:+.0%}, {gap.high:+.0%}]"
        )


if __name__ == "__main__":
    main()
