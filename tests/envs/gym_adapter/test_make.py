"""Tests of making environments from ids, objects and factories, and of the errors."""

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, TimeLimit

from helpers.gym_probes import Counter, CounterBatch, Odd, transitions, walk
from orac.envs.gym_adapter.make import check_environment, make_host


def test_an_id_of_a_module_is_suggested_with_its_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "drone", ModuleType("drone"))
    monkeypatch.setitem(gymnasium.registry, "Drone-v0", gymnasium.spec("Pendulum-v1"))
    with pytest.raises(ValueError, match="Did you mean 'drone:Drone-v0'"):
        make_host("drone:Drone-v1")


def test_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    (tmp_path / "probe_package.py").write_text(
        "import gymnasium\nfrom helpers.gym_probes import Counter\n"
        "gymnasium.register('Probe-v3', Counter, max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        host = make_host("probe_package:Probe-v3", 2)
        assert (host.spec.name, host.spec.episode_length) == ("Probe-v3", 2)
    finally:
        gymnasium.registry.pop("Probe-v3", None)


def test_vector_environment_of_an_id_is_used():
    gymnasium.register(
        "Batched-v0", Counter, vector_entry_point=CounterBatch, max_episode_steps=5
    )
    try:
        host = make_host("Batched-v0", 3)
        assert isinstance(host.vector, CounterBatch)
        assert (host.num_envs, host.spec.episode_length) == (3, 5)
        single = make_host("Batched-v0", 3, vectorization="sync")
        assert isinstance(single.vector, SyncVectorEnv)
    finally:
        gymnasium.registry.pop("Batched-v0")


def test_jax_environment_can_be_made_through_its_id():
    host = make_host("orac/GuardedMaze-v0", 2, metric_names=["path"])
    check_environment(host)
    spec = host.spec
    assert (spec.episode_length, spec.observation_size) == (100, 2)
    assert (spec.cost_names, spec.cost_bounds) == (("cost",), (24.0,))


def test_env_kwargs_reach_the_environment():
    assert (
        make_host(Counter, env_kwargs={"length": 8}).vector.envs[0].unwrapped.length
        == 8
    )
    host = make_host("Pendulum-v1", cost_fn=lambda *_: 0.0, env_kwargs={"g": 2.0})
    assert host.vector.envs[0].unwrapped.g == 2.0


def test_error_for_max_episode_steps_names_episode_length():
    with pytest.raises(
        ValueError, match=r"gymnasium.make, not .* Pass episode_length=9"
    ):
        make_host("Pendulum-v1", env_kwargs={"max_episode_steps": 9})


def test_wrappers_of_the_user_are_preserved():
    host = make_host(NormalizeReward(TimeLimit(Counter(9), 4)), cost_names=["cost"])
    assert host.spec.episode_length == 4
    assert [len(row) for row in transitions(host, 6)] == [6]


def test_environment_object_stays_open_when_it_is_refused():
    closed = []
    env = Odd(report=lambda _: {}, close=lambda: closed.append(env))
    with pytest.raises(ValueError, match="no cost"):
        make_host(env)
    assert closed == []


def test_check_environment_leaves_the_environment_as_new():
    host = make_host("Pendulum-v1", 2, cost_fn=lambda *_: 0.0)
    fresh = make_host("Pendulum-v1", 2, cost_fn=lambda *_: 0.0)
    check_environment(host)
    assert host.steps == 0
    assert np.array_equal(host.reset(seed=5), fresh.reset(seed=5))
    assert walk(host, 3) == walk(fresh, 3)


def test_good_environments_pass_the_check():
    for env in ("Pendulum-v1", Counter(7), SyncVectorEnv([Counter, Counter])):
        length = None if env == "Pendulum-v1" else 7
        cost_fn = None if length else lambda obs, action, next_obs, info: 1.0
        check_environment(make_host(env, cost_fn=cost_fn, episode_length=length))


def observing(value, space) -> Callable[[], Any]:
    return partial(
        Odd,
        observation_space=space,
        result=lambda obs, *rest: (value, *rest),
        reset_result=lambda obs, info: (value, info),
    )


def test_pixels_are_allowed_but_get_a_warning():
    space = Box(0, 255, (64, 64, 3), np.uint8)
    env = observing(np.zeros((64, 64, 3), np.uint8), space)()
    host = make_host(env, episode_length=100)
    assert host.spec.observation_size == 12_288
    with pytest.warns(
        UserWarning, match="has 12,288 numbers and contains images.*98.3 GB"
    ):
        check_environment(host)


def test_environment_that_ignores_its_seed_gets_a_warning():
    generator = np.random.default_rng(0)
    env = Odd(reset_result=lambda obs, info: (generator.random(2, np.float32), info))
    with pytest.warns(UserWarning, match="cannot be repeated"):
        check_environment(make_host(env, episode_length=100))


def test_small_images_get_the_warning_too():
    space = spaces.Dict(view=Box(0, 255, (4, 4), np.uint8))
    env = observing({"view": np.zeros((4, 4), np.uint8)}, space)()
    with pytest.warns(
        UserWarning, match="has 16 numbers and contains images.*Grayscale"
    ):
        check_environment(make_host(env, episode_length=100))


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.Discrete(3, start=2), spaces.MultiBinary([2, 2])],
)
def test_the_advice_for_discrete_actions_works_as_it_stands(space):
    env = Odd(action_space=space)
    with pytest.raises(ValueError, match="has discrete actions") as caught:
        make_host(env, episode_length=100)
    advice = str(caught.value).partition(": ")[2]
    names = {"gymnasium": gymnasium, "env": env}
    line, _, shell = advice.partition(". For the shell, ")
    assert shell.endswith("add --env-id my_envs:Name-v0.")
    wrapped = eval(line, names)
    wrapped.action_space.seed(0)
    chosen = [wrapped.action(wrapped.action_space.sample()) for _ in range(50)]
    assert all(space.contains(one) for one in chosen)
    assert len({np.asarray(one).tobytes() for one in chosen}) > 2
    assert make_host(wrapped, episode_length=100).spec.action_size >= 3


