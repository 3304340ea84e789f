"""Tests that a run that is killed at any moment and resumed ends as if it had never stopped."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import orac
from helpers.command_examples import ENV, train_arguments
from orac.api import Agent
from orac.cli.main import main
from orac.config import serialization
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import run_path
from orac.training.state import empty_replay

SMALL = train_arguments(6400, 1600)
HOSTED = [
    *train_arguments(3200, 1600, num_envs=2),
    "--set=agent.num_cost_critics=2",
    "--set=training.log_every=100",
    "--set=training.checkpoint_every=200",
    "--set=evaluation.episodes=2",
]
EARLIER = Path(__file__).parent.parent / "golden" / "earlier_run"
"""A run that was stopped at step 320 of 400, before multipliers could follow episodes."""
COMPARED = ("metrics.csv", "episodes.csv", "evaluations.csv", "config.yaml")


def train(out: Path, algo: str) -> Path:
    assert (
        main(["train", f"--algo={algo}", f"--env-id={ENV}", f"--out={out}", *SMALL])
        == 0
    )
    return run_path(out, ENV, algo, 0, "default")


def last_arrays(run: Path) -> dict[str, bytes]:
    """The newest state: parameters, moments, counters, environments."""
    newest = sorted(run.glob("checkpoints/step-*.json"))[-1]
    state = next(iter(run.glob(f"checkpoints/{newest.stem}-*.arrays")))
    return {"name": state.name.encode(), "state": state.read_bytes()}


def assert_same_run(one: Path, other: Path) -> None:
    for name in COMPARED:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert last_arrays(one) == last_arrays(other)
    for ours, theirs in zip(replay_of(one), replay_of(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def replay_of(run: Path) -> list[np.ndarray]:
    """The newest checkpoint's ring; kills cut it into other segments, not other rows."""
    config = serialization.load(run / "config.yaml")
    agent = Agent(config.env.id, config)
    problem = agent.runner.learner.problem
    loaded = Checkpoints(run / "checkpoints").load_latest(
        agent.runner.state._replace(replay=()),
        jax.eval_shape(lambda: empty_replay(problem, config)),
    )
    agent.close()
    assert loaded is not None and int(loaded.replay.inserted) > 0
    return [np.asarray(leaf) for leaf in jax.tree.leaves(loaded.replay)]


def command(*words: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from orac.cli.main import main; raise SystemExit(main())",
        *words,
    ]


def start(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("algo", "kills"), [("orac", 20), ("wcsac-lin", 4), ("sac-lag", 4)]
)
def test_a_run_killed_again_and_again_ends_with_the_same_bits(tmp_path, algo, kills):
    whole = train(tmp_path / "whole", algo)
    broken = tmp_path / "broken"
    words = ["train", f"--algo={algo}", f"--env-id={ENV}", f"--out={broken}", *SMALL]
    run = run_path(broken, ENV, algo, 0, "default")
    assert kill_and_go_on(words, run, kills) >= min(kills, 3), "it ended too early"
    assert_same_run(whole, run)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_run_goes_on_exactly_in_a_simulator_on_the_host(tmp_path):
    """MuJoCo's state, layouts and generators are part of a checkpoint."""
    env_id = "orac/SafetyPointGoal1-v0"
    words = ["train", "--algo=wcsac", f"--env-id={env_id}", *HOSTED]
    assert main([*words, f"--out={tmp_path / 'whole'}"]) == 0
    run = run_path(tmp_path / "broken", env_id, "wcsac", 0, "default")
    killed = kill_and_go_on([*words, f"--out={tmp_path / 'broken'}"], run, kills=4)
    assert killed >= 3, "it ended too early"
    assert_same_run(run_path(tmp_path / "whole", env_id, "wcsac", 0, "default"), run)
    episodes = (run / "episodes.csv").read_text().splitlines()
    assert len(episodes) == 1 + 8, "a header, and 3,200 steps are eight episodes"


