"""Videos of environments that render, and errors for those that do not."""

from types import SimpleNamespace

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest
from gymnasium.spaces import Box

from orac.config.schema import EnvConfig
from orac.evaluation.rollout import check_video_path, record_video


class NoRenderMode(gymnasium.Env):
    """An environment that never ends and takes no render_mode."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, False, {}


class NoRenderMethod(NoRenderMode):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


class RendersNothing(NoRenderMethod):
    def render(self):
        return None


class Renders(NoRenderMethod):
    def render(self):
        return np.full((4, 6, 3), 20 * self.steps, np.uint8)


@pytest.fixture
def film(tmp_path):
    """Film an environment of a class, which ends after two steps or is cut at `length`."""

    def record(kind, length=None):
        name = f"{kind.__name__}-v0"
        steps = 2 if length is None else None
        gymnasium.register(name, entry_point=kind, max_episode_steps=steps)
        made.append(name)
        return imageio.imread(record_video(agent_in(name, length), tmp_path / "a.gif"))

    made: list[str] = []
    yield record
    for name in made:
        del gymnasium.registry[name]


def agent_in(env_id, length=None):
    return SimpleNamespace(
        config=SimpleNamespace(env=EnvConfig(env_id, episode_length=length)),
        spec=SimpleNamespace(episode_length=9),
        predict=lambda flat: (np.zeros((len(flat), 1), np.float32), None),
    )


def test_video_has_a_frame_before_and_after_each_step(film):
    frames = film(Renders)
    assert frames.shape == (3, 4, 6, 3)
    assert frames[:, 0, 0, 0].tolist() == [0, 20, 40]


def test_video_ends_where_training_truncates_the_episode(film):
    assert len(film(Renders, length=4)) == 5


@pytest.mark.parametrize("kind", [NoRenderMode, NoRenderMethod, RendersNothing])
def test_environment_without_frames_raises_an_error_that_says_what_to_add(film, kind):
    with pytest.raises(ValueError) as caught:
        film(kind)
    assert str(caught.value) == (
        f"{kind.__name__}-v0 cannot be filmed: let it take render_mode='rgb_array', name "
        "that in metadata['render_modes'], and return an image of (height, width, 3) from "
        "render()."
    )


def test_unregistered_environment_cannot_be_filmed(tmp_path):
    with pytest.raises(ValueError, match=r"^Nowhere cannot be filmed: Environment"):
        record_video(agent_in("Nowhere"), tmp_path / "a.gif")


def test_video_path_must_end_in_a_known_format(tmp_path):
    with pytest.raises(ValueError, match=r"got 'a\.avi'"):
        check_video_path(tmp_path / "a.avi")
