"""Tests of the episode lengths, names, bounds and spaces that are read from environments."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from helpers.gym_probes import (
    Counter,
    Nested,
    Odd,
    expected_transitions,
    transitions,
    zeros,
)
from orac.envs.gym_adapter.make import make_host


@pytest.mark.parametrize(
    ("env", "given", "length"),
    [
        ("Pendulum-v1", None, 200),
        ("Pendulum-v1", 300, 300),
        ("Pendulum-v1", 50, 50),
        (lambda: TimeLimit(Counter(100), 7), None, 7),
        (lambda: TimeLimit(Counter(100), 7), 5, 5),
        (lambda: Odd(episode_length=11), None, 11),
        (Counter, None, None),
    ],
)
def test_episode_length_is_the_shortest_known_one(env, given, length):
    host = make_host(env, cost_fn=lambda *_: 0.0, episode_length=given)
    assert host.spec.episode_length == length


def test_episode_length_beyond_the_environments_own_limit_raises():
    with pytest.raises(
        ValueError, match=r"is 9, but .* after 7 steps by itself. Leave"
    ):
        make_host(lambda: TimeLimit(Counter(100), 7), episode_length=9)


def test_episode_length_truncates_and_keeps_the_last_observation():
    host = make_host(partial(Counter, 100), episode_length=4, cost_names=["cost"])
    assert transitions(host, 9) == [expected_transitions(4, 9, truncates=True)]


def test_cost_bound_of_a_step_bounds_the_cost_of_an_episode():
    env = Odd(step_cost_bound=2.0, episode_length=11)
    assert make_host(env, cost_names=["cost"]).spec.cost_bounds == (22.0,)
    env = Odd(step_cost_bound=2.0, episode_length=11)
    host = make_host(env, cost_names=["cost"], episode_length=5)
    assert host.spec.cost_bounds == (10.0,)


def test_options_override_names_and_bounds_that_the_environment_declares():
    env = Odd(cost_names=("heat",), cost_bound=400.0, metric_names=["time"])
    spec = make_host(env).spec
    assert (spec.cost_names, spec.cost_bounds) == (("heat",), (400.0,))
    assert spec.metric_names == ("time",)
    spec = make_host(env, cost_names=["power"], cost_bound=20, metric_names="x").spec
    assert (spec.cost_names, spec.cost_bounds) == (("power",), (20.0,))
    assert spec.metric_names == ("x",)


def test_cost_bound_of_an_episode_is_not_used_for_longer_episodes():
    gymnasium.register(
        "Bounded-v0", partial(Odd, cost_bound=20.0), max_episode_steps=20
    )
    kwargs = {"step_cost_bound": 1.0}
    try:
        for length, bounds in ((None, (20.0,)), (10, (20.0,)), (20, (20.0,))):
            host = make_host("Bounded-v0", cost_names=["cost"], episode_length=length)
            assert host.spec.cost_bounds == bounds
        longer: dict[str, Any] = {"cost_names": ["cost"], "episode_length": 21}
        with pytest.warns(UserWarning, match="20 steps, so the bound is not used for"):
            assert make_host("Bounded-v0", **longer).spec.cost_bounds is None
        with pytest.warns(UserWarning, match="not used for episodes of 30 steps"):
            made = gymnasium.make("Bounded-v0", max_episode_steps=30)
            assert make_host(made, cost_names=["cost"]).spec.cost_bounds is None
        host = make_host("Bounded-v0", cost_bound=21, **longer)
        assert host.spec.cost_bounds == (21.0,)
        host = make_host("Bounded-v0", env_kwargs=kwargs, **longer)
        assert host.spec.cost_bounds == (21.0,)
    finally:
        gymnasium.registry.pop("Bounded-v0")


TWO = {"cost_names": ("heat", "power"), "cost_bound": (400.0, 20.0)}


@pytest.mark.parametrize(
    ("declared", "options", "bounds"),
    [
        ({"cost_bound": 10.0}, {"cost_names": ["cost"]}, (10.0,)),
        ({"cost_bound": 10.0}, {"cost_fn": lambda *_: 100.0}, None),
        ({"step_cost_bound": 1.0}, {"cost_fn": lambda *_: 100.0}, None),
        ({"cost_bound": 10.0}, {"cost_keys": ["other"]}, None),
        ({"cost_bound": 10.0, "cost_names": ("x",)}, {"cost_keys": ["other"]}, None),
        (TWO, {}, (400.0, 20.0)),
        (TWO, {"cost_keys": ["heat", "power"]}, (400.0, 20.0)),
        (TWO, {"cost_keys": ["power", "heat"]}, (20.0, 400.0)),
        (TWO, {"cost_keys": ["power"]}, (20.0,)),
        (TWO, {"cost_names": ["heat", "power"]}, (400.0, 20.0)),
    ],
)
def test_a_declared_bound_is_used_only_for_the_cost_that_it_bounds(
    declared, options, bounds
):
    env = Odd(episode_length=5, **declared)
    names = {"cost_names": options["cost_keys"]} if "cost_keys" in options else {}
    names = names or ({"cost_names": ["cost"]} if "cost_fn" in options else {})
    assert make_host(env, **{**names, **options}).spec.cost_bounds == bounds


@pytest.mark.parametrize("bound", [-5.0, 1e39])
def test_a_declared_bound_that_no_cost_can_have_is_refused(bound):
    with pytest.raises(ValueError, match=r"declares the cost_bound \(.*at least 0"):
        make_host(Odd(cost_bound=bound), cost_names=["cost"])


def test_dict_observations_are_flattened_to_float32():
    host = make_host(Nested, cost_fn=lambda *_: 0.0)
    first = host.reset(seed=0)
    # Gymnasium sorts the keys: at (2 numbers), odd (one-hot, 2), time (1).
    assert first.dtype == np.float32
    assert first.tolist() == [[0, 0, 1, 0, 0]]
    step = host.step(zeros(host))
    assert step.next_observation.tolist() == [[0, 1, 0, 1, 1]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_dict_observations_of_a_vector_environment_are_flattened(mode):
    vector = SyncVectorEnv([partial(Nested, 2)] * 2, autoreset_mode=mode)
    host = make_host(vector, cost_fn=lambda *_: 0.0, cost_names=["cost"])
    host.reset(seed=0)
    host.step(zeros(host))
    last = host.step(zeros(host))
    assert last.terminated.all()
    assert last.next_observation.tolist() == [[0, 2, 1, 0, 2]] * 2
