"""Environments side by side: Gymnasium's vector environments, ours, and subprocesses."""

import json
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from orac.envs import safety
from orac.envs.gym_adapter.make import make_host
from orac.envs.safety import vector as vector_room
from orac.envs.safety.adapter import SafetyEnv
from orac.envs.safety.vector import SafetyVectorEnv

pytestmark = pytest.mark.slow
pytest.importorskip("helpers.safety_reference", exc_type=ImportError)
safety.register()

ID = "orac/SafetyPointButton1-v0"
SEEDS = [5, 6, 7]
LENGTH = 20


def make_vector(num_envs=3, **settings):
    return gymnasium.make_vec(
        ID,
        num_envs,
        vectorization_mode="vector_entry_point",
        max_episode_steps=LENGTH,
        **settings,
    )


def short(seeds=SEEDS):
    task = gymnasium.spec(ID).kwargs["task"]
    return [partial(SafetyEnv, task, timestep=0.006, episode_length=LENGTH)] * len(
        seeds
    )


def actions(steps, num_envs=3):
    return np.random.default_rng(0).uniform(-1, 1, (steps, num_envs, 2))


@pytest.fixture(scope="module")
def expected():
    """Gymnasium's own synchronous vector environment over two episodes and a bit."""
    vector = SyncVectorEnv(short(), autoreset_mode=AutoresetMode.SAME_STEP)
    first, _ = vector.reset(seed=SEEDS)
    results = [vector.step(action) for action in actions(2 * LENGTH + 5)]
    vector.close()
    return first, results


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_ours_gives_what_gymnasiums_gives(expected, num_processes):
    first, results = expected
    vector = make_vector(num_processes=num_processes)
    observation, _ = vector.reset(seed=SEEDS)
    np.testing.assert_array_equal(observation, first)
    for action, theirs in zip(actions(2 * LENGTH + 5), results, strict=True):
        ours = vector.step(action)
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        same_infos(ours[4], theirs[4])
    vector.close()


def same_infos(ours, theirs):
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


def test_the_asynchronous_one_of_gymnasium_gives_the_same(expected):
    first, results = expected
    vector = AsyncVectorEnv(
        short(), context="spawn", autoreset_mode=AutoresetMode.SAME_STEP
    )
    try:
        np.testing.assert_array_equal(vector.reset(seed=SEEDS)[0], first)
        for action, theirs in zip(actions(5), results[:5], strict=True):
            ours = vector.step(action)
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[4]["cost"], theirs[4]["cost"])
    finally:
        vector.close()


def test_one_seed_for_all_gives_the_layouts_that_gymnasium_gives():
    theirs = SyncVectorEnv(short(), autoreset_mode=AutoresetMode.SAME_STEP)
    ours = make_vector(num_processes=2)
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    ours.close()
    theirs.close()


def test_learners_with_different_seeds_share_no_layout():
    first, other = (make_host(ID, 3).reset(seed) for seed in (0, 1))
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 6


def test_one_seed_gives_every_environment_a_layout_of_its_own():
    vector = make_vector(num_processes=2)
    first, _ = vector.reset(seed=1)
    again, _ = vector.reset(seed=1)
    other, _ = vector.reset(seed=4)
    vector.close()
    np.testing.assert_array_equal(first, again)
    rows = np.concatenate([first, other])
    assert len(np.unique(rows, axis=0)) == 6


def test_what_a_learner_reads_is_declared():
    vector = make_vector(num_envs=2)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (vector.episode_length, vector.cost_bound) == (LENGTH, float(LENGTH))
    assert (vector.cost_names, vector.metric_names) == (("cost",), ("goals",))
    assert vector.observation_space.shape == (2, 76)
    assert vector.spec.id == ID
    vector.close()


@pytest.mark.parametrize(
    ("asked", "length"),
    [
        ({}, 400),
        ({"episode_length": 30}, 30),
        ({"episode_length": 600}, 600),
        ({"max_episode_steps": 600}, 600),
    ],
)
def test_an_explicit_length_wins(asked, length):
    vector = gymnasium.make_vec(ID, 1, vectorization_mode="vector_entry_point", **asked)
    assert (vector.episode_length, vector.cost_bound) == (length, float(length))
    vector.close()


