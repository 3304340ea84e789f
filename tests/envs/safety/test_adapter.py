"""Seeds, costs, time limits, states and pictures of the Gymnasium environments."""

import importlib.metadata
import itertools
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from orac.envs import safety
from orac.envs.safety.adapter import SafetyEnv
from orac.envs.safety.tasks import stock_ids

pytestmark = pytest.mark.slow
reference = pytest.importorskip("helpers.safety_reference", exc_type=ImportError)
safety.register()


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


POINT = "SafetyPointGoal1-v0"
BUTTON = "SafetyPointButton1-v0"


def rollout(env, seed, steps=30):
    observation, _ = env.reset(seed=seed)
    random = np.random.default_rng(0)
    seen = [observation]
    for _ in range(steps):
        action = random.uniform(env.action_space.low, env.action_space.high)
        seen.append(env.step(action)[0])
    return np.array(seen)


@pytest.mark.parametrize("id", [f"orac/{POINT}", f"orac/{BUTTON}", "SafetyCarPush1-v0"])
def test_the_same_seed_gives_the_same_layout_and_trajectory(id):
    env = gymnasium.make(id)
    first, again = rollout(env, 3), rollout(env, 3)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, rollout(gymnasium.make(id), 3))
    assert not np.array_equal(first[0], rollout(env, 4)[0])


@pytest.mark.parametrize("fast", [True, False])
def test_layouts_follow_each_other_reproducibly_from_the_first_seed(fast):
    def layouts(env):
        yield env.reset(seed=11)[0]
        for _ in range(3):
            yield env.reset()[0]

    first = np.array(list(layouts(SafetyEnv(POINT, fast=fast))))
    again = np.array(list(layouts(SafetyEnv(POINT, fast=fast))))
    np.testing.assert_array_equal(first, again)
    for one, other in itertools.combinations(first, 2):
        assert not np.array_equal(one, other)


def test_without_a_seed_two_environments_differ():
    one, other = SafetyEnv(POINT), SafetyEnv(POINT)
    assert not np.array_equal(one.reset()[0], other.reset()[0])


def test_numpys_global_generator_neither_matters_nor_moves():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    one = SafetyEnv(POINT).reset(seed=5)[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    np.random.seed(1)
    np.testing.assert_array_equal(SafetyEnv(POINT).reset(seed=5)[0], one)


def test_seeds_beyond_32_bits_are_honoured():
    env = SafetyEnv(POINT)
    long, other = env.reset(seed=2**40 + 1)[0], env.reset(seed=2**40 + 2)[0]
    assert not np.array_equal(long, other)
    np.testing.assert_array_equal(env.reset(seed=2**40 + 1)[0], long)


@pytest.mark.parametrize("task", [POINT, BUTTON, "SafetyCarGoal2-v0"])
def test_the_fast_path_and_the_packages_step_agree_behind_the_adapter(task):
    fast, slow = (
        SafetyEnv(task, timestep=0.01),
        SafetyEnv(task, timestep=0.01, fast=False),
    )
    assert (fast.is_fast, slow.is_fast) == (True, False)
    np.testing.assert_allclose(rollout(fast, 1), rollout(slow, 1), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value")
@pytest.mark.parametrize("id", [f"orac/{POINT}", f"orac/{BUTTON}"])
def test_gymnasiums_own_checks_pass(id):
    check_env(gymnasium.make(id).unwrapped, skip_render_check=True)


def test_an_episode_of_the_paper_has_400_steps_of_cost_zero_or_one():
    env = gymnasium.make(f"orac/{BUTTON}")
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


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        ({"max_episode_steps": 450}, 450),
        ({"max_episode_steps": 50}, 50),
        ({"episode_length": 30}, 30),
        ({"episode_length": 30, "max_episode_steps": 40}, 30),
        ({"episode_length": 40, "max_episode_steps": 30}, 30),
    ],
)
def test_an_id_ends_its_episodes_where_it_was_told_to(asked, steps):
    assert steps_until_truncated(gymnasium.make(f"orac/{POINT}", **asked)) == steps


def test_an_id_refuses_a_length_that_its_limit_would_cut():
    with pytest.raises(ValueError, match=r"is 600, but .* max_episode_steps=600 in"):
        gymnasium.make(f"orac/{POINT}", episode_length=600)


def test_an_environment_ends_itself_where_its_length_says():
    env = SafetyEnv(POINT, episode_length=2)
    env.reset(seed=0)
    assert env.step(np.zeros(2))[3] is False
    assert env.step(np.zeros(2))[3] is True
    assert (env.episode_length, env.cost_bound) == (2, 2.0)
    with pytest.raises(RuntimeError, match="The episode has ended"):
        env.step(np.zeros(2))


@pytest.mark.parametrize("action", [np.zeros(3), [np.nan, 0.0], 1.0])
def test_an_action_that_is_not_one_is_refused(action):
    env = SafetyEnv(POINT)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"must be \(2,\) finite numbers"):
        env.step(action)


