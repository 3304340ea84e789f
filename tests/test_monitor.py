"""Tests of the monitor for deployed policies: its bounds, its alarm and its files."""

import json
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from orac import monitor as module
from orac.monitor import ChangeDetector, CvarBets, Monitor, cost_grid, rate_interval

ROOT = Path(__file__).parents[1]
LIMIT, BOUND, ERROR = 5.0, 24.0, 0.05
GRID = cost_grid(LIMIT, BOUND) / BOUND
LEVELS = GRID[1:-1]
GOAL = math.log(2 / ERROR)


def two_values(low, high, chance):
    """Return the quantile function of a cost of `low`, or of `high` with a chance."""
    return lambda u: np.where(u > 1 - chance, high, low)


COSTS = {
    "rare": two_values(4.0, 24.0, 3.3 / 400),
    "maze": two_values(2.0, 20.0, 0.15),
    "uniform": lambda u: 24 * u,
    "exponential": lambda u: np.minimum(-2 * np.log1p(-u), 24.0),
    "half": two_values(0.0, 24.0, 0.5),
}


def true_cvar(name, tail):
    levels = 1 - tail * (np.arange(1_000_000) + 0.5) / 1_000_000
    return float(COSTS[name](levels).mean())


def wrong_bounds(name, tail, streams, episodes):
    """Return how often each bound is wrong after some episode.

    A bound is wrong if it is beyond the true CVaR, and then the gambler at the true CVaR has
    reached the goal. Gamblers who have reached it stop, so the end shows all times at once.
    """
    level = np.array([true_cvar(name, tail) / BOUND])
    bets = CvarBets(GRID, level, tail, GOAL, streams=(streams,))
    random = np.random.default_rng(7)
    for _ in range(episodes):
        bets.update(COSTS[name](random.random(streams)) / BOUND)
    lower, upper = bets.bounds()
    return (lower > 0).mean(), (upper < 2).mean()


def assert_at_most(share, rate, n):
    """Assert that a share of n is not above the rate by more than sampling error."""
    assert share <= rate + 3 * math.sqrt(rate * (1 - rate) / n)


