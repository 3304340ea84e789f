"""Tests of `SafetyEnv` and `SafetyVectorEnv`: arguments, seeds, costs, limits, states.

The tests of arguments run without the package; those of environments are slow.
"""

import functools
import itertools
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from orac.envs import safety
from orac.envs.gym_adapter.make import make_host
from orac.envs.safety.env import (
    SafetyEnv,
    SafetyVectorEnv,
    checked_setting,
    episode_limit,
)

safety.register()

POINT = "SafetyPointGoal1-v0"
BUTTON = "SafetyPointButton1-v0"
ID = f"orac/{BUTTON}"
SEEDS = [5, 6, 7]
LENGTH = 20

STEPS = r"must be a whole number of at least 1, got .* Leave it out"
SECONDS = r"timestep must be above 0, got .* in seconds.* Leave it out"
INVALID = [
    ({"episode_length": 0}, f"episode_length {STEPS}"),
    ({"episode_length": -3}, f"episode_length {STEPS}"),
    ({"episode_length": True}, f"episode_length {STEPS}"),
    ({"time_limit": 0}, f"time_limit {STEPS}"),
    ({"timestep": 0}, SECONDS),
    ({"timestep": -1.0}, SECONDS),
    ({"timestep": float("nan")}, SECONDS),
    ({"timestep": float("inf")}, SECONDS),
    ({"width": 0}, r"width must be a whole number of at least 1, got 0\..* pixels"),
    ({"render_mode": "human"}, "render_mode must be None or 'rgb_array'"),
]
INVALID_VECTOR = [
    ({"num_envs": 0}, "num_envs must be a whole number of at least 1, got 0"),
    ({"max_episode_steps": -1}, f"max_episode_steps {STEPS}"),
    (
        {"episode_length": 50, "max_episode_steps": 60, "time_limit": 400},
        "episode_length is 50, but max_episode_steps is 60.*leave one of them out",
    ),
]


@pytest.mark.parametrize(("settings", "message"), INVALID)
def test_invalid_arguments_raise_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        SafetyEnv(POINT, **settings)


@pytest.mark.parametrize(("settings", "message"), INVALID + INVALID_VECTOR)
def test_invalid_arguments_of_a_vector_environment_raise_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        SafetyVectorEnv(**{"num_envs": 2, "task": POINT, **settings})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("fast", "yes", r"fast must be True, False or None, got 'yes'\. True requires"),
        ("fast", 1, "fast must be True, False or None, got 1"),
        ("episode_length", 2.5, f"episode_length {STEPS}"),
        ("timestep", "short", SECONDS),
        ("height", 1.5, r"height must be a whole number of at least 1, got 1\.5"),
        ("width", None, "width must be a whole number of at least 1, got None"),
    ],
)
def test_arguments_of_another_type_raise_an_error(name, value, message):
    with pytest.raises(ValueError, match=message):
        checked_setting(name, value)


def test_arguments_become_plain_python_values():
    assert type(checked_setting("episode_length", np.int64(7))) is int
    assert type(checked_setting("timestep", np.float32(0.5))) is float
    assert type(checked_setting("fast", np.True_)) is bool
    assert checked_setting("timestep", None) is None


def test_an_episode_length_above_the_limit_of_an_id_raises_an_error():
    with pytest.raises(
        ValueError, match=r"is 600, but .* after 400 .*max_episode_steps"
    ):
        SafetyEnv(POINT, episode_length=600, time_limit=400)


