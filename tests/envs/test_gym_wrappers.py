"""Tests of the Gymnasium wrappers of JAX environments, single and vector."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from helpers.toy_envs import Counter
from orac.envs.gym_wrappers import JaxEnv, JaxVectorEnv
from orac.envs.maze.env import GuardedMaze

MAZE = "orac/GuardedMaze-v0"
RIGHT = np.array([1, 0], np.float32)


@pytest.mark.parametrize("parameters", [{}, {"normalize_obs": True, "map": "16x16"}])
def test_maze_passes_the_environment_checker_of_gymnasium(parameters):
    check_env(gymnasium.make(MAZE, render_mode="rgb_array", **parameters).unwrapped)


def test_keyword_arguments_reach_the_maze():
    env = gymnasium.make(
        MAZE, guard_probability=0.1, pink_cell=[6, 3], cost_mode="entry", time_limit=7
    )
    expected = GuardedMaze(0.1, pink_cell=(6, 3), cost_mode="entry", time_limit=7)
    assert env.unwrapped.env == expected
    vector = gymnasium.make_vec(MAZE, num_envs=2, guard_probability=0.1)
    assert vector.unwrapped.env == GuardedMaze(0.1)


def test_reset_options_place_the_agent_and_the_guard():
    env = gymnasium.make(MAZE, action_noise=0.0)
    observation, info = env.reset(seed=0, options={"xy": (4.0, 1.0), "guard": True})
    assert (observation.tolist(), info) == ([4, 1], {})
    observation, reward, terminated, truncated, info = env.step(RIGHT)
    assert (observation.tolist(), reward) == ([5, 1], -1.0)
    assert (terminated, truncated) == (False, False)
    assert info == {"cost": 20.0, "path": -1, "moved": True}
    assert type(info["cost"]) is float


def test_guard_and_totals_are_in_the_info_of_the_last_step_only():
    env = gymnasium.make(MAZE, action_noise=0.0)
    env.reset(seed=0, options={"xy": (4.0, 1.0), "guard": True})
    env.step(RIGHT)
    env.step(RIGHT)
    *_, terminated, _, info = env.step(np.array([0, 1], np.float32))
    assert terminated
    assert info["guard_present"] is True
    totals = {name: info[f"episode_{name}"] for name in ("return", "cost", "length")}
    assert totals == {"return": 14.0, "cost": 20.0, "length": 3}


def test_episode_depends_on_the_seed_only():
    def episode(seed):
        env = gymnasium.make(MAZE)
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(0.3 * RIGHT)[0] for _ in range(5)]
        seen.append(env.reset()[0])
        return np.array(seen)

    np.testing.assert_array_equal(episode(3), episode(3))
    assert (episode(3)[0] != episode(4)[0]).all()
    assert (episode(3)[0] != episode(3)[-1]).all()


def test_noise_differs_from_step_to_step():
    env = gymnasium.make(MAZE)
    places = [env.reset(seed=1, options={"xy": (2.5, 2.5)})[0]]
    places += [env.step(np.zeros(2, np.float32))[0] for _ in range(4)]
    moves = np.diff(np.array(places), axis=0)
    assert len({tuple(move) for move in moves.tolist()}) == 4


def test_step_without_reset_raises():
    env = JaxEnv(Counter())
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"Call reset\(\) first"):
        env.step(np.zeros(1))
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1))
    with pytest.raises(gymnasium.error.ResetNeeded, match="the last one has ended"):
        env.step(np.zeros(1))
    with pytest.raises(gymnasium.error.ResetNeeded, match="before step"):
        JaxVectorEnv(Counter(), 2).step(np.zeros((2, 1)))


def test_several_constraints_give_an_array_of_costs():
    env = JaxEnv(Counter(num_costs=2))
    env.reset(seed=0)
    infos = [env.step(np.array([0.5]))[-1] for _ in range(3)]
    assert [info["cost"].tolist() for info in infos] == [[1, 10], [2, 20], [3, 30]]
    assert infos[-1]["episode_cost"].tolist() == [6, 60]
    assert "secret" in infos[-1]
    assert "secret" not in infos[1]
    vector = JaxVectorEnv(Counter(num_costs=2), 3)
    vector.reset(seed=0)
    *_, info = vector.step(np.zeros((3, 1)))
    assert info["cost"].tolist() == [[1, 10]] * 3


@pytest.mark.parametrize("make", [JaxEnv, lambda env: JaxVectorEnv(env, 2)])
def test_wrapper_has_the_metadata_of_its_environment(make):
    wrapper = make(Counter(num_costs=2))
    assert wrapper.episode_length == 3
    assert wrapper.cost_names == ("first", "second")
    assert wrapper.cost_bound == (6.0, 60.0)
    assert wrapper.metric_names == ("count", "secret")


def test_vector_restarts_in_the_same_step_and_reports_the_last_observation():
    vector = JaxVectorEnv(Counter(), 4)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    first, info = vector.reset(seed=2)
    assert info == {}
    for count in (1, 2):
        observation, _, terminated, truncated, info = vector.step(np.ones((4, 1)))
        np.testing.assert_array_equal(observation, first + count)
        assert not (terminated | truncated).any()
        assert "final_obs" not in info
        assert "secret" not in info
    observation, reward, terminated, truncated, info = vector.step(np.ones((4, 1)))
    assert (terminated ^ truncated).all()
    np.testing.assert_array_equal(np.stack(info["final_obs"]), first + 3)
    np.testing.assert_array_equal(observation % 100, 0)
    assert info["_final_obs"].all()
    assert reward.tolist() == [1, 1, 1, 1]
    final = info["final_info"]
    assert final["episode_length"].tolist() == [3] * 4
    assert final["episode_return"].tolist() == [3] * 4
    assert final["episode_cost"].tolist() == [1 + 2 + 3] * 4
    np.testing.assert_array_equal(final["secret"], first[:, 0])
    assert final["cost"].tolist() == info["cost"].tolist() == [3] * 4


def test_vector_masks_mark_the_episodes_that_ended():
    vector = gymnasium.make_vec(MAZE, num_envs=3, action_noise=0.0)
    places = np.array([(6, 1), (1, 1), (4, 1)], np.float32)
    guards = np.array([False, True, True])
    vector.reset(seed=0, options={"xy": places, "guard": guards})
    actions = np.array([(0, 1), (0, 1), (1, 0)], np.float32)
    observation, _, terminated, _, info = vector.step(actions)
    assert terminated.tolist() == [True, False, False]
    assert info["_final_obs"].tolist() == [True, False, False]
    assert info["final_obs"][0].tolist() == [6, 2]
    assert info["final_obs"][1] is None
    assert info["final_info"]["_guard_present"].tolist() == [True, False, False]
    assert (observation[0] != [6, 2]).any()
    assert observation[1:].tolist() == [[1, 2], [5, 1]]
    assert info["cost"].tolist() == [0, 0, 20]
    # The totals of a restarted maze start at zero, those of the others continue.
    for _ in range(99):
        *_, info = vector.step(np.zeros((3, 2), np.float32))
        if "final_info" in info:
            break
    assert info["final_info"]["episode_length"].tolist()[1:] == [100, 100]
    assert info["final_info"]["_episode_length"].tolist() == [False, True, True]
    assert info["final_info"]["episode_cost"].tolist()[1:] == [0, 20]


def test_vector_depends_on_the_seed_only():
    def run(seed):
        vector = gymnasium.make_vec(MAZE, num_envs=5)
        seen = [vector.reset(seed=seed)[0]]
        seen += [vector.step(np.full((5, 2), 0.5, np.float32))[0] for _ in range(30)]
        seen.append(vector.reset()[0])
        return np.array(seen)

    np.testing.assert_array_equal(run(1), run(1))
    assert (run(1)[0] != run(2)[0]).all()
    assert (run(1)[0] != run(1)[-1]).all()


@pytest.mark.parametrize("make", [GuardedMaze, Counter])
def test_list_of_seeds_starts_each_environment_from_its_seed(make):
    single, vector = JaxEnv(make()), JaxVectorEnv(make(), 3)
    seeds = [7, 3, 7]
    first, _ = vector.reset(seed=seeds)
    expected = np.stack([single.reset(seed=seed)[0] for seed in seeds])
    np.testing.assert_array_equal(first, expected)
    reversed_start, _ = vector.reset(seed=seeds[::-1])
    np.testing.assert_array_equal(reversed_start, expected[::-1])


def test_list_of_seeds_determines_the_later_steps_too():
    def run(seeds):
        vector = gymnasium.make_vec(MAZE, num_envs=2)
        seen = [vector.reset(seed=seeds)[0]]
        seen += [vector.step(np.zeros((2, 2), np.float32))[0] for _ in range(3)]
        return np.array([*seen, vector.reset()[0]])

    np.testing.assert_array_equal(run([1, 2]), run([1, 2]))
    assert (run([1, 2])[1:] != run([1, 3])[1:]).all()


def test_seed_of_none_in_a_list_is_drawn():
    vector = JaxVectorEnv(GuardedMaze(), 2)
    vector.reset(seed=0)
    first, other = (vector.reset(seed=[5, None])[0] for _ in range(2))
    np.testing.assert_array_equal(first[0], other[0])


def test_list_of_seeds_of_another_length_raises():
    with pytest.raises(ValueError, match=r"one entry per environment \(2\), got 3"):
        JaxVectorEnv(Counter(), 2).reset(seed=[1, 2, 3])


def test_only_environments_with_render_declare_a_render_mode():
    assert JaxEnv(GuardedMaze()).metadata["render_modes"] == ["rgb_array"]
    for wrapper in (JaxEnv(Counter()), JaxVectorEnv(Counter(), 2)):
        assert wrapper.metadata["render_modes"] == []


def test_vector_works_with_the_vector_wrappers_of_gymnasium():
    vector = gymnasium.make_vec(MAZE, num_envs=4, time_limit=5)
    assert vector.observation_space.shape == (4, 2)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
    observation, _ = wrapped.reset(seed=0)
    assert observation in wrapped.observation_space
    for _ in range(5):
        observation, *_, info = wrapped.step(np.zeros((4, 2), np.float32))
        assert observation in wrapped.observation_space
    assert info["episode"]["l"].tolist() == [5, 5, 5, 5]
    assert wrapped.return_queue[0] == -5


def test_gymnasium_can_vectorise_single_mazes():
    vector = gymnasium.make_vec(MAZE, num_envs=2, vectorization_mode="sync")
    vector.reset(seed=0)
    *_, info = vector.step(np.zeros((2, 2), np.float32))
    assert info["cost"].shape == (2,)


def test_single_and_vector_wrapper_can_be_rendered():
    env = gymnasium.make(MAZE, render_mode="rgb_array")
    env.reset(seed=0, options={"xy": (1.0, 1.0)})
    image = env.render()
    assert (image.dtype, image.shape) == (np.uint8, (320, 320, 3))
    vector = gymnasium.make_vec(MAZE, num_envs=2, render_mode="rgb_array")
    vector.reset(seed=0, options={"xy": (1.0, 1.0)})
    images = vector.render()
    assert len(images) == 2
    np.testing.assert_array_equal(images[0], image)
    assert JaxVectorEnv(Counter(), 2).render() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: JaxEnv(GuardedMaze(), "human"), "must be None or 'rgb_array'"),
        (
            lambda: JaxEnv(Counter(), "rgb_array"),
            "render_mode of Counter must be None, got",
        ),
        (
            lambda: JaxVectorEnv(Counter(), 0),
            "num_envs must be a whole number of at least 1",
        ),
        (lambda: JaxEnv(Counter()).reset(options={"xy": 1}), "takes no reset options"),
        (lambda: started().step(np.zeros(3)), r"finite and of shape \(2,\), got \[0"),
        (lambda: started().step(np.array([0, np.nan])), "must be finite"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def started():
    env = JaxEnv(GuardedMaze())
    env.reset(seed=0)
    return env


def test_equal_environments_share_one_compilation(monkeypatch):
    traces = []
    reset, step = GuardedMaze.reset, GuardedMaze.step
    monkeypatch.setattr(
        GuardedMaze, "reset", lambda *a: [traces.append("reset"), reset(*a)][1]
    )
    monkeypatch.setattr(
        GuardedMaze, "step", lambda *a: [traces.append("step"), step(*a)][1]
    )
    for seed in range(3):
        env = JaxEnv(GuardedMaze(time_limit=17))
        env.reset(seed=seed)
        for _ in range(3):
            env.step(np.zeros(2))
    assert traces == ["reset", "step"]