class Bad(NamedTuple):
    """What is wrong, a function that makes it, and part of the expected error."""

    case: str
    env: Callable[[], Any]
    message: str
    options: dict[str, Any] = {}  # noqa: RUF012


def with_actions(space) -> Callable[[], Any]:
    return partial(Odd, action_space=space)


def with_report(report) -> Callable[[], Any]:
    return partial(Odd, report=report)


def with_step(index: int, value: Any) -> Callable[[], Any]:
    """Replace one of the values that `step` returns."""

    def replaced(*result):
        return (*result[:index], value, *result[index + 1 :])

    return partial(Odd, result=replaced)


def late(values: dict[str, Any]) -> Callable[[], Any]:
    """Report a good cost for 14 steps, then these values."""
    return with_report(lambda time: {"cost": 1.0} if time < 15 else values)


class OldGym:
    """An environment of the old gym package, which has another base class."""

    action_space = Box(-1, 1, (1,))


class NoSpaces(gymnasium.Env):
    """An environment that declares no spaces."""


class NoObservationSpace(gymnasium.Env):
    action_space = Box(-1, 1, (1,))


class Ordered(Odd):
    """An environment that declares the order of its costs."""

    cost_names = ("heat", "noise")


class OldReset(Counter):
    def reset(self):
        return np.zeros(2, np.float32)


class NoFinalObservation(CounterBatch):
    """A SAME_STEP vector environment that does not report the last observation."""

    def step(self, actions):
        *result, infos = super().step(actions)
        infos.pop("final_obs", None)
        return (*result, infos)


class Endless(CounterBatch):
    """A vector environment whose episodes do not end in time."""

    def step(self, actions):
        observation, reward, _, truncated, infos = super().step(actions)
        return observation, reward, truncated, truncated, infos


class TooFewCosts(CounterBatch):
    """A vector environment with costs for fewer environments than it has."""

    def step(self, actions):
        *result, infos = super().step(actions)
        return (*result, {**infos, "cost": np.zeros(1)})


