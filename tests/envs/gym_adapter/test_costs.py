"""Tests of costs from info keys, from steps with six values and from cost functions."""

import re
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from helpers.gym_probes import (
    Counter,
    Matrix,
    Nested,
    Odd,
    Reusing,
    SixValues,
    expected_transitions,
    speed_cost,
    transitions,
    zeros,
)
from orac.envs.gym_adapter.make import make_host

MODES = list(AutoresetMode)


@pytest.mark.parametrize("mode", MODES)
def test_cost_fn_sees_the_step_before_the_restart(mode):
    # Gymnasium keeps no copy of a final observation, so SAME_STEP gets fresh arrays.
    probe = Counter if mode is AutoresetMode.SAME_STEP else Reusing
    vector = SyncVectorEnv(
        [probe, partial(probe, length=4)],
        copy=mode is AutoresetMode.SAME_STEP,
        autoreset_mode=mode,
    )
    host = make_host(vector, cost_fn=speed_cost, cost_names=["speed"])
    ours = make_host(Reusing, 2, cost_fn=speed_cost, cost_names=["speed"])
    for row in transitions(host, 9) + transitions(ours, 9):
        for observation, reached, _, cost, *_ in row:
            assert reached[1] == observation[1] + 1
            assert cost == (1 + 100 * reached[0],)


def test_cost_fn_gets_observations_and_info_of_the_environment_itself():
    calls = []

    def cost_fn(obs, action, next_obs, info):
        calls.append((obs, action, next_obs, info))
        return next_obs["time"][0] / 4

    host = make_host(Nested, cost_fn=cost_fn, episode_length=50)
    host.reset(seed=0)
    calls.clear()
    step = host.step(np.array([[0.5]], np.float32))
    obs, action, next_obs, info = calls[0]
    assert (obs["time"].tolist(), next_obs["time"].tolist()) == ([0], [1])
    assert action.tolist() == info["action"].tolist() == [0.5]
    assert step.cost.tolist() == [[0.25]]


def test_cost_fn_sees_the_action_as_it_was_taken():
    # Nested overwrites the action that it is given.
    for env in (Nested, SyncVectorEnv([Nested])):
        host = make_host(env, cost_fn=lambda o, action, n, i: action, episode_length=9)
        host.reset(seed=0)
        assert host.step(np.array([[0.5]], np.float32)).cost.tolist() == [[0.5]]


def test_cost_fn_may_return_one_number_per_constraint():
    host = make_host(Counter(), cost_fn=lambda *_: (1, np.float32(0.5)))
    assert host.spec.cost_names == ("cost_0", "cost_1")
    host.reset(seed=0)
    assert host.step(zeros(host)).cost.tolist() == [[1.0, 0.5]]


def test_error_inside_cost_fn_is_passed_on():
    def cost_fn(observation, action, next_observation, info):
        return observation["speed"]

    for env in (Nested, SyncVectorEnv([Nested])):
        with pytest.raises(KeyError, match="speed") as caught:
            make_host(env, cost_fn=cost_fn, episode_length=9)
        (note,) = caught.value.__notes__
        assert "raised by your cost function " in note and ".cost_fn, which was" in note
        assert re.search(
            r"Here observation has the keys '.*' and info has the keys 'action'\.$",
            note,
        )


def test_cost_of_a_six_value_step_is_read_for_ids_and_objects():
    gymnasium.register("SixValues-v0", SixValues, max_episode_steps=2)
    try:
        host = make_host("SixValues-v0", cost_names=["cost"])
        assert host.spec.episode_length == 2
        assert transitions(host, 5) == [expected_transitions(2, 5, truncates=True)]
    finally:
        gymnasium.registry.pop("SixValues-v0")
    assert transitions(make_host(SixValues(), cost_names=["cost"]), 5) == [
        expected_transitions(3, 5)
    ]


def test_costs_under_several_keys_become_constraints_in_their_order():
    env = Odd(report=lambda time: {"heat": time, "noise": np.bool_(time > 1), "x": "y"})
    host = make_host(env, cost_keys=["noise", "heat"])
    assert host.spec.cost_names == ("noise", "heat")
    host.reset(seed=0)
    assert host.step(zeros(host)).cost.tolist() == [[0.0, 1.0]]
    assert host.step(zeros(host)).cost.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("ready_made", [False, True])
