"""Any Gymnasium environment: the last observation, the last cost, every way in."""

import json
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, TimeLimit

from helpers.gym_probes import (
    Counter,
    CounterBatch,
    Matrix,
    Nested,
    Odd,
    Reusing,
    Single,
    SixBatch,
    SixValues,
    Stateful,
)
from orac.envs.gym_adapter.make import check_environment, make_host

MODES = list(AutoresetMode)


def zeros(host):
    return np.zeros((host.num_envs, host.spec.action_size), np.float32)


def transitions(host, calls):
    """Per environment: (observation, reached, reward, costs, terminated, truncated)."""
    observation = host.reset(seed=0)
    seen = [[] for _ in range(host.num_envs)]
    for _ in range(calls):
        step = host.step(zeros(host))
        for row in np.flatnonzero(step.valid):
            seen[row].append(
                (
                    tuple(observation[row].tolist()),
                    tuple(step.next_observation[row].tolist()),
                    float(step.reward[row]),
                    tuple(step.cost[row].tolist()),
                    bool(step.terminated[row]),
                    bool(step.truncated[row]),
                )
            )
        observation = step.observation
    host.close()
    return seen


def counted(length, steps, truncates=False):
    """What a Counter does in its first `steps` steps, written down independently."""
    told = []
    for step in range(steps):
        episode, time = step // length, step % length
        done = time + 1 == length
        ends = (False, done) if truncates else (done, False)
        cost = 10.0 * episode + time + 1
        told.append(((episode, time), (episode, time + 1), time + 1.0, (cost,), *ends))
    return told


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_gives_the_last_observation_and_the_last_cost(
    mode, truncates
):
    # Lengths differ, so that one environment restarts while the other goes on.
    fns = [partial(Counter, 3, truncates), partial(Counter, 4, truncates)]
    vector = SyncVectorEnv(fns, autoreset_mode=mode)
    seen = transitions(make_host(vector, cost_names=["cost"]), 12)
    assert seen[0] == counted(3, len(seen[0]), truncates)
    assert seen[1] == counted(4, len(seen[1]), truncates)
    # NEXT_STEP spends a call on each restart: 12 calls hold 9 steps of episodes of 3.
    assert len(seen[0]) == (9 if mode is AutoresetMode.NEXT_STEP else 12)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_environment_in_other_processes_is_read_the_same_way(mode):
    fns = [partial(Counter, 3), partial(Counter, 4)]
    vector = AsyncVectorEnv(fns, autoreset_mode=mode, context="spawn")
    seen = transitions(make_host(vector, cost_names=["cost"]), 8)
    assert seen[0] == counted(3, len(seen[0]))
    assert seen[1] == counted(4, len(seen[1]))


@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_what_we_vectorise_ourselves_is_right_about_ends(vectorization):
    host = make_host(Counter, 2, vectorization=vectorization)
    assert transitions(host, 9) == [counted(3, 9)] * 2


def test_a_vector_environment_of_another_make_is_read_without_masks():
    host = make_host(CounterBatch(3), cost_names=["cost"], episode_length=3)
    assert transitions(host, 7) == [counted(3, 7)] * 3


def test_a_vector_environment_may_step_with_six_values():
    host = make_host(SixBatch(2), episode_length=3, metric_names=["speed"])
    assert transitions(host, 7) == [counted(3, 7)] * 2
    host.reset(seed=0)
    speeds = [host.step(zeros(host)).metrics["speed"].tolist() for _ in range(3)]
    assert speeds[2] == [0.5, 1.5]
    assert np.isnan(speeds[:2]).all()


@pytest.mark.parametrize("copies", [False, True])
def test_arrays_that_an_environment_reuses_do_not_change_what_was_seen(copies):
    vector = SyncVectorEnv([Reusing], copy=copies, autoreset_mode="Disabled")
    assert transitions(make_host(vector, cost_names=["cost"]), 7) == [counted(3, 7)]
    first = make_host(Reusing(), cost_names=["cost"])
    before = first.reset(seed=0).copy()
    kept = first.step(zeros(first))
    first.step(zeros(first))
    assert kept.next_observation.tolist() == [[0.0, 1.0]]
    assert before.tolist() == [[0.0, 0.0]]