ONE = Counter()
TABLE = [
    # Actions
    Bad("discrete actions", with_actions(spaces.Discrete(3)), "has discrete actions"),
    Bad(
        "many discrete", with_actions(spaces.MultiDiscrete([2, 3])), "is one gymnasium"
    ),
    Bad("buttons", with_actions(spaces.MultiBinary(4)), "need continuous ones"),
    Bad(
        "dict actions",
        with_actions(spaces.Dict(a=Box(-1, 1))),
        "but agents need one Box",
    ),
    Bad("tuple actions", with_actions(spaces.Tuple([Box(-1, 1)])), "single gymnasium"),
    Bad("integer box", with_actions(Box(0, 5, (2,), np.int64)), "has integer actions"),
    Bad("unbounded", with_actions(Box(-np.inf, np.inf, (1,))), "both must be finite"),
    Bad(
        "half bounded",
        with_actions(Box(np.float32([-1, 0]), np.float32([1, np.inf]))),
        "action 1 has the bounds [0.0, inf]",
    ),
    Bad("no actions", with_actions(Box(-1, 1, (0,))), "an empty action space"),
    Bad("nothing to choose", with_actions(Box(2, 2, (1,))), "nothing to choose"),
    Bad("no action space", with_actions(7), "not a Gymnasium space"),
    Bad("action space is None", NoSpaces, "has None as action_space, which is not"),
    # Observations
    Bad(
        "sequence observations",
        partial(Odd, observation_space=spaces.Sequence(Box(0, 1))),
        "cannot be flattened",
    ),
    Bad("no observation space", partial(Odd, observation_space=None), "not a Gymn"),
    Bad(
        "observation space is None",
        NoObservationSpace,
        "has None as observation_space, which",
    ),
    Bad(
        "empty observation",
        partial(Odd, observation_space=Box(0, 1, (0,))),
        "empty obs",
    ),
    Bad(
        "observation of another shape",
        observing(np.zeros(4), Box(-1, 1, (3,))),
        "shape (4,), but its observation_space has the shape (3,)",
    ),
    Bad(
        "a scalar instead of a vector",
        observing(0.0, Box(-1, 1, (1,))),
        "shape (), but its observation_space has the shape (1,)",
    ),
    Bad(
        "key missing from a dict observation",
        observing({"a": np.zeros(1)}, spaces.Dict(a=Box(0, 1), b=Box(0, 1))),
        "not in its observation_space",
    ),
    Bad(
        "dict observation of another size",
        observing({"a": np.zeros(3)}, spaces.Dict(a=Box(0, 1, (2,)))),
        "of shape (3,), but its observation_space has the shape (2,)",
    ),
    Bad(
        "observation of strings",
        observing(np.array(["low", "high"]), Box(0, 1, (2,))),
        "real numbers",
    ),
    Bad(
        "NaN observation",
        observing(np.array([0, np.nan], np.float32), Box(-1, 1, (2,))),
        "the observation of environment 0 is not finite",
    ),
    # Rewards and steps
    Bad(
        "NaN reward",
        with_step(1, np.nan),
        "the reward of environment 0 is not finite at step 1",
    ),
    Bad("infinite reward", with_step(1, np.inf), "Guard its formula"),
    Bad("no reward", with_step(1, None), "the reward None, which is not a number"),
    Bad("reward vector", with_step(1, np.ones(2)), "Return float(reward)"),
    Bad("four values", partial(Odd, result=lambda *r: r[:4]), "step returned 4 values"),
    Bad(
        "bare observation",
        partial(Odd, reset_result=lambda o, i: o),
        "(observation, info)",
    ),
    Bad("old reset", OldReset, "reset(*, seed=None, options=None)"),
    # Costs
    Bad(
        "no cost", with_report(lambda _: {}), "info has no key 'cost' (its keys: none)"
    ),
    Bad("cost elsewhere", with_report(lambda _: {"c": 1}), "(its keys: 'c')"),
    Bad("no cost at all", lambda: "Pendulum-v1", "cost_fn="),
    Bad("no info", with_step(4, None), "info is None, not a dict"),
    Bad("cost None", with_report(lambda _: {"cost": None}), "no cost (it is None)"),
    Bad(
        "cost as a string",
        with_report(lambda _: {"cost": "3"}),
        "'3', which is not a number",
    ),
    Bad("complex cost", with_report(lambda _: {"cost": 1j}), "which is not a number"),
    Bad("ragged cost", with_report(lambda _: {"cost": [[1], [1, 2]]}), "not a number"),
    Bad(
        "cost matrix",
        with_report(lambda _: {"cost": np.ones((2, 2))}),
        "of shape (2, 2)",
    ),
    Bad("empty cost", with_report(lambda _: {"cost": []}), "an empty cost"),
    Bad("NaN cost", with_report(lambda _: {"cost": np.nan}), "reported a cost of nan"),
    Bad("infinite cost", with_report(lambda _: {"cost": -np.inf}), "a cost of -inf"),
    Bad("beyond float32", with_report(lambda _: {"cost": 1e300}), "beyond float32"),
    Bad(
        "negative cost",
        with_report(lambda _: {"cost": -1.0}),
        "reported a cost of -1.0. Costs must not be negative: report max(cost, 0)",
    ),
    Bad(
        "negative cost, late",
        late({"cost": -0.5}),
        "at step 15 environment 0 reported a cost of -0.5",
    ),
    Bad(
        "one negative of several",
        with_report(lambda _: {"cost": [1.0, -2.0]}),
        "reported a cost of -2.0. Costs must not be negative",
        {"cost_names": ["heat", "noise"]},
    ),
    Bad(
        "negative cost_fn",
        Counter,
        "reported a cost of -3.0. Costs must not be negative",
        {"cost_fn": lambda *_: -3.0},
    ),
    Bad(
        "NaN cost, late",
        late({"cost": np.nan}),
        "at step 15 environment 0 reported a cost of nan. Guard",
    ),
    Bad("no cost, late", late({}), "environment 0 reported no cost"),
    Bad("more costs, late", late({"cost": [1, 2]}), "2 costs for 1 constraint"),
    Bad(
        "six values, NaN cost",
        partial(Odd, result=lambda o, r, *x: (o, r, np.nan, *x)),
        "nan",
    ),
    Bad(
        "two numbers under one of two keys",
        with_report(lambda _: {"a": 1, "b": [1, 2]}),
        "2 numbers, not one, under the key 'b'",
        {"cost_keys": ["a", "b"]},
    ),
    Bad(
        "fewer costs than names",
        Counter,
        "1 cost for 2 constraints",
        {"cost_names": ["heat", "noise"]},
    ),
    Bad(
        "neither the names nor an array",
        with_report(lambda _: {"heat": 1.0}),
        "info has no key 'noise' (its keys: 'heat'). Report one number under each",
        {"cost_names": ["heat", "noise"]},
    ),
    Bad(
        "names in another order",
        partial(Ordered, report=lambda _: {"cost": [1.0, 2.0]}),
        "reports its costs in the order heat, noise",
        {"cost_names": ["noise", "heat"]},
    ),
    Bad("cost_fn of one argument", Counter, "cost_fn is called with", {"cost_fn": abs}),
    Bad(
        "cost_fn without a result",
        Counter,
        "no cost (it is None)",
        {"cost_fn": lambda *_: None},
    ),
    Bad(
        "metric as a string",
        with_report(lambda _: {"cost": 1, "stage": "late"}),
        "Leave 'stage' out of metric_names",
        {"metric_names": ["stage"]},
    ),
    # Episodes
    Bad("endless episodes", Counter, "Pass episode_length=", {"episode_length": None}),
    Bad(
        "episodes of no steps", Counter, "episode_length must be", {"episode_length": 0}
    ),
    # What is passed as env
    Bad("misspelt id", lambda: "Pendulm-v1", "Did you mean 'Pendulum-v1'?"),
    Bad("id without version", lambda: "Pendulum", "Did you mean 'Pendulum-v1'?"),
    Bad(
        "id of a user's module",
        lambda: "Drone-v0",
        "environment 'Drone-v0'. If your own module",
    ),
    Bad("unknown version", lambda: "Pendulum-v9", "Gymnasium reports:"),
    Bad("unknown module", lambda: "no_such_module:Thing-v0", "install it, or correct"),
    Bad(
        "unknown keyword",
        lambda: "Pendulum-v1",
        "Check env_kwargs",
        {"env_kwargs": {"gravity": 1}},
    ),
    Bad("a number as environment", lambda: 42, "got an object of type int"),
    Bad("the old gym package", lambda: OldGym, "not a Gymnasium environment"),
    Bad("two of one object", lambda: ONE, "Pass its id or a factory", {"num_envs": 2}),
    Bad(
        "the same object twice",
        lambda: lambda: ONE,
        "environment twice",
        {"num_envs": 2},
    ),
    Bad("no environments", Counter, "num_envs must be a whole number", {"num_envs": 0}),
    Bad(
        "object in a process",
        Counter,
        "cannot be moved to another process",
        {"vectorization": "async"},
    ),
    Bad(
        "keywords for an object",
        Counter,
        "already made",
        {"env_kwargs": {"length": 3}},
    ),
    Bad(
        "factory of batches", lambda: CounterBatch, "Pass the vector environment itself"
    ),
    Bad(
        "misspelt vectorization",
        Counter,
        "Did you mean 'async'?",
        {"vectorization": "asinc"},
    ),
    Bad(
        "no vector entry point",
        lambda: "Pendulum-v1",
        "no vector entry point",
        {"vectorization": "vector"},
    ),
    Bad(
        "factory as vector",
        lambda: Counter,
        "'sync' or 'async'",
        {"vectorization": "vector"},
    ),
    Bad("names twice", Counter, "must be unique", {"cost_names": ["a", "a"]}),
    Bad("no keys", Counter, "Name at least one", {"cost_keys": []}),
    Bad(
        "keys and names that differ in number",
        Counter,
        "Give one name per key",
        {"cost_keys": ["a", "b"], "cost_names": ["a"]},
    ),
    Bad("negative bound", Counter, "one positive number per", {"cost_bound": -1.0}),
    Bad("bound too large", Counter, "one positive number per", {"cost_bound": 1e39}),
    Bad("bounds for two", Counter, "cost_bound must be", {"cost_bound": [1.0, 2.0]}),
    # Vector environments
    Bad("no mode", lambda: CounterBatch(mode=None), "does not declare how it"),
    Bad("mode unknown", lambda: CounterBatch(mode="Sometimes"), "AutoresetMode"),
    Bad(
        "another number",
        lambda: CounterBatch(2),
        "has 2. Leave num_envs",
        {"num_envs": 3},
    ),
    Bad(
        "no last observation",
        lambda: NoFinalObservation(),
        "without infos['final_obs']",
        {"episode_length": 3},
    ),
    Bad(
        "longer than declared",
        lambda: Endless(),
        "has 4 steps, but episode_length is 3",
        {"episode_length": 3},
    ),
    Bad(
        "too few costs",
        lambda: TooFewCosts(),
        "one row per environment (2), got 1",
        {"cost_names": ["c"]},
    ),
    Bad(
        "a limit that cannot be moved",
        lambda: SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")]),
        "by itself. Leave episode_length out",
        {"episode_length": 50, "cost_fn": lambda *_: 0.0},
    ),
]


def test_table_is_long_and_names_each_case_once():
    assert len(TABLE) >= 40
    assert len({bad.case for bad in TABLE}) == len(TABLE)


@pytest.mark.parametrize("bad", TABLE, ids=[bad.case for bad in TABLE])
def test_bad_environment_gets_an_error_of_one_sentence(bad):
    with pytest.raises(ValueError) as caught:
        host = make_host(bad.env(), **{"episode_length": 100, **bad.options})
        check_environment(host)
    text = str(caught.value)
    assert bad.message in text
    assert "\n" not in text
    assert text.endswith((".", "?"))