@pytest.mark.parametrize(("name", "tail"), [("rare", 0.05), ("half", 1.0)])
def test_the_bounds_on_cvar_hold_at_all_times_at_once(name, tail):
    below, above = wrong_bounds(name, tail, streams=2000, episodes=200)
    assert_at_most(below, ERROR / 2, 2000)
    assert_at_most(above, ERROR / 2, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("tail", [0.05, 0.25])
@pytest.mark.parametrize("name", COSTS)
def test_the_bounds_on_cvar_hold_for_many_distributions(name, tail):
    below, above = wrong_bounds(name, tail, streams=2000, episodes=300)
    assert_at_most(below, ERROR / 2, 2000)
    assert_at_most(above, ERROR / 2, 2000)


def test_a_bet_against_a_level_does_not_depend_on_the_other_levels():
    # The tests of coverage have only the level of the true CVaR, the monitor has them all.
    random = np.random.default_rng(0)
    some = [3, 99, 150, 195]
    full = CvarBets(GRID, LEVELS, 0.05, GOAL)
    few = CvarBets(GRID, LEVELS[some], 0.05, GOAL, streams=(1,))
    for cost in 24 * random.beta(2, 5, 300) / BOUND:
        full.update(cost)
        few.update(np.array([cost]))
    np.testing.assert_allclose(full.upper_wealth[some], few.upper_wealth[0])
    np.testing.assert_allclose(full.lower_wealth[some], few.lower_wealth[0])
    assert np.abs(few.lower_wealth).max() > 1 and np.abs(few.upper_wealth).max() > 1


@pytest.mark.parametrize("tail", [0.05, 0.5, 1.0])
def test_the_excess_of_a_cell_is_the_smallest_over_its_pivots(tail):
    low, high = module.pivot_cells(np.array([0.4]), tail)
    assert low[0, 0] == 0 and (tail == 1 or high[0, -1] == 0.4)
    assert (low[0, 1:] == high[0, :-1]).all()
    for cost in (0.0, 0.1, 0.39, 0.4, 0.41, 1.0):
        excess = module.cell_excess(cost, 0.4, low[0], high[0])
        for start, end, value in zip(low[0], high[0], excess, strict=True):
            pivots = np.linspace(start, end, 20)
            pivots = pivots[pivots < 0.4 - 1e-12]
            smallest = (np.maximum(cost - pivots, 0) / (0.4 - pivots)).min()
            assert value <= smallest + 1e-12
            # In the cell that ends at the level, pivots next to it have an excess of 0.
            if end < 0.4:
                assert value == pytest.approx(smallest)


def test_the_upper_bound_without_any_cost_has_a_closed_form():
    # All excesses are 0, so the best pivot is 0 and the hypothesis has the mean m = tail c.
    # After t episodes the imagined one has the weight q = 0.1 / (t + 0.1). Kelly's factor
    # is (1 - q) / (1 - m) if m > q. Below 20 episodes, bets are placed after each episode.
    tail, episodes = 0.25, 18
    monitor = Monitor(limit=LIMIT, tail=tail, confidence=0.95, cost_bound=BOUND)
    wealth = np.zeros(len(LEVELS))
    for seen in range(episodes):
        monitor.update(0.0)
        if seen:
            unimagined = 1 - 0.1 / (seen + 0.1)
            wealth += np.maximum(np.log(unimagined / (1 - tail * LEVELS)), 0)
    expected = BOUND * LEVELS[wealth >= math.log(40)].min()
    assert LIMIT < expected < BOUND
    assert monitor.cvar_bounds == (0, pytest.approx(expected))


def test_the_lower_bound_on_the_mean_of_a_constant_cost_has_a_closed_form():
    # The cost is z times a level c. After t episodes and half an imagined one
    # without cost, the share of episodes with a cost is t / (t + 0.5), and Kelly's factor
    # is z t / (t + 0.5) if that is above 1.
    monitor = Monitor(limit=LIMIT, tail=1, confidence=0.95, cost_bound=BOUND)
    level = cost_grid(LIMIT, BOUND)[1:-1]
    cost = float(level[level >= 12][0])  # on the grid, so that nothing is rounded
    wealth = np.zeros(len(level))
    for seen in range(15):
        monitor.update(cost)
        if seen:
            wealth += np.maximum(np.log(cost / level * seen / (seen + 0.5)), 0)
    expected = level[wealth >= math.log(40)].max()
    assert LIMIT < expected < cost
    assert monitor.cvar_bounds[0] == pytest.approx(expected)
    assert monitor.status == "broken"


def test_a_probability_without_a_success_has_a_closed_form():
    # With Jeffreys' prior n failures have the probability 1/2, 3/8, 5/16, ...
    for n, mixture in ((1, 1 / 2), (2, 3 / 8), (3, 5 / 16)):
        low, high = rate_interval(0, n, 0.95)
        assert (low, high) == (0, pytest.approx(1 - (0.05 * mixture) ** (1 / n)))
        low, high = rate_interval(n, n, 0.95)
        assert (low, high) == (pytest.approx((0.05 * mixture) ** (1 / n)), 1)


@pytest.mark.parametrize(("rate", "episodes"), [(0.02, 200), (0.4, 60)])
def test_the_bounds_on_violations_hold_at_all_times_at_once(rate, episodes):
    interval = cache(lambda k, n: rate_interval(k, n, 0.95))
    random = np.random.default_rng(1)
    counts = np.cumsum(random.random((2000, episodes)) < rate, axis=1)
    wrong = np.zeros(2000, bool)
    for n in range(1, episodes + 1):
        bounds = {k: interval(int(k), n) for k in np.unique(counts[:, n - 1])}
        outside = {k for k, (low, high) in bounds.items() if not low <= rate <= high}
        wrong |= np.isin(counts[:, n - 1], list(outside))
    assert wrong.mean() > 0
    assert_at_most(wrong.mean(), 0.05, 2000)


def alarm_times(costs, run_length):
    """Return the first episode with an alarm for each row of costs, or their number."""
    detector = ChangeDetector(LIMIT / BOUND, 0.05, streams=(len(costs),))
    times = np.full(len(costs), costs.shape[1])
    for i, cost in enumerate(costs.T / BOUND):
        detector.update(cost)
        new = (detector.evidence() >= math.log(run_length)) & (times == costs.shape[1])
        times[new] = i + 1
    return times


# 4, or 24 with chance 0.0025, and 2, or 20 with chance 1/120, have a CVaR of exactly 5.
@pytest.mark.parametrize("values", [(4.0, 24.0, 0.0025), (2.0, 20.0, 1 / 120)])
def test_false_alarms_are_as_rare_as_stated(values):
    costs = two_values(*values)(np.random.default_rng(2).random((200, 400)))
    times = alarm_times(costs, run_length=50)
    # Streams without an alarm count as if they had one at their end.
    assert times.mean() >= 50
    assert (times < 400).any()


def test_the_alarm_comes_soon_after_a_change():
    random = np.random.default_rng(3)
    before = np.full((100, 1000), 4.0)
    after = two_values(2.0, 20.0, 0.15)(random.random((100, 200)))
    times = alarm_times(np.concatenate([before, after], axis=1), run_length=10_000)
    delay = times - 1000
    assert (delay > 0).all()
    assert delay.mean() < 40 and np.quantile(delay, 0.95) < 80


def run_monitor(costs, **changes):
    settings = dict(limit=LIMIT, tail=0.05, confidence=0.95, cost_bound=BOUND)
    monitor = Monitor(**{**settings, **changes})
    for cost in costs:
        monitor.update(cost)
    return monitor


def test_a_good_policy_is_within_the_limit_and_a_bad_one_breaks_it():
    random = np.random.default_rng(4)
    monitor = run_monitor([])
    assert monitor.status == "undecided" and monitor.cvar_bounds == (0, BOUND)
    assert run_monitor(np.full(1700, 4.0)).status == "within"
    bad = run_monitor(two_values(2.0, 20.0, 0.15)(random.random(60)))
    assert bad.status == "broken" and bad.alarm
    assert bad.violation_bounds[0] > 0 and bad.violations > 2


def test_the_bounds_never_become_wider():
    monitor = run_monitor([])
    bounds = []
    for cost in 24 * np.random.default_rng(5).beta(2, 5, 300):
        monitor.update(cost)
        bounds.append([*monitor.cvar_bounds, *monitor.violation_bounds])
    steps = np.diff(bounds, axis=0)
    assert (steps[:, [0, 2]] >= 0).all() and (steps[:, [1, 3]] <= 0).all()
    # The true CVaR is 15.76, and the limit is exceeded with probability 0.68.
    assert bounds[-1][0] > 11 and 15.7 < bounds[-1][1] < 21
    assert 0.5 < bounds[-1][2] < 0.68 < bounds[-1][3] < 0.8


@pytest.mark.parametrize("scale", [8.0, 0.1])
def test_the_unit_of_the_cost_does_not_matter(scale):
    costs = 24 * np.random.default_rng(6).beta(2, 5, 200)
    one = run_monitor(costs)
    other = run_monitor(scale * costs, limit=scale * LIMIT, cost_bound=scale * BOUND)
    assert other.cvar_bounds == pytest.approx([scale * b for b in one.cvar_bounds])
    assert other.violation_bounds == one.violation_bounds
    assert (other.status, other.alarm) == (one.status, one.alarm)


def test_a_saved_monitor_continues_exactly(tmp_path):
    costs = 24 * np.random.default_rng(8).beta(2, 5, 260)
    whole, path = run_monitor(costs), tmp_path / "monitor.json"
    run_monitor(costs[:203]).save(path)  # between two placements of bets
    loaded = Monitor.load(path)
    loaded.save(path)  # replaces the earlier save
    loaded = Monitor.load(path)
    for cost in costs[203:]:
        loaded.update(cost)
    loaded.save(path)
    whole.save(tmp_path / "whole.json")
    assert path.read_text() == (tmp_path / "whole.json").read_text()
    assert loaded.sentence() == whole.sentence()
    assert not [*tmp_path.glob("*.part")]


def test_the_memory_of_a_monitor_does_not_grow(tmp_path):
    costs = 24 * np.random.default_rng(8).beta(2, 5, 300)
    sizes = []
    for n in (50, 300):
        run_monitor(costs[:n]).save(tmp_path / "monitor.json")
        state = json.loads((tmp_path / "monitor.json").read_text())
        sizes.append(sum(np.size(value) for value in state.values()))
    assert sizes[0] == sizes[1] < 10_000


def test_saving_replaces_no_other_file(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="other files are not replaced"):
        run_monitor([]).save(path)
    assert path.read_text() == "{}"


def test_a_file_that_is_no_saved_monitor_is_refused(tmp_path):
    path = tmp_path / "file.json"
    for text in ("no JSON", "[1, 2]", '{"format": "another"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"is not a file of Monitor\.save"):
            Monitor.load(path)
    path.unlink()
    run_monitor([1.0, 2.0]).save(path)
    state = json.loads(path.read_text())
    for key, value in (("counts", [1]), ("episodes", 3), ("settings", {"limit": 1})):
        path.write_text(json.dumps({**state, key: value}))
        with pytest.raises(ValueError, match="changed or damaged"):
            Monitor.load(path)


def with_checksum(state):
    """Return a changed state whose checksum is right, as a forger would make it."""
    return {**state, "checksum": module._checksum(state)}


def shift_count(counts):
    return [counts[0] - 5, counts[1] + 5, *counts[2:]]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("upper_wealth", lambda x: [math.inf] * len(x)),
        ("upper_wealth", lambda x: [math.nan] * len(x)),
        ("alarm_sums", lambda x: (np.array(x) * math.nan).tolist()),
        ("lower_wealth", lambda x: x[:-1]),
        ("counts", shift_count),
        ("counts", lambda x: [x[0] + 0.5, *x[1:]]),
        ("counts_at_bets", lambda x: [10**6, *x[1:]]),
        ("violation_bounds", lambda x: [math.nan, 1]),
        ("violation_bounds", lambda x: [-0.1, 1.1]),
        ("violations", lambda x: -1),
        ("violations", lambda x: 10**6),
        ("violations", lambda x: "1"),
        ("episodes", float),
        ("alarm", lambda x: "false"),
        ("settings", lambda x: {**x, "cost_bound": math.inf}),
        ("settings", lambda x: {**x, "other": 1}),
        ("settings", lambda x: {**x, "confidence": 0.5}),
        ("upper_wealth", lambda x: [1e9] * len(x)),
        ("upper_wealth", lambda x: [100.0] * len(x)),
        ("lower_wealth", lambda x: (np.array(x) + 40).tolist()),
        ("alarm_sums", lambda x: (np.array(x) - 1e9).tolist()),
        ("alarm_sums", lambda x: (np.array(x) + 1e9).tolist()),
        ("alarm", lambda x: True),
        ("violations", lambda x: 0),
        ("violations", lambda x: 2),
        ("violation_bounds", lambda x: [0.9, 0.1]),
        ("violation_bounds", lambda x: [0.0, 0.0]),
        ("violation_bounds", lambda x: [1.0, 1.0]),
    ],
)
@pytest.mark.parametrize("forged", [False, True])
def test_a_saved_monitor_with_other_numbers_is_refused(tmp_path, key, change, forged):
    path = tmp_path / "monitor.json"
    run_monitor([1.0, 2.0, 20.0]).save(path)
    state = json.loads(path.read_text())
    state[key] = change(state[key])
    path.write_text(json.dumps(with_checksum(state) if forged else state))
    with pytest.raises(ValueError, match=r"changed or damaged|not a file of"):
        Monitor.load(path)


