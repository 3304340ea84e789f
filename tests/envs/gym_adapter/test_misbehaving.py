"""Tests of environments that misbehave during a run, as listed in the troubleshooting page.

Each raises one error that names the environment, or does no harm. `test_make.py` tests
environments that are refused before a run starts.
"""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from helpers.gym_probes import Counter, Odd
from orac.envs.gym_adapter.make import check_environment, make_host
from orac.envs.gym_adapter.metadata import make_flatten

BAD_STEP = 4


class Midway(Counter):
    """Behaves well until its step number `BAD_STEP`, counted over all episodes."""

    def __init__(self, fault="", length=3):
        super().__init__(length)
        self.fault, self.count = fault, 0
        self.buffer = np.zeros(2, np.float32)

    def step(self, action):
        self.count += 1
        values = super().step(action)
        if self.count < BAD_STEP or not self.fault:
            return values
        return FAULTS[self.fault][0](self, *values)


def exit_process(env, *values):
    os._exit(3)


def call_exit(env, *values):
    sys.exit(0)


def change_space(env, observation, *others):
    env.observation_space = gymnasium.spaces.Box(-1, 1, (7,))
    return np.zeros(7, np.float32), *others


def forget_last_cost(env, *values):
    ended = values[2] or values[3]
    return (*values[:4], {}) if ended else values


FAULTS = {
    "NaN observation": (
        lambda env, o, *others: (o * np.nan, *others),
        "observation of environment 0 is not finite at step 4",
    ),
    "infinite reward": (
        lambda env, o, r, *others: (o, np.inf, *others),
        "reward of environment 0 is not finite at step 4",
    ),
    "NaN cost": (
        lambda env, *values: (*values[:4], {"cost": np.nan}),
        "at step 4 environment 0 reported a cost of nan",
    ),
    "cost forgotten at the last step": (
        forget_last_cost,
        "environment 0 reported no cost: info has no key 'cost'",
    ),
    "other shape": (
        lambda env, o, *others: (np.zeros(3, np.float32), *others),
        "observation of shape (3,), but its observation_space has the shape (2,)",
    ),
    "other space": (change_space, "observation of shape (7,)"),
    "four values": (
        lambda env, o, r, te, tr, info: (o, r, te, info),
        "step returned 4 values",
    ),
    "no tuple": (lambda env, *values: None, "step returned an object of type NoneType"),
    "end as text": (
        lambda env, o, r, *others: (o, r, "False", *others[1:]),
        "returned 'False' as terminated",
    ),
    "info is None": (lambda env, *values: (*values[:4], None), "info is None"),
    "sys.exit": (call_exit, "called sys.exit in Midway.step, after 3 steps"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_middle_of_a_run_is_one_sentence_about_the_environment(fault):
    host = make_host(partial(Midway, fault), episode_length=3, cost_names=["cost"])
    host.reset(0)
    for _ in range(BAD_STEP - 1):
        host.step(np.zeros((1, 1)))
    with pytest.raises(ValueError) as error:
        for _ in range(3):
            host.step(np.zeros((1, 1)))
    message = str(error.value)
    assert FAULTS[fault][1] in message and "Midway" in message
    assert message.endswith(".") and "\n" not in message


def test_the_death_of_an_environments_process_is_one_sentence():
    host = make_host(
        partial(Dying, 1),
        2,
        episode_length=3,
        cost_names=["cost"],
        vectorization="async",
    )
    host.reset(0)
    with pytest.raises(
        ValueError, match=r"The process of an environment ended in Dying"
    ):
        for _ in range(3):
            host.step(np.zeros((2, 1)))
    host.close()


class Dying(Counter):
    """Ends its process after some steps, as one that is out of memory does."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def step(self, action):
        if not self.left:
            os._exit(3)
        self.left -= 1
        return super().step(action)


class Shared(Counter):
    """Returns the same array at every step, and writes into the action it receives."""

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observe(self):
        self.buffer[:] = self.episode, self.time
        return self.buffer

    def step(self, action):
        action += 5
        return super().step(action)


def test_one_buffer_for_all_steps_does_no_harm():
    host, good = (make_host(kind, episode_length=3) for kind in (Shared, Counter))
    assert np.array_equal(host.reset(0), good.reset(0))
    action = np.zeros((1, 1))
    steps = [(host.step(action), good.step(action)) for _ in range(5)]
    assert (action == 0).all()
    for shared, own in steps:
        assert np.array_equal(shared.observation, own.observation)
        assert np.array_equal(shared.next_observation, own.next_observation)


class Unseeded(Counter):
    """Ignores its seed and starts anywhere."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=0)
        return np.random.normal(size=2).astype(np.float32), {}


def test_a_reset_that_ignores_its_seed_gets_a_warning():
    with pytest.warns(UserWarning, match=r"starts differently after each reset"):
        check_environment(make_host(Unseeded, episode_length=3, cost_names=["cost"]))


HANG = """
import sys, time
sys.path.insert(0, {tests!r})
from helpers.gym_probes import Counter
from orac.training.run_loop import interruptible

def hang():
    print("hanging", flush=True)
    while True:
        time.sleep(0.01)

class Hanging(Counter):
    episodes = 0
    def step(self, action):
        if {call!r} == "step":
            hang()
        return super().step(action)
    def reset(self, **options):
        self.episodes += 1
        if {call!r} == "reset" and self.episodes > 1:
            hang()
        return super().reset(**options)

from orac.envs.gym_adapter.make import make_host
import numpy as np
host = make_host(Hanging, episode_length=3, cost_names=["cost"])
host.reset(0)
with interruptible():
    for _ in range(4):
        host.step(np.zeros((1, 1)))
"""


@pytest.mark.parametrize("call", ["step", "reset"])
def test_a_second_interrupt_ends_a_step_or_a_reset_that_hangs(call):
    code = HANG.format(tests=str(Path(__file__).parents[2]), call=call)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the first asks for the next log row"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Stopping at the next log row" in errors and "Traceback" not in errors


@pytest.mark.parametrize("values", [["1", "2"], [1j, 2.0]])
@pytest.mark.parametrize("ready_made", [False, True])
def test_texts_and_complex_numbers_are_not_observations(values, ready_made):
    env = Odd(result=lambda observation, *rest: (np.array(values), *rest))
    flatten = make_flatten(env.observation_space, "Odd")[1]
    with pytest.raises(ValueError, match="which is not made of real numbers"):
        flatten(np.array(values))
    options = {"cost_names": ["cost"], "episode_length": 9}
    host = make_host(SyncVectorEnv([Odd]) if ready_made else env, **options)
    host.reset(seed=0)
    with pytest.raises(ValueError, match="which is not made of real numbers"):
        if ready_made:
            host._flatten_batch(np.array([values]))
        else:
            host.step(np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("error", [EOFError, ConnectionError])
def test_errors_of_the_environment_itself_are_passed_on(error):
    def fail(time):
        raise error("the simulator does not answer")

    host = make_host(Odd(report=fail), cost_names=["cost"], episode_length=9)
    host.reset(seed=0)
    with pytest.raises(error, match="the simulator does not answer"):
        host.step(np.zeros((1, 1), np.float32))
