import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).parents[1] / "helpers/crash_driver.py"


def test_whenever_a_writer_is_killed_a_whole_checkpoint_remains(tmp_path):
    """30 kills at random moments, and one before every single call that writes."""
    driven = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path), "30"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert driven.returncode == 0, driven.stderr
    report = json.loads(driven.stdout.splitlines()[-1])
    # The kills must have come at moments that matter.
    assert report["reached"] > 0
    assert report["died_mid_save"] > 0
    assert report["calls"] > 30