def test_a_monitor_of_a_policy_that_became_worse_can_be_loaded(tmp_path):
    """Its bounds contradict each other, because they hold for a policy that stays the same."""
    path = tmp_path / "monitor.json"
    monitor = run_monitor([0.0] * 1500 + [24.0] * 200)
    low, high = monitor.cvar_bounds
    assert low > high and monitor.violation_bounds[0] > monitor.violation_bounds[1]
    monitor.save(path)
    assert Monitor.load(path).sentence() == monitor.sentence()


@pytest.mark.parametrize("tail", [0.05, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_every_monitor_that_was_saved_can_be_loaded(tmp_path, tail, seed):
    path, random = tmp_path / "monitor.json", np.random.default_rng(seed)
    costs = [0.0, 5.0, math.nextafter(5.0, 6.0), 24.0, 24 * random.random()]
    monitor = Monitor(limit=5.0, tail=tail, confidence=0.9, cost_bound=24, run_length=9)
    for i in range(60):
        monitor.update(costs[random.integers(5)] if i < 40 else costs[seed])
        monitor.save(path)
        assert Monitor.load(path).sentence() == monitor.sentence()


def test_saving_deletes_no_other_file(tmp_path):
    mine = tmp_path / "monitor.json.part"
    mine.write_text("mine")
    run_monitor([1.0]).save(tmp_path / "monitor.json")
    assert mine.read_text() == "mine" and len([*tmp_path.iterdir()]) == 2


def test_a_path_that_names_no_file_is_refused_with_its_name(tmp_path):
    monitor = run_monitor([1.0])
    for use in (monitor.save, Monitor.load):
        with pytest.raises(ValueError, match=r"name a file, .* got ''"):
            use("")
    for use in (monitor.save, Monitor.load):
        with pytest.raises(ValueError, match=f"{tmp_path} is not a file of Monitor"):
            use(tmp_path)
    missing = tmp_path / "no" / "m.json"
    with pytest.raises(FileNotFoundError, match=f"directory: '{missing}'"):
        monitor.save(missing)


def test_a_changed_digit_of_a_saved_monitor_is_noticed(tmp_path):
    path = tmp_path / "monitor.json"
    run_monitor([1.0, 2.0, 20.0]).save(path)
    state = json.loads(path.read_text())
    state["upper_wealth"][50] += 1.0
    path.write_text(json.dumps(state))
    with pytest.raises(ValueError, match="changed or damaged"):
        Monitor.load(path)


def test_a_saved_monitor_with_the_same_key_twice_is_refused(tmp_path):
    path = tmp_path / "monitor.json"
    run_monitor([1.0, 2.0, 20.0]).save(path)
    text = path.read_text()
    assert text.count('"violations": ') == 1
    path.write_text(text.replace('"violations": ', '"violations": 0, "violations": '))
    with pytest.raises(ValueError, match=r"not a file of Monitor\.save"):
        Monitor.load(path)


def test_a_monitor_reads_only_small_regular_files(tmp_path):
    (tmp_path / "deep").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "deep", tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match=r"not a file of Monitor\.save"):
            Monitor.load(path)
    with pytest.raises(ValueError, match="other files are not replaced"):
        run_monitor([]).save(tmp_path / "pipe")


def test_a_monitor_is_not_written_through_a_link(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "monitor.json.part").symlink_to(tmp_path / "victim")
    run_monitor([1.0]).save(tmp_path / "monitor.json")
    assert (tmp_path / "victim").read_text() == "mine"
    assert Monitor.load(tmp_path / "monitor.json").episodes == 1


@pytest.mark.parametrize(
    "cost", [math.nan, math.inf, -1.0, 24.1, None, "4", True, np.zeros(2), 10**400]
)
def test_an_invalid_cost_is_refused_and_changes_nothing(cost, tmp_path):
    monitor = run_monitor([4.0, 3.0])
    with pytest.raises(ValueError, match=r"episode_cost must be a number in \[0, cost"):
        monitor.update(cost)
    assert monitor.episodes == 2
    monitor.update(np.float32(4))
    monitor.update(np.array(24 * (1 + 1e-7)))  # a rounding error
    assert monitor.episodes == 4 and monitor.violations == 1


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("limit", 24.0, "limit must be above 0 and below 24, got 24.0."),
        ("limit", 0.0, "limit must be above 0"),
        ("limit", math.nan, "limit must be above 0"),
        ("tail", 0.0, "tail must be above 0 and at most 1"),
        ("tail", 5.0, "tail is the fraction of worst episodes"),
        ("confidence", 95.0, "confidence must be above 0 and below 1"),
        ("cost_bound", -1.0, "cost_bound must be above 0"),
        ("cost_bound", math.inf, "cost_bound must be above 0"),
        ("run_length", 1.0, "run_length must be above 1"),
        ("limit", 1e-300, "limit must be at least 1e-09 of cost_bound"),
        ("cost_bound", 1e300, "limit must be at least 1e-09 of cost_bound"),
        ("cost_bound", 10**400, "cost_bound must be above 0"),
        ("tail", 1e-300, "tail must be at least 1e-09"),
        ("confidence", True, "confidence must be above 0"),
    ],
)
def test_an_invalid_setting_is_refused(setting, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run_monitor([], **{setting: value})


def test_an_alarm_stays_until_it_is_cleared():
    monitor = run_monitor([20.0] * 20)
    assert monitor.alarm and "ALARM" in monitor.sentence()
    monitor.update(1.0)
    assert monitor.alarm
    monitor.clear_alarm()
    monitor.update(1.0)
    assert not monitor.alarm and "ALARM" not in monitor.sentence()


def test_the_sentence_rounds_the_bounds_outwards():
    monitor = run_monitor(np.full(300, 4.0))
    sentence = monitor.sentence()
    assert sentence.startswith("undecided after 300 episodes: with 95 % confidence the")
    numbers = re.findall(r"between ([\d.e-]+) and ([\d.e-]+)", sentence)
    for texts, bounds in zip(
        numbers, [monitor.cvar_bounds, monitor.violation_bounds], strict=True
    ):
        assert float(texts[0]) <= bounds[0] and bounds[1] <= float(texts[1])
    assert "the mean of episode cost" in run_monitor([1.0], tail=1).sentence()
    assert "status='undecided', episodes=1" in repr(run_monitor([1.0]))


def test_a_monitor_runs_without_jax():
    code = "import sys, orac; orac.Monitor(5, 0.05, 0.95, 24).update(4); "
    code += "print('jax' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_loop_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/monitoring.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    assert len(code.splitlines()) <= 22
    assert "range(2000)" in code
    code = code.replace("range(2000)", "range(2)")
    layer = {"layer0/weight": np.ones((2, 4)), "layer0/bias": np.zeros(4)}
    box = {"action_low": -np.ones(2), "action_high": np.ones(2)}
    log_std_range = np.array([-5.0, 2.0])
    np.savez("policy.npz", num_layers=1, log_std_range=log_std_range, **layer, **box)
    exec(code, {})
    assert "undecided after 2 episodes" in capsys.readouterr().out
    exec(code, {})  # continues from the saved monitor
    assert "undecided after 4 episodes" in capsys.readouterr().out


def test_a_confidence_below_1_is_never_shown_as_100_per_cent():
    monitor = Monitor(limit=5, tail=0.05, confidence=0.9999999, cost_bound=24)
    assert "with 99.99999 % confidence" in monitor.sentence()