@pytest.mark.parametrize(
    ("episode_length", "max_episode_steps", "time_limit", "limit"),
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
def test_an_explicit_episode_limit_wins(
    episode_length, max_episode_steps, time_limit, limit
):
    assert episode_limit(episode_length, max_episode_steps, time_limit) == limit


@pytest.fixture(scope="module")
def reference():
    return pytest.importorskip("helpers.safety_reference", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _working_directory(monkeypatch, tmp_path):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


needs_package = pytest.mark.skipif(bool(safety.missing()), reason="needs the package")


def slow(test):
    return pytest.mark.slow(needs_package(test))


@functools.cache
def shared_env(task, index=0, **settings):
    """Return an environment that all tests share; they reset it with a seed first."""
    return SafetyEnv(task, **settings)


@functools.cache
def shared_make(id, index=0):
    return gymnasium.make(id)


def rollout(env, seed, steps=30):
    observation, _ = env.reset(seed=seed)
    random = np.random.default_rng(0)
    observations = [observation]
    for _ in range(steps):
        action = random.uniform(env.action_space.low, env.action_space.high)
        observations.append(env.step(action)[0])
    return np.array(observations)


@slow
@pytest.mark.parametrize("id", [f"orac/{POINT}", ID, "SafetyCarPush1-v0"])
def test_the_same_seed_gives_the_same_layout_and_trajectory(id):
    env = shared_make(id)
    first, again = rollout(env, 3), rollout(env, 3)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, rollout(shared_make(id, index=1), 3))
    assert not np.array_equal(first[0], rollout(env, 4)[0])


@slow
@pytest.mark.parametrize("fast", [True, False])
def test_a_seed_determines_the_whole_sequence_of_layouts(fast):
    def layouts(env):
        yield env.reset(seed=11)[0]
        for _ in range(3):
            yield env.reset()[0]

    first = np.array(list(layouts(SafetyEnv(POINT, fast=fast))))
    again = np.array(list(layouts(shared_env(POINT, fast=fast))))
    np.testing.assert_array_equal(first, again)
    for one, other in itertools.combinations(first, 2):
        assert not np.array_equal(one, other)


@slow
def test_two_environments_without_a_seed_differ():
    one, other = SafetyEnv(POINT), SafetyEnv(POINT)
    assert not np.array_equal(one.reset()[0], other.reset()[0])


@slow
def test_numpys_global_generator_is_neither_used_nor_changed():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    one = SafetyEnv(POINT).reset(seed=5)[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    np.random.seed(1)
    np.testing.assert_array_equal(SafetyEnv(POINT).reset(seed=5)[0], one)


@slow
def test_seeds_longer_than_32_bits_work():
    env = shared_env(POINT)
    long, other = env.reset(seed=2**40 + 1)[0], env.reset(seed=2**40 + 2)[0]
    assert not np.array_equal(long, other)
    np.testing.assert_array_equal(env.reset(seed=2**40 + 1)[0], long)


@slow
@pytest.mark.parametrize("task", [POINT, BUTTON, "SafetyCarGoal2-v0"])
def test_the_fast_path_and_the_packages_code_agree(task):
    fast = SafetyEnv(task, timestep=0.01)
    package = SafetyEnv(task, timestep=0.01, fast=False)
    assert (fast.is_fast, package.is_fast) == (True, False)
    np.testing.assert_allclose(
        rollout(fast, 1), rollout(package, 1), rtol=0, atol=1e-12
    )


@slow
@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value")
@pytest.mark.parametrize("id", [f"orac/{POINT}", ID])
def test_gymnasiums_own_checks_pass(id):
    check_env(gymnasium.make(id).unwrapped, skip_render_check=True)


@slow
def test_an_episode_of_the_paper_has_400_steps_with_costs_of_zero_or_one(reference):
    env = shared_make(ID)
    observation, info = env.reset(seed=0)
    assert observation.shape == (76,)
    assert info == {"cost": 0.0, "goal_met": False, "goals": 0.0}
    bare, act, costs = env.unwrapped, reference.driver(BUTTON), []
    assert (bare.step_cost_bound, bare.cost_bound) == (1.0, None)
    assert (bare.cost_names, bare.metric_names) == (("cost",), ("goals",))
    for step in range(400):
        observation, _, terminated, truncated, info = env.step(act(observation))
        costs.append(info["cost"])
        assert truncated == (step == 399)
        assert not terminated
    assert set(costs) == {0.0, 1.0}
    assert info["goals"] > 0


def steps_until_truncated(env):
    env.reset(seed=0)
    for steps in itertools.count(1):
        if env.step(np.zeros(2))[3]:
            return steps


@slow
@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"max_episode_steps": 450}, 450),
        ({"max_episode_steps": 50}, 50),
        ({"episode_length": 30}, 30),
        ({"episode_length": 30, "max_episode_steps": 40}, 30),
        ({"episode_length": 40, "max_episode_steps": 30}, 30),
    ],
)
def test_episodes_of_an_id_end_at_the_requested_limit(limits, steps):
    assert steps_until_truncated(gymnasium.make(f"orac/{POINT}", **limits)) == steps


@slow
def test_gymnasium_make_refuses_an_episode_length_above_the_limit():
    with pytest.raises(ValueError, match=r"is 600, but .* max_episode_steps=600 in"):
        gymnasium.make(f"orac/{POINT}", episode_length=600)


@slow
def test_an_environment_truncates_at_its_own_episode_length():
    env = SafetyEnv(POINT, episode_length=2)
    env.reset(seed=0)
    assert env.step(np.zeros(2))[3] is False
    assert env.step(np.zeros(2))[3] is True
    assert (env.episode_length, env.cost_bound) == (2, 2.0)
    with pytest.raises(RuntimeError, match="The episode has ended"):
        env.step(np.zeros(2))


