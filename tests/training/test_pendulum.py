"""Tests that train with the settings of `results/pendulum`, a pendulum with a speed limit."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "results" / "pendulum" / "speeding.py"
SPEC = importlib.util.spec_from_file_location("speeding", SCRIPT)
speeding = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(speeding)


def risk_of(algo: str) -> tuple[float, float]:
    """Reward, and CVaR of the costs of 100 episodes, after training with seed 0."""
    result = speeding.train(algo, seed=0).evaluate(100, tails=(speeding.TAIL,))
    return result["reward/mean"], result[f"cost/cvar_{speeding.TAIL:g}"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_plain_sac_breaks_the_speed_limit_twofold():
    reward, risk = risk_of("sac")
    assert reward > -250, "it swings up and stays there"
    assert risk >= 2 * speeding.LIMIT


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("algo", ["wcsac", "orac"])
def test_a_risk_averse_agent_swings_up_below_the_speed_limit(algo):
    reward, risk = risk_of(algo)
    assert reward > -400, "it swings up; hanging still earns about -1,200"
    assert risk < speeding.LIMIT


def test_the_cost_counts_steps_that_are_too_fast():
    for speed, cost in ((0.0, 0.0), (5.9, 0.0), (-6.1, 1.0), (8.0, 1.0)):
        assert speeding.too_fast(None, None, [1.0, 0.0, speed], {}) == cost
