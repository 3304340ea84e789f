"""Measure the monitor: wrong bounds, their tightness, and the delay of the alarm.

    python tools/measure_monitor.py            print the tables
    python tools/measure_monitor.py --write    write them into docs/statistics.md

Everything is drawn from fixed seeds. This takes about four minutes on one core.
"""

import math

import numpy as np
from measure_certificates import COSTS, rare, true_cvar
from measure_coverage import main, percent, table

from orac.evaluation import cvar_bounds
from orac.monitor import ChangeDetector, CvarBets, Monitor, cost_grid

LIMIT, BOUND, STREAMS, EPISODES = 5.0, 24.0, 2000, 1000
NAMES = (
    "always 4",
    "4, or 24 with chance 3.3/n",
    "4, or 24 with chance 0.02",
    "2, or 20 with chance 0.15",
    "24 beta(2, 5)",
    "uniform",
    "exponential, mean 2",
)


def wrong_bounds(name: str, tail: float) -> str:
    """Return the percentages of streams whose lower and whose upper bound is wrong at any time.

    The true CVaR is the only level that is tested. A bound is wrong if the bets against this
    level win enough to reject it.
    """
    grid = cost_grid(LIMIT, BOUND) / BOUND
    level = np.array([true_cvar(name, EPISODES, tail) / BOUND])
    bets = CvarBets(grid, level, tail, math.log(2 / 0.05), streams=(STREAMS,))
    random = np.random.default_rng(0)
    for _ in range(EPISODES):
        bets.update(COSTS[name](EPISODES)(random.random(STREAMS)) / BOUND)
    lower, upper = bets.bounds()
    return f"{percent((lower > 0).mean())} + {percent((upper < 2).mean())}"


def error_table() -> str:
    tails = (0.05, 0.25, 1.0)
    rows = [[name, *(wrong_bounds(name, tail) for tail in tails)] for name in NAMES]
    return table(["episode cost, at most 24", *(f"tail {t:g}" for t in tails)], rows)


def width_row(name: str, episodes: int) -> list[str]:
    random, bounds = np.random.default_rng(episodes), []
    for _ in range(5):
        costs = COSTS[name](episodes)(random.random(episodes))
        monitor = Monitor(LIMIT, 0.05, 0.95, BOUND)
        for cost in costs:
            monitor.update(cost)
        upper = cvar_bounds.cvar_upper_bound(costs, 0.05, BOUND)
        bounds.append([*monitor.cvar_bounds, upper])
    values = (true_cvar(name, episodes, 0.05), *np.mean(bounds, axis=0))
    return [name, str(episodes), *(f"{value:.2f}" for value in values)]


def width_table() -> str:
    names = [name for name in NAMES if not name.endswith("/n")]
    rows = [width_row(name, n) for name in names for n in (200, 1000, 10_000)]
    heads = ["episode cost, at most 24", "episodes", "true CVaR at 0.05"]
    return table([*heads, "lower bound", "upper bound", "certificate"], rows)


def alarm_times(costs: np.ndarray) -> np.ndarray:
    """Return the number of the first episode with an alarm in each row of costs.

    For a row without an alarm, it is the number of episodes.
    """
    streams, episodes = costs.shape
    detector = ChangeDetector(LIMIT / BOUND, 0.05, streams=(streams,))
    times = np.full(streams, episodes)
    for i, cost in enumerate(costs.T / BOUND, start=1):
        detector.update(cost)
        reached = detector.evidence() >= math.log(10_000)
        times = np.where(reached, np.minimum(times, i), times)
    return times


def alarm_table() -> str:
    changes = {
        "2, or 20 with chance 0.15": COSTS["2, or 20 with chance 0.15"](1),
        "4, or 24 with chance 0.02": rare(0.02),
        "4, or 24 with chance 0.01": rare(0.01),
        "4, or 24 with chance 0.005": rare(0.005),
        "always 6": lambda u: np.full_like(u, 6.0),
        "always 5.2": lambda u: np.full_like(u, 5.2),
    }
    rows = []
    for name, costs in changes.items():
        random = np.random.default_rng(0)
        before = rare(0.001)(random.random((200, 500)))
        after = costs(random.random((200, 3000)))
        times = alarm_times(np.concatenate([before, after], axis=1))
        levels = 1 - 0.05 * (np.arange(100_000) + 0.5) / 100_000
        delays = times[times > 500] - 500
        cells = [f"{float(costs(levels).mean()):.1f}", str((times <= 500).sum())]
        for quantile in np.quantile(delays, [0.5, 0.95]):
            cells.append(f"{quantile:.0f}" if quantile < 3000 else "above 3000")
        rows.append([name, *cells])
    heads = ["episode cost after the change", "CVaR at 0.05", "false alarms before it"]
    return table([*heads, "median delay", "95 % are within"], rows)


if __name__ == "__main__":
    main({"errors": error_table, "widths": width_table, "alarms": alarm_table})