@pytest.mark.parametrize("mode", ["vector", "sync"])
@pytest.mark.parametrize(
    ("asked", "length"),
    [
        ({}, 400),
        ({"episode_length": 600}, 600),
        ({"episode_length": 30}, 30),
        ({"env_kwargs": {"episode_length": 30}}, 30),
    ],
)
def test_a_learner_gets_the_length_it_asked_for(mode, asked, length):
    spec = make_host(ID, 1, vectorization=mode, **asked).spec
    assert (spec.episode_length, spec.cost_bounds) == (length, (float(length),))


def test_a_learner_may_lengthen_episodes_by_the_environments_own_word_too():
    wish = {"episode_length": 600}
    assert make_host(ID, 2, env_kwargs=wish).spec.episode_length == 600
    with pytest.raises(ValueError, match=r"is 600, but .* episode_length=600 in orac"):
        make_host(ID, 2, env_kwargs=wish, vectorization="sync")


@pytest.mark.parametrize("mode", ["vector", "sync"])
def test_a_learner_that_asks_for_two_lengths_is_refused(mode):
    wishes = {"episode_length": 600, "env_kwargs": {"episode_length": 30}}
    with pytest.raises(ValueError, match=r"leave one|Leave episode_length out"):
        make_host(ID, 1, vectorization=mode, **wishes)


def test_workers_end_when_the_environments_here_cannot_be_made(monkeypatch):
    started = []

    class Watched(vector_room.Worker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self._process)

    monkeypatch.setattr(vector_room, "Worker", Watched)
    with pytest.raises(ValueError, match="only vectors of numbers"):
        SafetyVectorEnv(3, task="SafetyPointGoal1Vision-v0", num_processes=3)
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_state_continues_on_another_number_of_processes():
    vector, other = make_vector(num_processes=1), make_vector(num_processes=2)
    vector.reset(seed=SEEDS)
    for action in actions(LENGTH + 3):
        vector.step(action)
    state = json.loads(json.dumps(vector.get_state(), default=np.ndarray.tolist))
    other.set_state(state)
    back = json.dumps(other.get_state(), default=np.ndarray.tolist)
    assert json.loads(back) == state
    for action in actions(LENGTH):
        ours, theirs = other.step(action), vector.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
    vector.close()
    with pytest.raises(ValueError, match="state is that of 2 environments"):
        other.set_state({"environments": state["environments"][:2]})
    other.close()


def test_bad_actions_are_refused_before_anything_moves(expected):
    _, results = expected
    vector = make_vector(num_processes=2)
    vector.reset(seed=SEEDS)
    for bad in (np.zeros((2, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="finite numbers of shape"):
            vector.step(bad)
    ours = vector.step(actions(1)[0])
    np.testing.assert_array_equal(ours[0], results[0][0])
    vector.close()


def test_a_failure_in_a_worker_is_raised_with_its_story_and_the_rest_goes_on():
    vector = make_vector(num_processes=2)
    vector.reset(seed=SEEDS)
    with pytest.raises(RuntimeError, match=r"in a worker failed[\s\S]*KeyError"):
        vector._workers[0].set_state([{"start": {}}])
    vector.reset(seed=SEEDS)
    assert vector.step(actions(1)[0])[0].shape == (3, 76)
    vector.close()


def test_a_worker_that_is_gone_is_reported():
    vector = make_vector(num_processes=2)
    vector.reset(seed=SEEDS)
    worker = vector._workers[0]._process
    worker.kill()
    worker.wait()
    with pytest.raises(RuntimeError, match="worker process of the environments ended"):
        vector.step(actions(1)[0])
    vector.close()


def test_pictures_and_dictionaries_have_no_place_side_by_side():
    with pytest.raises(ValueError, match="render_mode cannot be set"):
        make_vector(render_mode="rgb_array")
    with pytest.raises(ValueError, match="only vectors of numbers"):
        gymnasium.make_vec(
            "SafetyPointGoal1Vision-v0", 1, vectorization_mode="vector_entry_point"
        )


SCRIPT = """
import gymnasium, numpy
from orac.envs import safety
safety.register()
vector = gymnasium.make_vec(
    "{id}", 2, vectorization_mode="vector_entry_point", num_processes=2
)
first, _ = vector.reset(seed=[5, 6])
print(first.sum())
"""


def test_a_script_without_a_main_guard_can_use_processes(expected, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(id=ID))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == expected[0][:2].sum()
