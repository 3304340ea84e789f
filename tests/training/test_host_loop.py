"""Tests of evaluations in environments that step on the host."""

import copy

import jax.numpy as jnp
import numpy as np
import pytest

import orac
from helpers.pendulum import TINY
from orac.config.validation import NonFiniteError
from orac.core.agent import PolicyState
from orac.training import host_loop
from orac.training.host_loop import HostRunner
from training.test_bad_days import Stateless


class LiveState(Stateless):
    """A walk whose get_state returns the dict that its steps change."""

    episode_length = 25

    def __init__(self):
        super().__init__()
        self.live = {"time": 0, "place": 0.0}

    def step(self, action):
        result = super().step(action)
        self.live.update(time=self.time, place=self.place)
        return result

    def get_state(self):
        return self.live

    def set_state(self, state):
        self.live = state
        self.time, self.place = state["time"], state["place"]


def test_an_evaluation_restores_a_state_that_the_environment_returned_by_reference():
    agent = orac.SAC(LiveState(), settings=TINY)
    env = agent.runner.env
    for _ in range(3):
        env.step(np.ones((1, 1), np.float32))
    before = copy.deepcopy(env.get_state())
    agent.evaluate(2)
    after = env.get_state()
    assert before["environments"][0]["environment"]["state"]["time"] == 3
    inside = [
        state["environments"][0]["environment"]["state"] for state in (before, after)
    ]
    assert inside[0] == inside[1]


def test_a_compiled_policy_whose_action_is_not_finite_names_no_episode(monkeypatch):
    def diverged(policy, rows):
        return jnp.full_like(rows, jnp.nan)

    monkeypatch.setattr(host_loop, "noise_policy", lambda *_: diverged)
    monkeypatch.setattr(host_loop, "without_seed", lambda config: config)
    runner = object.__new__(HostRunner)
    runner.spec = runner.config = None
    act = runner._compiled_policy(PolicyState(*[None] * len(PolicyState._fields)))
    with pytest.raises(
        NonFiniteError, match=r"^the policy's action was not finite, so"
    ):
        act(np.zeros((2, 3), np.float32), None)