def kill_and_go_on(words: list[str], run: Path, kills: int) -> int:
    """Start a run, kill and resume it so many times, let it end; how often it was."""
    moments = random.Random(7)
    process = start(*words)
    killed = 0
    while killed < kills:
        # From before the first checkpoint to well after several more.
        wait_for_progress(run, process, moments.uniform(0.0, 2.5))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
        if (run / "config.yaml").exists():
            process = start("resume", str(run), "--quiet")
        else:
            process = start(*words)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return killed


def wait_for_progress(run: Path, process: subprocess.Popen, seconds: float) -> None:
    """Until a process has written something new, and then a moment longer."""
    log = run / "metrics.csv"
    before = log.stat().st_mtime_ns if log.exists() else 0
    # A busy machine takes minutes to compile.
    deadline = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and log.stat().st_mtime_ns != before:
            break
        time.sleep(0.02)
    time.sleep(seconds * 0.2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, trained once for the tests that copy it."""
    return train(tmp_path_factory.mktemp("finished"), "wcsac-iqn")


def test_a_finished_run_resumes_to_itself(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    before = {name: (run / name).read_bytes() for name in COMPARED}
    assert main(["resume", str(run), "--quiet"]) == 0
    assert {name: (run / name).read_bytes() for name in COMPARED} == before


def test_a_run_without_a_checkpoint_starts_again_and_says_so(
    finished, tmp_path, capsys
):
    run = finished
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.yaml", "meta.json"):
        (bare / name).write_bytes((run / name).read_bytes())
    assert main(["resume", str(bare), "--quiet"]) == 0
    assert "no checkpoint yet: the run starts again" in capsys.readouterr().out
    assert_same_run(run, bare)


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    finished, tmp_path, capsys
):
    run = shutil.copytree(finished, tmp_path / "run")
    kept = {name: (run / name).read_bytes() for name in COMPARED}
    newest = sorted(run.glob("checkpoints/step-*.arrays"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert newest.name in capsys.readouterr().out
    assert {name: (run / name).read_bytes() for name in COMPARED} == kept


def test_two_processes_cannot_share_a_run(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    from orac.runs.directory import RunDirectory

    with RunDirectory.open(run):
        assert main(["resume", str(run), "--quiet"]) == 1
    assert str(run) in capsys.readouterr().err


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        command("train", f"--out={out}", f"--env-id={ENV}", "--algo=wcsac-iqn", *SMALL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    run = run_path(out, ENV, "wcsac-iqn", 0, "default")
    wait_for_progress(run, process, 0.0)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "everything is saved" in told and f"orac resume {run}" in told
    assert list(run.glob("checkpoints/step-*.json"))
    assert main(["resume", str(run), "--quiet"]) == 0
    metrics = np.genfromtxt(run / "metrics.csv", delimiter=",", names=True)
    assert metrics["env_steps"][-1] == 6400


def test_a_run_of_the_earlier_format_is_loaded():
    assert "follows" not in (EARLIER / "config.yaml").read_text()
    agent = orac.load(EARLIER)
    assert agent.num_timesteps == 320 and agent.best is None
    assert agent.config.agent.multiplier.follows == "critics"
    size = agent.spec.observation_size
    assert np.isfinite(agent.predict(np.zeros(size))[0]).all()


@pytest.mark.slow
def test_a_run_of_the_earlier_format_is_resumed(tmp_path):
    run = shutil.copytree(EARLIER, tmp_path / "run")
    resumed = orac.resume(run, progress_bar=False, trackers=(), log=str)
    assert resumed.num_timesteps == 400
    assert int(resumed.runner.state.agent.gradient_steps) == 31
    before = np.genfromtxt(EARLIER / "metrics.csv", delimiter=",", names=True)
    after = np.genfromtxt(run / "metrics.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(before["env_steps"], after["env_steps"])
    for name in ("criticreward_value", "actorentropy", "constraintriskcost"):
        np.testing.assert_allclose(before[name], after[name], rtol=0.02)