def speed_cost(obs, action, next_obs, info):
    return next_obs[1] - obs[1] + 100 * next_obs[0]


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


def test_cost_fn_of_a_single_environment_gets_the_users_own_terms():
    told = []

    def cost_fn(obs, action, next_obs, info):
        told.append((obs, action, next_obs, info))
        return next_obs["time"][0] / 4

    host = make_host(Nested, cost_fn=cost_fn, episode_length=50)
    host.reset(seed=0)
    told.clear()
    step = host.step(np.array([[0.5]], np.float32))
    obs, action, next_obs, info = told[0]
    assert (obs["time"].tolist(), next_obs["time"].tolist()) == ([0], [1])
    assert action.tolist() == info["action"].tolist() == [0.5]
    assert step.cost.tolist() == [[0.25]]


def test_cost_fn_sees_the_action_as_it_was_taken():
    # Nested overwrites the action that it is given.
    for env in (Nested, SyncVectorEnv([Nested])):
        host = make_host(env, cost_fn=lambda o, action, n, i: action, episode_length=9)
        host.reset(seed=0)
        assert host.step(np.array([[0.5]], np.float32)).cost.tolist() == [[0.5]]


def test_cost_fn_may_give_one_number_per_constraint():
    host = make_host(Counter(), cost_fn=lambda *_: (1, np.float32(0.5)))
    assert host.spec.cost_names == ("cost_0", "cost_1")
    host.reset(seed=0)
    assert host.step(zeros(host)).cost.tolist() == [[1.0, 0.5]]


def test_dict_observations_are_flattened_by_gymnasium_and_become_float32():
    host = make_host(Nested, cost_fn=lambda *_: 0.0)
    first = host.reset(seed=0)
    # Gymnasium sorts the keys: at (2 numbers), odd (one-hot, 2), time (1).
    assert first.dtype == np.float32
    assert first.tolist() == [[0, 0, 1, 0, 0]]
    step = host.step(zeros(host))
    assert step.next_observation.tolist() == [[0, 1, 0, 1, 1]]


@pytest.mark.parametrize("mode", MODES)
def test_dict_observations_of_a_given_vector_environment_are_flattened_too(mode):
    vector = SyncVectorEnv([partial(Nested, 2)] * 2, autoreset_mode=mode)
    host = make_host(vector, cost_fn=lambda *_: 0.0, cost_names=["cost"])
    host.reset(seed=0)
    host.step(zeros(host))
    last = host.step(zeros(host))
    assert last.terminated.all()
    assert last.next_observation.tolist() == [[0, 2, 1, 0, 2]] * 2


def test_a_six_value_step_brings_its_cost_through_ids_objects_and_limits():
    gymnasium.register("SixValues-v0", SixValues, max_episode_steps=2)
    try:
        host = make_host("SixValues-v0", cost_names=["cost"])
        assert host.spec.episode_length == 2
        assert transitions(host, 5) == [counted(2, 5, truncates=True)]
    finally:
        gymnasium.registry.pop("SixValues-v0")
    assert transitions(make_host(SixValues(), cost_names=["cost"]), 5) == [
        counted(3, 5)
    ]


def test_rank_two_actions_are_reshaped_clipped_and_cast():
    host = make_host(Matrix(), cost_names=["left", "right"])
    assert host.spec.action_low == (0.0, -2.0, -1.0, -1.0)
    assert host.spec.action_high == (1.0, 2.0, 1.0, 3.0)
    host.reset(seed=0)
    step = host.step(np.array([[0.5, 1.0, 0.25, 9.0]], np.float32))
    # Rows of the action are [0.5, 1] and [0.25, 3], the 9 being clipped to 3.
    assert step.cost.tolist() == [[1.5, 3.25]]


