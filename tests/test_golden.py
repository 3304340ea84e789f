"""Tests that golden runs, 2,000 steps of the maze per preset, have their recorded metrics.

`ORAC_REGENERATE_GOLDEN=1 pytest tests/test_golden.py` records the metrics again. If you do
this, explain in the changelog, under Results, why the numbers changed.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orac import envs
from orac.config import presets
from orac.training.device_loop import DeviceRunner

MAZE = "orac/GuardedMaze-v0"
GOLDEN = Path(__file__).parent / "golden"
QUICK = ("sac-lag",)
SLOW = ("sac", "wcsac-iqn", "wcsac-lin", "orac-iqn", "orac-lin", "wcsac", "orac")
FAST = ("wcsac", "orac")
"""Agents with fixed quantiles, whose golden runs use the fast preset."""
WINDOWS = {"200-300": 1e-3, "300-500": 0.25, "500-2000": 0.15}
"""Steps whose metrics are averaged, and how far another machine's average may be off.

Processors with other instruction sets round sums differently. In the first window this
changed averages by at most 2e-6, so a change of the code cannot hide there. Later, other
roundings lead to other episodes: averages of the second window differed by up to 12 %, and
after that only the CALM averages, which differed by up to 3 %, can be compared.
"""
CALM = ("actor/entropy", "actor/loss", "actor/std", "actor/temperature")


def run_preset(algo):
    """Means of every metric in each window, and the gradient steps that were taken."""
    config = presets.preset(algo, MAZE, "fast" if algo in FAST else "paper")
    training = replace(
        config.training,
        total_steps=2000,
        learning_starts=200,
        buffer_size=2000,
        num_envs=1,
        gradient_steps=1,
    )
    config = replace(config, training=training)
    runner = DeviceRunner(envs.make(MAZE, **dict(config.env.params)), config)
    report = runner.advance(2000, 2000)
    found = {}
    for window in WINDOWS:
        first, last = map(int, window.split("-"))
        found[window] = {
            name: float(np.mean(values[first:last], dtype=np.float64))
            for name, values in sorted(report.metrics.items())
            if name in CALM or last <= 500
        }
    return found, int(runner.state.agent.gradient_steps)


def rounded(found):
    """Round to five significant digits, which are stored and show up in a diff."""
    return {
        window: {name: float(f"{value:.5g}") for name, value in means.items()}
        for window, means in found.items()
    }


@pytest.mark.parametrize(
    "algo", [*QUICK, *(pytest.param(algo, marks=pytest.mark.slow) for algo in SLOW)]
)
def test_a_preset_trains_as_it_did(algo):
    found, gradient_steps = run_preset(algo)
    # One step per environment step, from the two hundredth on.
    assert gradient_steps == 1801
    path = GOLDEN / f"{algo}.json"
    if os.environ.get("ORAC_REGENERATE_GOLDEN") == "1":
        path.write_text(json.dumps(rounded(found), indent=1) + "\n")
    wanted = json.loads(path.read_text())
    for window, tolerance in WINDOWS.items():
        assert found[window].keys() == wanted[window].keys()
        for name, value in wanted[window].items():
            assert found[window][name] == pytest.approx(
                value, rel=tolerance, abs=1e-6
            ), f"{name} in steps {window}"
