"""Tests of saved states of environments: exact, or None where they are not available."""

import json
from functools import partial

import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, TimeLimit

from helpers.gym_probes import (
    Counter,
    CounterBatch,
    Odd,
    Stateful,
    speed_cost,
    walk,
    zeros,
)
from orac.envs.gym_adapter.make import make_host


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_restored_state_continues_bit_for_bit(vectorization):
    def make(kind):
        return make_host(
            partial(Stateful, 5),
            2,
            cost_fn=speed_cost,
            cost_names=["cost"],
            episode_length=4,
            vectorization=kind,
        )

    host, fresh = make(vectorization), make("sync")
    host.reset(seed=3)
    walk(host, 6)
    state = host.get_state()
    assert state is not None and state["steps"] == 6
    expected = walk(host, 9)
    for restored in (fresh, host):
        restored.set_state(state)
        assert walk(restored, 9) == expected
        restored.close()


def test_saved_state_is_json_after_arrays_become_lists():
    host = make_host(lambda: TimeLimit(Stateful(), 9), cost_names=["cost"])
    host.reset(seed=0)
    host.step(zeros(host))
    json.dumps(host.get_state(), default=lambda array: array.tolist())
    assert host.get_state()["environments"][0]["environment"]["elapsed"] == [1]


def test_vector_environment_may_offer_its_own_state():
    host = make_host(CounterBatch(2), episode_length=3, cost_names=["cost"])
    host.reset(seed=0)
    walk(host, 4)
    fresh = make_host(CounterBatch(2), episode_length=3, cost_names=["cost"])
    fresh.set_state(host.get_state())
    assert walk(fresh, 4) == walk(host, 4)


@pytest.mark.parametrize(
    "env",
    [
        Counter(),
        NormalizeReward(Stateful()),
        SyncVectorEnv([Stateful]),
        Odd(get_state=lambda: {"thing": object()}, set_state=print),
    ],
    ids=["no state", "unknown wrapper", "sync vector", "not plain data"],
)
def test_state_that_is_not_exactly_available_is_none(env):
    host = make_host(env, cost_names=["cost"])
    host.reset(seed=0)
    assert host.get_state() is None


def test_environment_that_was_never_reset_has_no_state():
    assert make_host(Stateful(), cost_names=["cost"]).get_state() is None
