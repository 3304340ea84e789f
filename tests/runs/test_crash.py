"""Tests that checkpoints survive a kill at any moment."""

import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).parents[1] / "helpers/crash_driver.py"


def test_a_complete_checkpoint_remains_whenever_a_writer_is_killed(tmp_path):
    """Kill 30 times at random moments, and once before every call that writes."""
    driven = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path), "30"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert driven.returncode == 0, driven.stderr
    report = json.loads(driven.stdout.splitlines()[-1])
    # The kills must have hit the interesting moments.
    assert report["reached"] > 0
    assert report["died_mid_save"] > 0
    assert report["calls"] > 30