@slow
@pytest.mark.parametrize("action", [np.zeros(3), [np.nan, 0.0], 1.0])
def test_an_invalid_action_raises_an_error(action):
    env = shared_env(POINT)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"finite numbers of shape \(2,\)"):
        env.step(action)


@slow
@pytest.mark.parametrize(
    "task", [BUTTON, "SafetyCarGoal2-v0", "SafetyPointPush1-v0", "SafetyAntVelocity-v1"]
)
def test_a_state_continues_exactly_in_a_new_environment(task):
    env, fresh = SafetyEnv(task), SafetyEnv(task)
    rollout(env, 6, steps=7)
    env.reset()
    random = np.random.default_rng(1)
    actions = random.uniform(-1, 1, (12, *env.action_space.shape))
    for action in actions[:5]:
        env.step(action)
    state = json.loads(json.dumps(env.get_state(), default=np.ndarray.tolist))
    fresh.set_state(state)
    for action in actions[5:]:
        ours, theirs = fresh.step(action), env.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
    np.testing.assert_array_equal(fresh.reset()[0], env.reset()[0])


@slow
def test_there_is_no_state_before_the_first_reset():
    with pytest.raises(RuntimeError, match=r"no state before the first reset"):
        SafetyEnv(POINT).get_state()


def make_vector(num_envs=3, **settings):
    limit = {} if "episode_length" in settings else {"max_episode_steps": LENGTH}
    return gymnasium.make_vec(
        ID, num_envs, vectorization_mode="vector_entry_point", **{**limit, **settings}
    )


@functools.cache
def shared_vector():
    """Return a vector environment that all tests share; they reset it first."""
    return make_vector()


def random_actions(steps, num_envs=3):
    return np.random.default_rng(0).uniform(-1, 1, (steps, num_envs, 2))


def single_envs():
    make = functools.partial(SafetyEnv, BUTTON, timestep=0.006, episode_length=LENGTH)
    return [make] * len(SEEDS)


@pytest.fixture(scope="module")
def expected():
    """Return the results of Gymnasium's own vector environment over two episodes."""
    vector = SyncVectorEnv(single_envs(), autoreset_mode=AutoresetMode.SAME_STEP)
    first, _ = vector.reset(seed=SEEDS)
    results = [vector.step(action) for action in random_actions(2 * LENGTH + 5)]
    vector.close()
    return first, results


def check_infos(ours, theirs):
    for name in ("cost", "_cost", "goal_met", "goals"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert ("final_info" in ours) == ("final_info" in theirs)
    if "final_info" in ours:
        np.testing.assert_array_equal(ours["_final_info"], theirs["_final_info"])
        np.testing.assert_array_equal(
            np.stack(ours["final_obs"]), np.stack(theirs["final_obs"])
        )
        for name in ("cost", "_cost", "goals"):
            np.testing.assert_array_equal(
                ours["final_info"][name], theirs["final_info"][name]
            )


@slow
def test_a_vector_environment_gives_the_results_of_single_environments():
    """Two episodes and a bit: an ended episode restarts within the same step."""
    vector, envs = shared_vector(), [make() for make in single_envs()]
    observations, _ = vector.reset(seed=SEEDS)
    firsts = [env.reset(seed=seed)[0] for env, seed in zip(envs, SEEDS, strict=True)]
    np.testing.assert_array_equal(observations, firsts)
    for count, actions in enumerate(random_actions(2 * LENGTH + 5), start=1):
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        ended = count % LENGTH == 0
        assert ("final_info" in infos) == ended
        assert not terminated.any()
        assert (truncated == ended).all()
        for row, (env, action) in enumerate(zip(envs, actions, strict=True)):
            observation, reward, _, _, info = env.step(action)
            assert rewards[row] == reward
            step_infos = infos["final_info"] if ended else infos
            for name in ("cost", "goal_met", "goals"):
                assert step_infos[name][row] == info[name]
            if ended:
                np.testing.assert_array_equal(infos["final_obs"][row], observation)
                observation, info = env.reset()
                assert infos["cost"][row] == infos["goals"][row] == 0.0
            np.testing.assert_array_equal(observations[row], observation)


@slow
def test_a_vector_environment_gives_the_results_of_gymnasiums(expected):
    first, results = expected
    observation, _ = shared_vector().reset(seed=SEEDS)
    np.testing.assert_array_equal(observation, first)
    for action, theirs in zip(random_actions(2 * LENGTH + 5), results, strict=True):
        ours = shared_vector().step(action)
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        check_infos(ours[4], theirs[4])


@slow
def test_gymnasiums_asynchronous_vector_environment_gives_the_same(expected):
    first, results = expected
    vector = AsyncVectorEnv(
        single_envs(), context="spawn", autoreset_mode=AutoresetMode.SAME_STEP
    )
    try:
        np.testing.assert_array_equal(vector.reset(seed=SEEDS)[0], first)
        for action, theirs in zip(random_actions(5), results[:5], strict=True):
            ours = vector.step(action)
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[4]["cost"], theirs[4]["cost"])
    finally:
        vector.close()


