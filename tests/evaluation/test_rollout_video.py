"""Films of environments that can be filmed, and a sentence about those that cannot."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from orac.config.schema import EnvConfig
from orac.evaluation import video


class Plain(gymnasium.Env):
    """Two steps; takes no render_mode."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Blind(Plain):
    """Takes the word and draws nothing."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


class Empty(Blind):
    def render(self):
        return None


class Seen(Blind):
    def render(self):
        return np.zeros((4, 6, 3), np.uint8)


@pytest.fixture
def film():
    """The frames of two steps, or of `length`, of an environment of this class."""

    def play(kind, length=None):
        name = f"{kind.__name__}-v0"
        steps = 2 if length is None else None
        gymnasium.register(name, entry_point=kind, max_episode_steps=steps)
        made.append(name)
        return video.play(
            SimpleNamespace(
                config=SimpleNamespace(env=EnvConfig(name, episode_length=length)),
                spec=SimpleNamespace(episode_length=9),
                predict=lambda flat: (np.zeros(1, np.float32), None),
            ),
            seed=0,
        )

    made: list[str] = []
    yield play
    for name in made:
        del gymnasium.registry[name]


def test_a_film_has_a_frame_before_and_after_each_step(film):
    assert [frame.shape for frame in film(Seen)] == [(4, 6, 3)] * 3


def test_a_film_ends_where_training_cut_the_episode(film):
    assert len(film(Seen, length=4)) == 5


@pytest.mark.parametrize("kind", [Plain, Blind, Empty])
def test_what_cannot_be_filmed_says_what_it_lacks(film, kind):
    with pytest.raises(ValueError) as caught:
        film(kind)
    assert str(caught.value) == (
        f"{kind.__name__}-v0 cannot be filmed: let it take render_mode='rgb_array', name "
        "that in metadata['render_modes'], and return an image of (height, width, 3) from "
        "render()."
    )


def test_an_environment_that_has_no_id_cannot_be_filmed_by_one():
    agent = SimpleNamespace(config=SimpleNamespace(env=EnvConfig("Nowhere")))
    with pytest.raises(ValueError, match=r"^Nowhere cannot be filmed: Environment"):
        video.play(agent, seed=0)
