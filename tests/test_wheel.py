"""The wheel, in an empty virtual environment: it imports, runs, and has its data."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CODE = """
import gymnasium, orac, orac.envs
import jax
for env_id in ("orac/GuardedMaze-v0", "orac/CityLearn-v0"):
    env = orac.envs.make(env_id)
    state, observation = env.reset(jax.random.key(0))
    assert observation.shape == (env.spec.observation_size,)
env = gymnasium.make("orac/GuardedMaze-v0")
env.reset(seed=0)
print(env.step(env.action_space.sample())[4]["cost"])
"""


def run(*words: str) -> str:
    told = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.slow
def test_a_wheel_runs_in_an_empty_virtual_environment(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT))
    wheel = next(tmp_path.glob("orac_rl-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "orac/py.typed" in names and any(n.endswith("citylearn.npz") for n in names)
    assert not any(name.startswith("tests/") for name in names)
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", str(venv))
    run(str(venv / "bin" / "pip"), "install", "--quiet", str(wheel))
    assert float(run(str(venv / "bin" / "python"), "-c", CODE)) >= 0
    orac = str(venv / "bin" / "orac")
    assert "orac-iqn" in run(orac, "agents")
    assert 'pip install "orac-rl[plots]"' in run(orac, "doctor")
    small = ["--set=agent.hidden_sizes=[8, 8]", "--set=training.buffer_size=1000"]
    done = run(
        orac,
        "train",
        "--total-steps=400",
        f"--out={tmp_path / 'runs'}",
        "--quiet",
        "--set=training.learning_starts=300",
        "--set=evaluation.episodes=2",
        *small,
    )
    assert "Done:" in done
