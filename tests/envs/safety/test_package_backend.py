"""Tests of the tasks that the package's own code steps."""

import gymnasium
import numpy as np
import pytest

from orac.envs import safety
from orac.envs.safety.env import SafetyEnv
from orac.envs.safety.tasks import package_ids

pytestmark = pytest.mark.slow
reference = pytest.importorskip("helpers.safety_reference", exc_type=ImportError)
safety.register()


@pytest.fixture(autouse=True)
def _working_directory(monkeypatch, tmp_path):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore:.*is out of date.*:DeprecationWarning")
@pytest.mark.parametrize("id", [id for id in package_ids() if "Vision" not in id])
def test_every_task_of_the_package_can_be_made_and_stepped(id):
    env = gymnasium.make(id)
    env.reset(seed=0)
    env.action_space.seed(0)
    observation, reward, _, _, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert np.isfinite(reward)
    assert info["cost"] in (0.0, 1.0)


@pytest.mark.parametrize("name", ["SafetyPointPush2-v0", "SafetyDoggoCircle1-v0"])
def test_trajectories_equal_the_untouched_packages_bit_for_bit(name):
    theirs, ours = reference.untouched(name), SafetyEnv(name)
    for seed in (2, 3):
        observation, _ = theirs.reset(seed=seed)
        np.testing.assert_array_equal(ours.reset(seed=seed)[0], observation)
        random = np.random.default_rng(0)
        for _ in range(20):
            action = random.uniform(-1, 1, theirs.action_space.shape)
            result, step = theirs.step(action), ours.step(action)
            np.testing.assert_array_equal(step[0], result[0])
            assert step[1:3] == (result[1], result[3])
            assert step[4]["cost"] == result[2]
