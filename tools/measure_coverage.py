"""Measure how often intervals over seeds contain the true value.

    python tools/measure_coverage.py            print the tables
    python tools/measure_coverage.py --write    write them into docs/statistics.md

Everything is drawn from fixed seeds. This takes about five minutes on one core.
`measure_certificates.py` does the same for certificates.
"""

import argparse
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy import special

from orac.evaluation import seed_intervals

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
RUNS = (2, 3, 5, 10, 20)
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def success_like(share: float) -> Draw:
    """Return a sampler of success rates: near 0.9 for a share of the runs, otherwise near 0.1."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        good = random.random(shape) < share
        return np.where(good, random.beta(18, 2, shape), random.beta(2, 18, shape))

    return draw


BETWEEN: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, shape: random.normal(size=shape), 0.0),
    "lognormal, sigma 0.5": (
        lambda random, shape: random.lognormal(0, 0.5, shape),
        math.exp(0.125),
    ),
    "success-like, half": (success_like(0.5), 0.5),
    "uniform": (lambda random, shape: random.random(shape), 0.5),
    "Student, 3 degrees": (lambda random, shape: random.standard_t(3, shape), 0.0),
    "exponential": (lambda random, shape: random.exponential(size=shape), 1.0),
    "lognormal, sigma 1": (
        lambda random, shape: random.lognormal(0, 1, shape),
        math.exp(0.5),
    ),
    "success-like, 7 in 10": (success_like(0.7), 0.66),
    "success-like, 9 in 10": (success_like(0.9), 0.82),
}
"""Distributions of the result of a run by name. Each is a sampler and the true mean."""
COMPARED = ("normal", "lognormal, sigma 0.5", "success-like, half")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def bootstrap_means(values: np.ndarray, bias_corrected: bool) -> np.ndarray:
    """Return 95 % bootstrap intervals of each column's mean: percentile or BCa (Efron, 1987)."""
    n, random = len(values), np.random.default_rng(0)
    shares = random.multinomial(n, np.full(n, 1 / n), size=2000) / n
    drawn = np.sort(shares @ values, axis=0)
    levels = np.tile([[0.025], [0.975]], (1, values.shape[1]))
    if bias_corrected:
        mean = values.mean(axis=0)
        below = ((drawn < mean).mean(axis=0) + (drawn <= mean).mean(axis=0)) / 2
        bias = special.ndtri(np.clip(below, 1e-3, 1 - 1e-3))
        gaps = values - mean
        skew = (gaps**3).sum(axis=0) / (6 * (gaps**2).sum(axis=0) ** 1.5)
        shifted = bias + special.ndtri(levels)
        levels = special.ndtr(bias + shifted / (1 - skew * shifted))
    ranks = np.clip((levels * 2000).astype(int), 0, 1999)
    return np.take_along_axis(drawn, ranks, axis=0)


def student_means(values: np.ndarray) -> np.ndarray:
    n = len(values)
    half = special.stdtrit(n - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return np.stack([values.mean(axis=0) - half, values.mean(axis=0) + half])


def our_means(values: np.ndarray) -> np.ndarray:
    band = seed_intervals.mean_band(values)
    assert band.low is not None and band.high is not None
    return np.stack([band.low, band.high])


MEANS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "percentile bootstrap": lambda values: bootstrap_means(values, False),
    "BCa bootstrap": lambda values: bootstrap_means(values, True),
    "Student": student_means,
    "ours": our_means,
}