@slow
def test_a_single_seed_gives_environment_i_the_seed_plus_i(expected):
    # SEEDS are consecutive, so they equal the single seed of the first.
    np.testing.assert_array_equal(shared_vector().reset(seed=5)[0], expected[0])


@slow
def test_learners_with_different_seeds_share_no_layout():
    host = make_host(ID, 3)
    first, other = (host.reset(seed) for seed in (0, 1))
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 6


@slow
def test_one_seed_gives_every_environment_its_own_layout():
    vector = shared_vector()
    first, _ = vector.reset(seed=1)
    again, _ = vector.reset(seed=1)
    other, _ = vector.reset(seed=4)
    np.testing.assert_array_equal(first, again)
    rows = np.concatenate([first, other])
    assert len(np.unique(rows, axis=0)) == 6


@slow
def test_a_vector_environment_declares_its_metadata():
    vector = shared_vector()
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (vector.episode_length, vector.cost_bound) == (LENGTH, float(LENGTH))
    assert (vector.cost_names, vector.metric_names) == (("cost",), ("goals",))
    assert vector.step_cost_bound == 1.0
    assert vector.observation_space.shape == (3, 76)
    assert vector.spec.id == ID


@slow
@pytest.mark.parametrize(
    ("limits", "length"),
    [
        ({}, 400),
        ({"episode_length": 30}, 30),
        ({"episode_length": 600}, 600),
        ({"max_episode_steps": 600}, 600),
    ],
)
def test_an_explicit_length_of_a_vector_environment_wins(limits, length):
    vector = gymnasium.make_vec(
        ID, 1, vectorization_mode="vector_entry_point", **limits
    )
    assert (vector.episode_length, vector.cost_bound) == (length, float(length))


@slow
@pytest.mark.parametrize("mode", ["vector", "sync"])
@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 400),
        ({"episode_length": 600}, 600),
        ({"episode_length": 30}, 30),
        ({"env_kwargs": {"episode_length": 30}}, 30),
    ],
)
def test_a_learner_gets_the_requested_episode_length(mode, options, length):
    spec = make_host(ID, 1, vectorization=mode, **options).spec
    assert (spec.episode_length, spec.cost_bounds) == (length, (float(length),))


@slow
def test_a_learner_may_lengthen_episodes_by_the_environments_own_argument():
    env_kwargs = {"episode_length": 600}
    assert make_host(ID, 2, env_kwargs=env_kwargs).spec.episode_length == 600
    with pytest.raises(ValueError, match=r"is 600, but .* episode_length=600 in orac"):
        make_host(ID, 2, env_kwargs=env_kwargs, vectorization="sync")


@slow
@pytest.mark.parametrize("mode", ["vector", "sync"])
def test_two_different_episode_lengths_raise_an_error(mode):
    options = {"episode_length": 600, "env_kwargs": {"episode_length": 30}}
    with pytest.raises(ValueError, match=r"leave one|Leave episode_length out"):
        make_host(ID, 1, vectorization=mode, **options)


@slow
def test_a_state_of_a_vector_environment_continues_in_a_new_one():
    vector, other = shared_vector(), make_vector()
    vector.reset(seed=SEEDS)
    for action in random_actions(LENGTH + 3):
        vector.step(action)
    state = json.loads(json.dumps(vector.get_state(), default=np.ndarray.tolist))
    other.set_state(state)
    assert json.loads(json.dumps(other.get_state(), default=np.ndarray.tolist)) == state
    for action in random_actions(LENGTH):
        ours, theirs = other.step(action), vector.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        check_infos(ours[4], theirs[4])
    with pytest.raises(ValueError, match="state belongs to 2 environments"):
        other.set_state({"environments": state["environments"][:2]})


@slow
def test_invalid_actions_are_refused_before_any_environment_steps(expected):
    _, results = expected
    vector = shared_vector()
    vector.reset(seed=SEEDS)
    for bad in (np.zeros((2, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="finite numbers of shape"):
            vector.step(bad)
    ours = vector.step(random_actions(1)[0])
    np.testing.assert_array_equal(ours[0], results[0][0])


@slow
def test_the_former_option_num_processes_is_ignored_with_a_warning(expected):
    with pytest.warns(UserWarning, match="num_processes is ignored"):
        vector = make_vector(num_processes=2)
    np.testing.assert_array_equal(vector.reset(seed=SEEDS)[0], expected[0])
