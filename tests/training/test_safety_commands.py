"""Tests of the commands on PointGoal1: train, kill, resume, report and video."""

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


def orac(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def kill_after_first_checkpoint(arguments: list[str], run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "orac", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # A busy machine takes minutes to compile.
    deadline = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < deadline:
        if any(run.glob("checkpoints/step-*.json")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, (
        f"it ended before it was killed: {errors}"
    )


def logged_steps(run: Path) -> np.ndarray:
    return np.genfromtxt(run / "metrics.csv", delimiter=",", names=True)["env_steps"]


@pytest.mark.parametrize("algo", ["orac-lin", "wcsac-lin", "sac-lag"])
def test_a_killed_run_resumes_and_can_be_reported_and_filmed(algo, tmp_path):
    out, run = tmp_path / "runs", run_path(tmp_path / "runs", ENV, algo, 0, "default")
    arguments = ["train", f"--algo={algo}", f"--env-id={ENV}", f"--out={out}", *SMALL]
    kill_after_first_checkpoint(arguments, run)
    assert any(run.glob("checkpoints/step-*.json"))
    assert logged_steps(run)[-1] < STEPS, "nothing was left to resume"

    orac("resume", run, "--quiet")
    np.testing.assert_array_equal(logged_steps(run), np.arange(100, STEPS + 1, 100))
    episodes = (run / "episodes.csv").read_text().splitlines()
    assert len(episodes) == 1 + STEPS // 400
    evaluations = np.genfromtxt(run / "evaluations.csv", delimiter=",", names=True)
    assert evaluations["env_steps"].tolist() == [STEPS, STEPS]

    page = tmp_path / "report.html"
    orac("report", out, "--out", page)
    text = page.read_text()
    assert len(text) > 50_000 and algo in text and "SafetyPointGoal1" in text

    video = tmp_path / "video.mp4"
    orac("evaluate", run, "--episodes", 1, "--video", video)
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == 401, "one frame before the first step, and one after each"
    assert video.stat().st_size > 20_000, "a video of equal frames is smaller"