def test_an_action_without_axes_is_taken_as_one_number():
    host = make_host(Single, 2)
    assert host.spec.action_low == (-2.0,)
    host.reset(seed=0)
    step = host.step(np.array([[0.5], [1.5]], np.float32))
    assert step.cost.tolist() == [[0.5], [1.5]]


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
        # A sum beside its parts is not mistaken for them, nor a part for all.
        (lambda time: {"noise": 7.0, "heat": time + 0.5, "cost": 8.5}, [7.0, 1.5]),
        (lambda time: {"cost": np.array([5.0, time]), "heat": 3.0}, [5.0, 1.0]),
    ],
)
def test_costs_of_several_names_lie_under_those_or_in_one_array(
    report, costs, num_envs, ready_made
):
    env = [lambda: Odd(report=report)] * num_envs
    made = SyncVectorEnv(env) if ready_made else env[0]
    host = make_host(made, num_envs, cost_names=["noise", "heat"])
    host.reset(seed=0)
    assert host.step(zeros(host)).cost.tolist() == [costs] * num_envs


def test_an_array_under_one_key_is_one_constraint_per_entry():
    host = make_host(Matrix)
    assert host.spec.cost_names == ("cost_0", "cost_1")


def test_a_fraction_beside_an_integer_cost_is_not_rounded():
    # SyncVectorEnv alone makes an integer column of the first environment's 0.
    costs = iter([0, 0.7])
    factories = iter([lambda _: {"cost": 0}, lambda _: {"cost": 0.7}])
    host = make_host(lambda: Odd(report=next(factories)), 2, cost_names=["cost"])
    host.reset(seed=0)
    assert np.allclose(host.step(zeros(host)).cost, [[cost] for cost in costs])


def test_metrics_are_the_last_steps_own_and_nan_where_absent():
    for env in (
        partial(Counter, 2),
        SyncVectorEnv([partial(Counter, 2)], autoreset_mode="SameStep"),
    ):
        host = make_host(env, metric_names=["time", "absent"], cost_names=["cost"])
        host.reset(seed=0)
        steps = [host.step(zeros(host)) for _ in range(3)]
        assert [step.metrics["time"].tolist() for step in steps] == [[1], [2], [1]]
        assert np.isnan(steps[0].metrics["absent"]).all()
        assert steps[0].metrics["absent"].dtype == np.float32


def test_the_cost_itself_may_be_a_metric_too():
    host = make_host(Counter(), metric_names=["cost"])
    host.reset(seed=0)
    step = host.step(zeros(host))
    assert (step.cost.tolist(), step.metrics["cost"].tolist()) == ([[1.0]], [1.0])


def test_no_metrics_are_built_when_none_were_named():
    host = make_host(Counter())
    host.reset(seed=0)
    assert host.step(zeros(host)).metrics == {}


