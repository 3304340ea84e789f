"""Numbers that mean nothing are refused before anything is loaded or started."""

import numpy as np
import pytest

from orac.envs.safety.adapter import SafetyEnv
from orac.envs.safety.settings import checked, episode_limit
from orac.envs.safety.vector import SafetyVectorEnv

POINT = "SafetyPointGoal1-v0"
STEPS = r"must be a whole number of steps from 1 on, got .* Leave it out"
SECONDS = r"timestep must be a positive number of seconds, got .* leave it out"
BAD = [
    ({"episode_length": 0}, f"episode_length {STEPS}"),
    ({"episode_length": -3}, f"episode_length {STEPS}"),
    ({"episode_length": True}, f"episode_length {STEPS}"),
    ({"time_limit": 0}, f"time_limit {STEPS}"),
    ({"timestep": 0}, SECONDS),
    ({"timestep": -1.0}, SECONDS),
    ({"timestep": float("nan")}, SECONDS),
    ({"timestep": float("inf")}, SECONDS),
    ({"width": 0}, r"width must be a whole number of pixels from 1 on, got 0\. Leave"),
]
BAD_SIDE_BY_SIDE = [
    (
        {"num_processes": -1},
        r"num_processes must be .* got -1\. It counts this process",
    ),
    ({"num_processes": 0}, r"num_processes must be .* got 0\. It counts this process"),
    ({"num_envs": 0}, "num_envs must be a whole number from 1 on, got 0"),
    ({"max_episode_steps": -1}, f"max_episode_steps {STEPS}"),
    (
        {"episode_length": 50, "max_episode_steps": 60, "time_limit": 400},
        "episode_length is 50, but max_episode_steps is 60.*leave one of them out",
    ),
]


@pytest.mark.parametrize(("settings", "told"), BAD)
def test_a_number_out_of_range_is_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        SafetyEnv(POINT, **settings)


@pytest.mark.parametrize(("settings", "told"), BAD + BAD_SIDE_BY_SIDE)
def test_environments_side_by_side_refuse_it_too(settings, told):
    with pytest.raises(ValueError, match=told):
        SafetyVectorEnv(**{"num_envs": 2, "task": POINT, **settings})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("fast", "yes", r"fast must be True, False or None, got 'yes'\. True insists"),
        ("fast", 1, "fast must be True, False or None, got 1"),
        ("episode_length", 2.5, f"episode_length {STEPS}"),
        ("timestep", "short", SECONDS),
        ("height", 1.5, r"height must be a whole number of pixels from 1 on, got 1\.5"),
    ],
)
def test_another_kind_of_value_is_refused(name, value, told):
    with pytest.raises(ValueError, match=told):
        checked(name, value)


def test_more_steps_than_an_id_has_are_asked_for_where_they_are_counted():
    with pytest.raises(
        ValueError, match=r"is 600, but .* after 400 .*max_episode_steps"
    ):
        SafetyEnv(POINT, episode_length=600, time_limit=400)


@pytest.mark.parametrize(
    ("asked", "registered_or_asked", "registered", "limit"),
    [
        (None, 400, 400, 400),
        (None, 600, 400, 600),
        (50, 400, 400, 50),
        (600, 400, 400, 600),
        (50, 50, 400, 50),
        (None, None, 400, 400),
        (None, 7, None, 7),
        (None, None, None, None),
    ],
)
def test_an_explicit_limit_is_taken(asked, registered_or_asked, registered, limit):
    assert episode_limit(asked, registered_or_asked, registered) == limit


def test_what_is_right_becomes_plain_python():
    assert type(checked("episode_length", np.int64(7))) is int
    assert type(checked("timestep", np.float32(0.5))) is float
    assert type(checked("fast", np.True_)) is bool
    assert checked("timestep", None) is None