@pytest.mark.parametrize(
    ("report", "costs"),
    [
        (lambda time: {"cost": np.array([5.0, time])}, [5.0, 1.0]),
        (lambda time: {"noise": 7.0, "heat": time + 0.5}, [7.0, 1.5]),
        # A sum in addition to its parts is not read instead of them, nor one part for all.
        (lambda time: {"noise": 7.0, "heat": time + 0.5, "cost": 8.5}, [7.0, 1.5]),
        (lambda time: {"cost": np.array([5.0, time]), "heat": 3.0}, [5.0, 1.0]),
    ],
)
def test_costs_of_several_names_are_read_under_the_names_or_from_an_array(
    report, costs, num_envs, ready_made
):
    env = [lambda: Odd(report=report)] * num_envs
    made = SyncVectorEnv(env) if ready_made else env[0]
    host = make_host(made, num_envs, cost_names=["noise", "heat"])
    host.reset(seed=0)
    assert host.step(zeros(host)).cost.tolist() == [costs] * num_envs


def test_array_under_one_key_is_one_constraint_per_entry():
    host = make_host(Matrix)
    assert host.spec.cost_names == ("cost_0", "cost_1")


def test_fraction_next_to_an_integer_cost_is_not_rounded():
    # SyncVectorEnv makes an integer column because the first environment reports 0.
    costs = iter([0, 0.7])
    factories = iter([lambda _: {"cost": 0}, lambda _: {"cost": 0.7}])
    host = make_host(lambda: Odd(report=next(factories)), 2, cost_names=["cost"])
    host.reset(seed=0)
    assert np.allclose(host.step(zeros(host)).cost, [[cost] for cost in costs])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("first", "last"), [(0, 0.7), (False, 0.7), (0, np.float32(0.7)), (False, 3)]
)
@pytest.mark.parametrize("kind", ["info", "array", "cost_fn"])
def test_fraction_next_to_an_integer_is_not_rounded_by_a_ready_made_batch(
    mode, first, last, kind
):
    # Gymnasium stores a batch of infos in the type of the first environment's value.
    def env(value):
        class Crash(Counter):
            def report(self, action):
                cost = value if self.time == self.length else 0
                return {"cost": np.array([cost]) if kind == "array" else cost}

        return partial(Crash, length=2)

    def read(obs, action, next_obs, info):
        return info["cost"]

    vector = SyncVectorEnv([env(first), env(last)], autoreset_mode=mode)
    host = make_host(
        vector, cost_fn=read if kind == "cost_fn" else None, cost_names=["cost"]
    )
    host.reset(seed=0)
    host.step(zeros(host))
    assert np.allclose(host.step(zeros(host)).cost, [[0.0], [float(last)]])


def test_column_of_whole_numbers_stays_one():
    vector = SyncVectorEnv([lambda: Odd(report=lambda time: {"cost": time})] * 2)
    host = make_host(vector, cost_names=["cost"], episode_length=50)
    host.reset(seed=0)
    step, readings, _ = host.advance(zeros(host))
    assert step.infos["cost"].dtype == int
    assert readings.tolist() == [1, 1]


def test_value_that_is_not_a_number_does_not_become_one_in_a_ready_made_batch():
    reports = iter([lambda time: {"cost": 1}, lambda time: {"cost": "3"}])
    vector = SyncVectorEnv([lambda: Odd(report=next(reports))] * 2)
    host = make_host(vector, cost_names=["cost"], episode_length=50)
    host.reset(seed=0)
    with pytest.raises(ValueError, match="the cost '3', which is not a number"):
        host.step(zeros(host))


@pytest.mark.parametrize(
    ("late_info", "message"),
    [
        (
            {"cost": np.nan},
            "at step 10,000 environment 1 reported a cost of nan. Guard",
        ),
        ({}, "at step 10,000 environment 1 reported no cost: info has no key 'cost'"),
    ],
)
def test_invalid_cost_after_ten_thousand_steps_names_environment_and_step(
    late_info, message
):
    reports = iter(
        [
            lambda time: {"cost": 1.0},
            lambda time: {"cost": 1.0} if time < 10 else late_info,
        ]
    )
    host = make_host(
        lambda: Odd(report=next(reports)), 2, cost_names=["c"], episode_length=10**6
    )
    host.reset(seed=0)
    action = np.zeros((2, 1), np.float32)
    host.steps = 9_990
    for _ in range(9):
        host.step(action)
    with pytest.raises(ValueError, match=re.escape(message)):
        host.step(action)
