"""Tests of Ctrl-C and SIGTERM at many moments of the commands, from the first import to the end.

The program ends without a traceback, with exit code 130 or 143. A run that it had started can
be continued. `helpers/signal_driver.py` describes the moments.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import orac
from helpers.command_examples import ENV
from orac.cli.main import main

DRIVER = Path(__file__).parent / "helpers" / "signal_driver.py"
RUNNER = "call:orac.training.device_loop.DeviceRunner"
SETTINGS = {
    "agent.hidden_sizes": [8, 8],
    "training.total_steps": 400,
    "training.num_envs": 4,
    "training.learning_starts": 100,
    "training.gradient_steps": 0.25,
    "training.batch_size": 32,
    "training.buffer_size": 1000,
    "training.log_every": 40,
    "training.checkpoint_every": 80,
    "evaluation.every": 200,
    "evaluation.episodes": 2,
}
TRAIN = [
    *("train", "--quiet", "--algo=sac-lag", f"--env-id={ENV}", "--out=runs"),
    *(f"--set={name}={value}" for name, value in SETTINGS.items()),
]
GRID = {"algos": ["sac-lag"], "seeds": [0], "set": SETTINGS}
TUNE = ["tune", "--jobs=1", "--trials=2", "--out=study", *TRAIN[2:4], *TRAIN[5:]]

QUICK = [
    ("SIGINT", "import:orac.cli.options:1", ["--help"]),
    ("SIGTERM", "import:optax:1", TRAIN),
    ("SIGINT", "jax:backend_compile:3", TRAIN),
    ("SIGTERM", "os.rename:step-:1", TRAIN),
]
"""Signal, moment and command of the quick tests."""
ALL = [
    ("SIGTERM", "import:argparse:1", ["--help"]),
    ("SIGINT", "import:jax:1", TRAIN),
    ("SIGINT", "import:orac.training.loop:1", TRAIN),
    ("SIGTERM", "jax:jaxpr_trace:30", TRAIN),
    ("SIGINT", "open:meta.json:1", TRAIN),
    ("SIGTERM", "open:config.yaml:1", TRAIN),
    ("SIGINT", "open:metrics.csv:1", TRAIN),
    ("SIGTERM", f"{RUNNER}.advance:1", TRAIN),
    ("SIGINT", f"{RUNNER}.evaluate:1", TRAIN),
    ("SIGTERM", "call:orac.runs.progress.Progress.__exit__:1", TRAIN),
    ("SIGINT", "import:orac.api.loading:1", ["evaluate", "RUN"]),
    ("SIGTERM", f"{RUNNER}.evaluate:1", ["evaluate", "RUN", "--out=saved"]),
    ("SIGINT", "open:saved/:1", ["evaluate", "RUN", "--out=saved"]),
    ("SIGTERM", "import:scipy:1", ["certify", "RUN"]),
    ("SIGINT", f"{RUNNER}.evaluate:2", ["certify", "RUN"]),
    ("SIGTERM", "os.rename:certificate:1", ["certify", "RUN"]),
    ("SIGINT", "import:orac.experiments.sweep:1", ["sweep", "grid.json", "--out=runs"]),
    ("SIGTERM", "subprocess.Popen:python:1", ["sweep", "grid.json", "--out=runs"]),
    ("SIGINT", "import:optuna:1", TUNE),
    ("SIGTERM", "sqlite3.connect::1", TUNE),
    ("SIGINT", "subprocess.Popen:python:1", TUNE),
]
"""The same of the slow tests, in addition."""


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """The directory of a finished run."""
    agent = orac.SACLagrangian(ENV, settings=SETTINGS, cost_limit=1000)
    agent.learn(progress_bar=False, out=tmp_path_factory.mktemp("run"), trackers=())
    return agent.run_path


@pytest.mark.parametrize(
    ("name", "moment", "command"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL)],
    ids=lambda x: x[0] if isinstance(x, list) else x,
)
def test_a_signal_ends_the_program_and_keeps_the_run(
    name, moment, command, tmp_path, monkeypatch, request
):
    monkeypatch.chdir(tmp_path)
    Path("grid.json").write_text(json.dumps(GRID))
    if "RUN" in command:
        shutil.copytree(request.getfixturevalue("finished_run"), "RUN")
    done = subprocess.run(
        [sys.executable, str(DRIVER), name, moment, *command],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "signal at" in done.stdout, f"{moment} never came: {done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode == 128 + getattr(signal, name), done.stderr
    if "RUN" in command:
        assert orac.load("RUN").num_timesteps == 400
        # A file is complete or absent.
        for file in Path("RUN").glob("*.json"):
            json.loads(file.read_text())
    continue_run(command)


def continue_run(command):
    """Check that a run which was stopped can be resumed, or else be started again."""
    runs = [path.parent for path in Path().glob("runs/**/config.yaml")]
    for run in runs:
        assert main(["resume", str(run), "--quiet"]) == 0
    if command is TRAIN and not runs:
        assert main(TRAIN) == 0


OWN_ENVS = """
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv

class Costly(PendulumEnv):
    episode_length = 50
    def step(self, action):
        *others, info = super().step(action)
        return *others, info | {"cost": float(abs(self.state[1]) > 4)}

gymnasium.register("Costly-v0", entry_point=Costly)
"""


@pytest.mark.slow
def test_a_sweep_of_an_environment_of_the_users_goes_on_after_a_stop(tmp_path):
    (tmp_path / "own_envs.py").write_text(OWN_ENVS)
    settings = SETTINGS | {"training.total_steps": 2000, "evaluation.every": 0}
    grid = GRID | {"envs": ["own_envs:Costly-v0"], "set": settings}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    words = ["sweep", "grid.json", "--jobs=1", "--out=runs", "--import=own_envs"]
    command = [sys.executable, "-m", "orac", *words]
    options = {"cwd": tmp_path, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
    deadline = time.monotonic() + 300
    while not [*tmp_path.glob("runs/**/step-*.json")] and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 143, printed
    assert "1 of 1 runs are not finished" in printed and "Traceback" not in printed
    again = subprocess.run(command, stdout=subprocess.PIPE, **options)
    assert again.returncode == 0, again.stdout
    assert [*tmp_path.glob("runs/**/step-000000002000.json")]
