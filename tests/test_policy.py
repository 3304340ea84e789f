"""Tests of exported policies with observations in the form in which environments return them."""

import json
import re

import numpy as np
import pytest
from gymnasium import spaces

from orac.envs.gym_adapter.metadata import observation_structure
from orac.policy import Policy, flat_size, flatten, observation_rows

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACES = {
    "dict": spaces.Dict({"speed": BOX, "gear": spaces.Discrete(4)}),
    "tuple": spaces.Tuple([BOX, spaces.Discrete(4, start=-1)]),
    "tuple of numbers": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]),
    "tuple of one": spaces.Tuple([BOX]),
    "discrete": spaces.Discrete(5, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "grid": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "binary": spaces.MultiBinary(3),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "number": spaces.Box(-1.0, 1.0, (), np.float32),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "nested": spaces.Dict({"a": spaces.Dict({"b": spaces.Tuple([BOX, BOX])})}),
}


def sampled(space, count=8):
    space.seed(0)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("kind", SPACES)
def test_observations_are_flattened_as_gymnasium_does(kind):
    space = SPACES[kind]
    structure = json.loads(observation_structure(space))
    for one in sampled(space):
        wanted = spaces.flatten(space, one)
        np.testing.assert_array_equal(flatten(one, structure), wanted)
        for given in (one, wanted):
            rows = observation_rows(given, flat_size(structure), structure)
            np.testing.assert_array_equal(rows, wanted)
            assert rows.dtype == np.float32


def stacked(parts):
    """Return a batch of observations, as a vector environment does."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: stacked([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked([*column]) for column in zip(*parts, strict=True))
    return np.stack(parts)


@pytest.mark.parametrize("kind", SPACES)
def test_a_batch_is_flattened_row_by_row(kind):
    space = SPACES[kind]
    structure = json.loads(observation_structure(space))
    parts = sampled(space)
    wanted = np.stack([spaces.flatten(space, one) for one in parts])
    np.testing.assert_array_equal(flatten(stacked(parts), structure), wanted)


def test_several_numbers_of_a_discrete_space_are_taken_for_nothing_else():
    structure = json.loads(observation_structure(spaces.Discrete(3)))
    with pytest.raises(ValueError, match=r"must have shape \(3,\) or \(batch, 3\)"):
        observation_rows([0, 1], 3, structure)


@pytest.mark.parametrize("space", [BOX, spaces.Text(5), spaces.Dict(a=spaces.Text(5))])
def test_a_vector_or_a_text_has_no_structure(space):
    assert observation_structure(space) == ""


WRONG = [
    (
        "dict",
        {"speed": [0, 0, 0]},
        "observation must be a dict with the keys gear, speed",
    ),
    (
        "dict",
        {"speed": [0, 0], "gear": 1},
        "observation['speed'] must be an array of sh",
    ),
    (
        "dict",
        {"speed": [0, 0, 0], "gear": 4},
        "observation['gear'] must be whole numbers ",
    ),
    (
        "dict",
        {"speed": [[0] * 3] * 2, "gear": 1},
        "must all be single or all be batches",
    ),
    (
        "dict",
        {"speed": ["a"] * 3, "gear": 1},
        "observation['speed'] must be an array of s",
    ),
    ("tuple", ([0, 0, 0],), "observation must be a tuple of length 2, got a tuple"),
    ("discrete", 1, "observation must be whole numbers from 2 to 6, got 1."),
    ("discrete", 2.5, "observation must be whole numbers from 2 to 6, got 2.5."),
    (
        "matrix",
        np.zeros((3, 2)),
        "an array of shape (2, 3), got an array of shape (3, 2)",
    ),
]


@pytest.mark.parametrize(("kind", "observation", "says"), WRONG)
def test_an_observation_outside_its_space_is_refused(kind, observation, says):
    structure = json.loads(observation_structure(SPACES[kind]))
    with pytest.raises(ValueError, match=re.escape(says)):
        observation_rows(observation, flat_size(structure), structure)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("observation_mean", (1,)),
        ("observation_scale", (5, 2)),
        ("layer0/bias", (3, 4)),
        ("layer1/bias", ()),
    ],
)
def test_an_array_that_numpy_would_repeat_is_refused(name, shape):
    shapes = {
        "layer0/weight": (2, 4),
        "layer0/bias": (4,),
        "layer1/weight": (4, 2),
        "layer1/bias": (2,),
        "observation_mean": (2,),
        "observation_scale": (2,),
        "action_low": (1,),
        "action_high": (1,),
        "log_std_range": (2,),
    }
    arrays = {key: np.zeros(value, np.float32) for key, value in shapes.items()}
    arrays["num_layers"] = np.array(2)
    assert Policy(arrays)([0, 0]) == 0
    arrays[name] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=f"{name} of the policy does not have the sha"):
        Policy(arrays)


@pytest.mark.parametrize(
    "observation", [["1", "2"], np.array(["1", "2"], object), [b"1", b"2"], [1j, 2.0]]
)
def test_texts_and_complex_numbers_are_not_observations(observation):
    with pytest.raises(ValueError, match="must be an array of 2 real numbers"):
        observation_rows(observation, 2)
    structure = {"kind": "dict", "parts": {"a": {"kind": "box", "shape": [2]}}}
    with pytest.raises(ValueError, match="must be an array of shape"):
        flatten({"a": observation}, structure)