def mean_coverage(name: str, method: str, runs: int, sets: int = 10_000) -> float:
    """Return the share of intervals of this method that contain the true mean."""
    draw, truth = BETWEEN[name]
    random, hits = np.random.default_rng(runs), []
    for _ in range(sets // 500):
        low, high = MEANS[method](draw(random, (runs, 500)))
        hits.append((low <= truth) & (truth <= high))
    return float(np.mean(hits))


def mean_table() -> str:
    pairs = [(name, method) for name in COMPARED for method in MEANS]
    others = [name for name in BETWEEN if name not in COMPARED]
    pairs += [(name, method) for name in others for method in ("Student", "ours")]
    rows = [
        [name, method, *(percent(mean_coverage(name, method, n)) for n in RUNS)]
        for name, method in pairs
    ]
    return table(["distribution of runs", "interval", *map(str, RUNS)], rows)


def share_coverage(mean: float, runs: int, episodes: int = 100) -> list[float]:
    """Measure intervals of a share of episodes whose probability varies between runs.

    The probabilities of the runs have a beta distribution. Returns the share
    of intervals, clipped to [0, 1], that contain the mean, and the share of sets of runs that
    have no interval.
    """
    random, held, known = np.random.default_rng(runs), [], []
    for _ in range(20):
        chance = random.beta(20 * mean, 20 * (1 - mean), (runs, 500))
        shares = random.binomial(episodes, chance) / episodes
        band = seed_intervals.mean_band(shares, bounds=(0.0, 1.0))
        assert band.low is not None and band.high is not None
        known.append(np.isfinite(band.low))
        held.append((band.low <= mean) & (mean <= band.high))
    return [float(np.mean(held) / np.mean(known)), 1 - float(np.mean(known))]


def share_table() -> str:
    rows = []
    for mean in (0.5, 0.2, 0.05, 0.01):
        found = [share_coverage(mean, n) for n in RUNS]
        cells = [f"{percent(held)} ({percent(none)})" for held, none in found]
        rows.append([f"{mean:g}", *cells])
    return table(["mean share", *map(str, RUNS)], rows)


def difference_coverage(name: str, runs: int, factor: float, sets: int = 2000) -> float:
    """Return the share of intervals of a difference of means that contain the true difference.

    `factor` multiplies the values of the second set.
    """
    draw, truth = BETWEEN[name]
    random, hits = np.random.default_rng(runs), 0
    for _ in range(sets):
        ours, theirs = draw(random, (runs,)), factor * draw(random, (runs,))
        found = seed_intervals.difference_interval(ours, theirs)
        assert found.low is not None and found.high is not None
        hits += found.low <= (1 - factor) * truth <= found.high
    return hits / sets


def difference_table() -> str:
    rows = [
        [
            name,
            f"{factor:g}",
            *(percent(difference_coverage(name, n, factor)) for n in RUNS),
        ]
        for name in COMPARED
        for factor in (1.0, 3.0)
    ]
    return table(["distribution of runs", "their spread", *map(str, RUNS)], rows)


def middle_coverage(name: str, runs: int, tasks: int, sets: int = 1000) -> list[float]:
    """Return the shares of rliable's and of our intervals with the true interquartile mean."""
    draw, _ = BETWEEN[name]
    large = draw(np.random.default_rng(9), (2_000_000,))
    low, high = np.quantile(large, [0.25, 0.75])
    truth = large[(low <= large) & (large <= high)].mean()
    random, hits = np.random.default_rng(runs), np.zeros(2)
    for _ in range(sets):
        scores = draw(random, (runs, tasks))
        drawn = seed_intervals.stratified_resamples(scores, 1000).reshape(1000, -1)
        cut = drawn.shape[1] // 4
        means = np.sort(drawn, axis=1)[:, cut : drawn.shape[1] - cut].mean(axis=1)
        plain = np.quantile(means, [0.025, 0.975])
        found = seed_intervals.interquartile_mean(scores)
        assert found.low is not None and found.high is not None
        hits += [plain[0] <= truth <= plain[1], found.low <= truth <= found.high]
    return list(hits / sets)


def middle_table() -> str:
    rows = []
    for name in (*COMPARED, "Student, 3 degrees"):
        for tasks in (1, 5):
            found = [middle_coverage(name, n, tasks) for n in RUNS[1:]]
            cells = [f"{percent(plain)} → {percent(ours)}" for plain, ours in found]
            rows.append([name, str(tasks), *cells])
    return table(["distribution of runs", "tasks", *map(str, RUNS[1:])], rows)


def wins(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the share of pairs of runs in which our run is better, averaged over tasks."""
    gaps = ours[..., :, None, :] - theirs[..., None, :, :]
    return ((gaps > 0) + 0.5 * (gaps == 0)).mean(axis=(-3, -2, -1))


def improvement_coverage(shift: float, runs: int, tasks: int) -> list[float]:
    """Return the shares of intervals that contain the true probability of improvement.

    The first share is for rliable's intervals, and the second for ours.
    """
    truth = special.ndtr(shift / math.sqrt(2))
    random, hits, sets = np.random.default_rng(runs), np.zeros(2), 1000
    for _ in range(sets):
        ours = random.normal(shift, 1, (runs, tasks))
        theirs = random.normal(0, 1, (runs, tasks))
        drawn = wins(
            seed_intervals.stratified_resamples(ours, 1000, seed=1),
            seed_intervals.stratified_resamples(theirs, 1000, seed=2),
        )
        plain = np.quantile(drawn, [0.025, 0.975])
        found = seed_intervals.probability_of_improvement(ours, theirs)
        assert found.low is not None and found.high is not None
        hits += [plain[0] <= truth <= plain[1], found.low <= truth <= found.high]
    return list(hits / sets)


def improvement_table() -> str:
    rows = []
    for shift in (0.0, 1.0, 2.0, 3.0):
        for tasks in (1, 4):
            found = [improvement_coverage(shift, n, tasks) for n in (3, 5, 10)]
            cells = [f"{percent(plain)} → {percent(ours)}" for plain, ours in found]
            truth = special.ndtr(shift / math.sqrt(2))
            rows.append([f"{truth:.2f}", str(tasks), *cells])
    return table(["true probability", "tasks", "3", "5", "10"], rows)


TABLES = {
    "means": mean_table,
    "shares": share_table,
    "differences": difference_table,
    "middle": middle_table,
    "improvement": improvement_table,
}


def write(name: str, text: str) -> None:
    """Replace the text between the two comments with this name in docs/statistics.md."""
    page = PAGE.read_text()
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    head, rest = page.split(begin)
    PAGE.write_text(head + begin + "\n" + text + "\n\n" + end + rest.split(end)[1])


def main(tables: dict[str, Callable[[], str]]) -> None:
    """Print the tables and, with `--write`, write them into the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=tables, help="make one table instead of all")
    about = f"write the tables into {PAGE.name}"
    parser.add_argument("--write", action="store_true", help=about)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else tables:
        text = tables[name]()
        print(f"{name}\n\n{text}\n", flush=True)
        if arguments.write:
            write(name, text)


if __name__ == "__main__":
    main(TABLES)
