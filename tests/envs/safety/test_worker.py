"""What travels between the processes of a vector environment, without any of them."""

import io
import json

import numpy as np

from orac.envs.safety.env_batch import SCALARS, Block
from orac.envs.safety.worker import (
    FAILURE,
    OPEN,
    _dumps,
    _plain_to_state,
    _read,
    _write,
    serve,
)


def test_frames_arrive_as_they_were_sent_until_the_stream_ends():
    stream = io.BytesIO()
    _write(stream, b"s", b"\x00\x01")
    _write(stream, b"g", b"")
    stream.seek(0)
    assert _read(stream) == (b"s", b"\x00\x01")
    assert _read(stream) == (b"g", b"")
    assert _read(stream) is None


def test_a_state_keeps_every_bit_as_json():
    random = np.random.RandomState(3)
    actions = random.uniform(-1, 1, (5, 2))
    state = [{"start": random.get_state(legacy=False), "actions": actions}]
    back = _plain_to_state(json.loads(_dumps(state)))
    np.testing.assert_array_equal(back[0]["actions"], actions)
    other = np.random.RandomState(0)
    other.set_state(back[0]["start"])
    assert other.random_sample() == random.random_sample()


def test_a_failure_is_answered_with_its_story():
    requests, answers = io.BytesIO(), io.BytesIO()
    settings = {"task": "SafetyPointGaol1-v0"}
    _write(requests, OPEN, _dumps({"num_envs": 1, "settings": settings}))
    requests.seek(0)
    serve(requests, answers)
    answers.seek(0)
    kind, story = _read(answers)
    assert kind == FAILURE
    assert "Did you mean 'SafetyPointGoal1-v0'?" in story.decode()


def test_a_block_is_two_observations_and_the_scalars():
    numbers = dict(zip(SCALARS, (0.5, 1.0, 0.0, 2.0, 0.0, 1.0), strict=True))
    rows = np.array([[1.0, 2.0, 3.0, 4.0, *numbers.values()]])
    block = Block(rows)
    np.testing.assert_array_equal(block.observation, [[1.0, 2.0]])
    np.testing.assert_array_equal(block.reached, [[3.0, 4.0]])
    assert {name: float(block.number(name)[0]) for name in SCALARS} == numbers
    assert block.flag("truncated").tolist() == [True]
    assert block.flag("terminated").tolist() == [False]
