"""Tests that the wheel has its data, and runs in an empty virtual environment."""

import zipfile

import pytest

from conftest import run

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


@pytest.mark.slow
def test_a_wheel_has_its_data_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "orac/py.typed" in names and any(n.endswith("citylearn.npz") for n in names)
    assert not any(name.startswith("tests/") for name in names)


@pytest.mark.slow
def test_a_wheel_runs_in_an_empty_virtual_environment(bare_venv, tmp_path):
    assert float(run(bare_venv / "python", "-c", CODE)) >= 0
    orac = bare_venv / "orac"
    assert "orac-iqn" in run(orac, "agents")
    assert 'pip install "orac-rl[plots]"' in run(orac, "doctor")
    small = ["--set=agent.hidden_sizes=[8, 8]", "--set=training.buffer_size=1000"]
    printed = run(
        orac,
        "train",
        "--total-steps=400",
        f"--out={tmp_path / 'runs'}",
        "--quiet",
        "--set=training.learning_starts=300",
        "--set=evaluation.episodes=2",
        *small,
    )
    assert "Done:" in printed