def test_insisting_on_the_fast_path_of_an_unknown_task_says_why_not():
    with pytest.raises(ValueError, match=r"does not run SafetyPointPush1-v0: it knows"):
        SafetyEnv("SafetyPointPush1-v0", fast=True)
    with pytest.raises(ValueError, match="does not run SafetyHopperVelocity-v1"):
        SafetyEnv("SafetyHopperVelocity-v1", fast=True)


def test_a_task_with_a_setting_of_its_own_is_left_to_the_package():
    from orac.envs.safety.fast_path_support import unknown

    task = reference.untouched(POINT).task
    assert unknown(task) is None
    task.lidar_conf.alias = False
    assert unknown(task) == "lidar_conf.alias is False, and it knows True"


@pytest.mark.parametrize(
    ("distribution", "version", "reason"),
    [
        ("safety-gymnasium", "1.2.0", "it knows version 1.0.0, not 1.2.0"),
        ("mujoco", "3.3.5", "it needs MuJoCo 3.3.6 or newer, not 3.3.5"),
    ],
)
def test_versions_it_was_not_compared_with_are_left_to_the_package(
    monkeypatch, distribution, version, reason
):
    from orac.envs.safety.fast_path_support import unknown

    task, installed = reference.untouched(POINT).task, importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: version if name == distribution else installed(name),
    )
    assert unknown(task) == reason


@pytest.mark.parametrize(
    "task", [BUTTON, "SafetyCarGoal2-v0", "SafetyPointPush1-v0", "SafetyAntVelocity-v1"]
)
def test_a_state_continues_exactly_in_a_fresh_environment(task):
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


def test_there_is_no_state_before_the_first_reset():
    with pytest.raises(RuntimeError, match=r"no state before the first reset"):
        SafetyEnv(POINT).get_state()


@pytest.mark.filterwarnings("ignore:.*is out of date.*:DeprecationWarning")
@pytest.mark.parametrize("id", [id for id in stock_ids() if "Vision" not in id])
def test_every_task_of_the_package_can_be_made_and_stepped(id):
    env = gymnasium.make(id)
    env.reset(seed=0)
    env.action_space.seed(0)
    observation, reward, _, _, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert np.isfinite(reward)
    assert info["cost"] in (0.0, 1.0)


def test_what_the_package_runs_is_the_packages_to_the_last_bit():
    for name in ("SafetyPointPush2-v0", "SafetyDoggoCircle1-v0"):
        theirs, ours = reference.untouched(name), SafetyEnv(name)
        observation, _ = theirs.reset(seed=2)
        np.testing.assert_array_equal(ours.reset(seed=2)[0], observation)
        random = np.random.default_rng(0)
        for _ in range(20):
            action = random.uniform(-1, 1, theirs.action_space.shape)
            result, step = theirs.step(action), ours.step(action)
            np.testing.assert_array_equal(step[0], result[0])
            assert step[1:3] == (result[1], result[3])
            assert step[4]["cost"] == result[2]


@pytest.mark.parametrize("camera", ["above", "track", "vision", "fixedfar"])
def test_a_picture_is_drawn_without_a_screen(camera, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    env = SafetyEnv(
        POINT, render_mode="rgb_array", camera=camera, width=160, height=120
    )
    env.reset(seed=0)
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((120, 160, 3), np.uint8)
    assert picture.std() > 10
    env.reset(seed=1)
    assert not np.array_equal(env.render(), picture)
    env.close()


def test_a_picture_after_a_reset_is_that_of_a_fresh_environment():
    """Hazards of a Fading task fade in the model itself, and a reset makes a new one."""

    def look(env):
        env.reset(seed=3)
        first, seen = env.render(), env.step(np.zeros(2))[0]
        return first, env.render(), seen["vision"]

    fresh, used = (
        SafetyEnv("SafetyPointFadingHard2Vision-v0", render_mode="rgb_array")
        for _ in range(2)
    )
    used.reset(seed=8)
    used.render()
    for _ in range(40):
        used.step(np.zeros(2))
    for new, old in zip(look(fresh), look(used), strict=True):
        np.testing.assert_array_equal(new, old)
    fresh.close()
    used.close()


def test_a_red_ball_marks_a_step_that_cost():
    env = SafetyEnv(BUTTON, render_mode="rgb_array", timestep=0.006)
    observation, _ = env.reset(seed=0)
    act, info = reference.driver(BUTTON), {"cost": 0.0}
    while not info["cost"]:
        observation, _, _, _, info = env.step(act(observation))
    alarmed = env.render().astype(int)
    env._cost = 0.0
    calm = env.render().astype(int)
    env.close()
    changed = np.abs(alarmed - calm).sum(axis=-1) > 30
    assert 20 < changed.sum() < 20_000
    assert (alarmed - calm)[changed][:, 0].mean() > (alarmed - calm)[changed][
        :, 2
    ].mean()


def test_an_unknown_camera_is_told_the_known_ones():
    env = SafetyEnv(POINT, render_mode="rgb_array", camera="abvoe")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"'above', .*'track'.* got 'abvoe'"):
        env.render()


def test_an_agent_that_sees_gets_pictures():
    env = gymnasium.make("SafetyPointGoal1Vision-v0")
    observation, _ = env.reset(seed=0)
    assert observation["vision"].shape == (256, 256, 3)
    assert observation["vision"].std() > 10
    env.close()
