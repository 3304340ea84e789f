"""Tests of rendering without a screen."""

import gymnasium
import numpy as np
import pytest

from orac.envs import safety
from orac.envs.safety.env import SafetyEnv, SafetyVectorEnv

pytestmark = pytest.mark.slow
reference = pytest.importorskip("helpers.safety_reference", exc_type=ImportError)
safety.register()

POINT = "SafetyPointGoal1-v0"
BUTTON = "SafetyPointButton1-v0"


@pytest.fixture(autouse=True)
def _headless(monkeypatch, tmp_path):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)


@pytest.mark.parametrize("camera", ["above", "track", "vision", "fixedfar"])
def test_every_camera_renders_an_image(camera):
    env = SafetyEnv(
        POINT, render_mode="rgb_array", camera=camera, width=160, height=120
    )
    env.reset(seed=0)
    image = env.render()
    assert (image.shape, image.dtype) == ((120, 160, 3), np.uint8)
    assert image.std() > 10
    env.reset(seed=1)
    assert not np.array_equal(env.render(), image)
    env.close()


def test_an_image_after_a_reset_equals_that_of_a_new_environment():
    """Hazards of a Fading task fade in the model itself, and a reset makes a new one."""

    def render_two_steps(env):
        env.reset(seed=3)
        first, observation = env.render(), env.step(np.zeros(2))[0]
        return first, env.render(), observation["vision"]

    fresh, used = (
        SafetyEnv("SafetyPointFadingHard2Vision-v0", render_mode="rgb_array")
        for _ in range(2)
    )
    used.reset(seed=8)
    used.render()
    for _ in range(40):
        used.step(np.zeros(2))
    images = zip(render_two_steps(fresh), render_two_steps(used), strict=True)
    for new, old in images:
        np.testing.assert_array_equal(new, old)
    fresh.close()
    used.close()


def test_a_red_ball_marks_a_step_with_a_cost():
    env = SafetyEnv(BUTTON, render_mode="rgb_array", timestep=0.006)
    observation, _ = env.reset(seed=0)
    act, info = reference.driver(BUTTON), {"cost": 0.0}
    while not info["cost"]:
        observation, _, _, _, info = env.step(act(observation))
    marked = env.render().astype(int)
    env._cost = 0.0
    unmarked = env.render().astype(int)
    env.close()
    difference = marked - unmarked
    changed = np.abs(difference).sum(axis=-1) > 30
    assert 20 < changed.sum() < 20_000
    assert difference[changed][:, 0].mean() > difference[changed][:, 2].mean()


def test_an_unknown_camera_raises_an_error_with_the_known_ones():
    env = SafetyEnv(POINT, render_mode="rgb_array", camera="abvoe")
    env.reset(seed=0)
    with pytest.raises(
        ValueError, match=r"above, .*track.* got 'abvoe'\. Did you mean 'above'"
    ):
        env.render()


def test_a_vision_task_observes_images():
    env = gymnasium.make("SafetyPointGoal1Vision-v0")
    observation, _ = env.reset(seed=0)
    assert observation["vision"].shape == (256, 256, 3)
    assert observation["vision"].std() > 10
    env.close()


def test_a_vector_environment_renders_and_observes_the_images_of_single_ones():
    settings = {"task": "SafetyPointGoal1Vision-v0", "render_mode": "rgb_array"}
    vector, env = SafetyVectorEnv(2, **settings), SafetyEnv(**settings)
    observations, _ = vector.reset(seed=[4, 5])
    images = vector.render()
    for index, seed in enumerate((4, 5)):
        observation, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(
            observations["vision"][index], observation["vision"]
        )
        np.testing.assert_array_equal(images[index], env.render())
    vector.close()
    env.close()
