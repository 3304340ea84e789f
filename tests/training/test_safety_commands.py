"""The commands of a PointGoal1 run: train, a kill, resume, a report and a film."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from orac.cli.main import main
from orac.envs.safety import missing
from orac.runs.directory import run_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]

ENV = "orac/SafetyPointGoal1-v0"
STEPS = 1200
SMALL = [
    f"--total-steps={STEPS}",
    "--quiet",
    "--set=env.params.width=160",
    "--set=env.params.height=160",
    "--set=agent.hidden_sizes=[16, 16]",
    "--set=agent.num_quantiles=8",
    "--set=agent.num_policy_quantiles=8",
    "--set=agent.num_cost_critics=2",
    "--set=training.gradient_steps=0.25",
    "--set=training.learning_starts=200",
    "--set=training.buffer_size=2000",
    "--set=training.batch_size=32",
    "--set=training.log_every=100",
    "--set=training.checkpoint_every=200",
    f"--set=evaluation.every={STEPS}",
    "--set=evaluation.episodes=2",
]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "orac", *words]


def orac(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def kill_after_first_checkpoint(words: list[str], run: Path) -> None:
    process = subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if any(run.glob("checkpoints/step-*.json")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"it ended before its kill: {errors}"


def steps_of(run: Path) -> np.ndarray:
    return np.genfromtxt(run / "metrics.csv", delimiter=",", names=True)["env_steps"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("algo", ["orac-lin", "wcsac-lin", "sac-lag"])
def test_an_agent_trains_is_killed_goes_on_and_is_shown(algo, tmp_path):
    out, run = tmp_path / "runs", run_path(tmp_path / "runs", ENV, algo, 0, "default")
    words = ["train", f"--algo={algo}", f"--env-id={ENV}", f"--out={out}", *SMALL]
    kill_after_first_checkpoint(words, run)
    assert any(run.glob("checkpoints/step-*.json"))
    assert steps_of(run)[-1] < STEPS, "nothing was left to resume"

    orac("resume", run, "--quiet")
    np.testing.assert_array_equal(steps_of(run), np.arange(100, STEPS + 1, 100))
    episodes = (run / "episodes.csv").read_text().splitlines()
    assert len(episodes) == 1 + STEPS // 400
    evaluations = np.genfromtxt(run / "evaluations.csv", delimiter=",", names=True)
    assert evaluations["env_steps"].tolist() == [STEPS, STEPS]

    page = tmp_path / "report.html"
    orac("report", out, "--out", page)
    told = page.read_text()
    assert len(told) > 50_000 and algo in told and "SafetyPointGoal1" in told

    film = tmp_path / "film.mp4"
    orac("evaluate", run, "--episodes", 1, "--video", film)
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(film))
    assert frames == 401, "one before the first step, and one after each"
    assert film.stat().st_size > 20_000, "frames that are all alike take less"