@pytest.mark.parametrize(
    ("env", "asked", "length"),
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
def test_the_episode_length_is_the_least_that_is_known(env, asked, length):
    host = make_host(env, cost_fn=lambda *_: 0.0, episode_length=asked)
    assert host.spec.episode_length == length


def test_a_length_that_the_environment_would_cut_is_refused():
    with pytest.raises(
        ValueError, match=r"is 9, but .* after 7 steps by itself. Leave"
    ):
        make_host(lambda: TimeLimit(Counter(100), 7), episode_length=9)


def test_gymnasiums_word_for_the_length_is_told_ours():
    with pytest.raises(ValueError, match=r"Gymnasium's, not .* Pass episode_length=9"):
        make_host("Pendulum-v1", env_kwargs={"max_episode_steps": 9})


def test_the_most_a_step_costs_bounds_what_an_episode_costs():
    env = Odd(step_cost_bound=2.0, episode_length=11)
    assert make_host(env, cost_names=["cost"]).spec.cost_bounds == (22.0,)
    env = Odd(step_cost_bound=2.0, episode_length=11)
    host = make_host(env, cost_names=["cost"], episode_length=5)
    assert host.spec.cost_bounds == (10.0,)


def test_a_vector_environment_may_say_that_it_takes_seeds_one_by_one():
    class Seeded(CounterBatch):
        takes_seeds = True

        def reset(self, *, seed=None, options=None):
            self.seeds = seed
            return super().reset()

    vector = Seeded(2)
    host = make_host(vector, cost_names=["cost"], episode_length=3)
    host.reset(seed=0)
    assert len(set(vector.seeds)) == 2


def test_episode_length_truncates_and_keeps_the_last_observation():
    host = make_host(partial(Counter, 100), episode_length=4, cost_names=["cost"])
    assert transitions(host, 9) == [counted(4, 9, truncates=True)]


def test_names_and_bounds_are_read_from_the_environment_and_may_be_overruled():
    env = Odd(cost_names=("heat",), cost_bound=400.0, metric_names=["time"])
    spec = make_host(env).spec
    assert (spec.cost_names, spec.cost_bounds) == (("heat",), (400.0,))
    assert spec.metric_names == ("time",)
    spec = make_host(env, cost_names=["power"], cost_bound=20, metric_names="x").spec
    assert (spec.cost_names, spec.cost_bounds) == (("power",), (20.0,))
    assert spec.metric_names == ("x",)


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    (tmp_path / "probe_package.py").write_text(
        "import gymnasium, gym_probes\n"
        "gymnasium.register('Probe-v3', gym_probes.Counter, max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        host = make_host("probe_package:Probe-v3", 2)
        assert (host.spec.name, host.spec.episode_length) == ("Probe-v3", 2)
    finally:
        gymnasium.registry.pop("Probe-v3", None)


def test_an_id_with_a_vector_environment_of_its_own_uses_it():
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


def test_a_jax_environment_is_hosted_through_its_id():
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


def test_the_same_seed_starts_the_same_episodes_and_environments_differ():
    host = make_host("Pendulum-v1", 3, cost_fn=lambda *_: 0.0)
    first, again, other = host.reset(seed=0), host.reset(seed=0), host.reset(seed=1)
    assert np.array_equal(first, again)
    starts = np.concatenate([first, other])
    assert len(np.unique(starts, axis=0)) == 6


def walk(host, steps):
    return [host.step(zeros(host)).next_observation.tolist() for _ in range(steps)]


def pace_cost(*step):
    return abs(speed_cost(*step))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_saved_state_goes_on_bit_for_bit(vectorization):
    def make(kind):
        return make_host(
            partial(Stateful, 5),
            2,
            cost_fn=pace_cost,
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


def test_a_saved_state_is_json_once_arrays_are_lists():
    host = make_host(lambda: TimeLimit(Stateful(), 9), cost_names=["cost"])
    host.reset(seed=0)
    host.step(zeros(host))
    json.dumps(host.get_state(), default=lambda array: array.tolist())
    assert host.get_state()["environments"][0]["environment"]["elapsed"] == [1]


def test_a_vector_environment_may_hold_its_own_state():
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
    ids=["offers none", "unknown wrapper", "foreign vector", "not plain"],
)
def test_a_state_that_cannot_be_had_exactly_is_none(env):
    host = make_host(env, cost_names=["cost"])
    host.reset(seed=0)
    assert host.get_state() is None


def test_an_environment_that_was_never_reset_has_no_state():
    assert make_host(Stateful(), cost_names=["cost"]).get_state() is None


def test_an_environment_that_the_user_made_stays_open_when_it_is_refused():
    closed = []
    env = Odd(report=lambda _: {}, close=lambda: closed.append(env))
    with pytest.raises(ValueError, match="no cost"):
        make_host(env)
    assert closed == []


def test_wrappers_of_the_user_stay_in_place():
    host = make_host(NormalizeReward(TimeLimit(Counter(9), 4)), cost_names=["cost"])
    assert host.spec.episode_length == 4
    assert [len(row) for row in transitions(host, 6)] == [6]


def test_a_check_leaves_the_environment_as_new():
    host = make_host("Pendulum-v1", 2, cost_fn=lambda *_: 0.0)
    fresh = make_host("Pendulum-v1", 2, cost_fn=lambda *_: 0.0)
    check_environment(host)
    assert host.steps == 0
    assert np.array_equal(host.reset(seed=5), fresh.reset(seed=5))
    assert walk(host, 3) == walk(fresh, 3)
