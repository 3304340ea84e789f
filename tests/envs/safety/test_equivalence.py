"""The fast path gives the package's trajectories: both are stepped side by side."""

import numpy as np
import pytest

from orac.envs.safety.tasks import PAPER_TASKS

pytestmark = pytest.mark.slow
reference = pytest.importorskip("helpers.safety_reference", exc_type=ImportError)

PAPER = ("SafetyPointGoal1-v0", "SafetyPointButton1-v0")
OTHERS = tuple(name for name in PAPER_TASKS if name not in PAPER)


def both(name, folder, timestep=None, change=lambda task: None):
    """The untouched package and the fast path, made in one process."""
    theirs = reference.untouched(name, folder, timestep)
    ours = reference.untouched(name)
    change(theirs.task)
    change(ours.task)
    return theirs, reference.FastWorld(ours.task, timestep)


def check(found):
    assert found.unequal == []
    assert found.observation <= 1e-12
    assert found.reward <= 1e-12


@pytest.mark.parametrize("name", PAPER)
def test_twenty_episodes_of_the_papers_tasks_are_the_packages(name, tmp_path):
    theirs, ours = both(name, tmp_path, reference.paper_timestep(name))
    found = reference.compare(name, theirs, ours, range(100, 120))
    check(found)
    assert found.steps == 20 * reference.STEPS
    # What the comparison stands on: much happened that could have differed.
    assert found.goals > 40
    assert all(total > 10 for total in found.costs.values()), found.costs


@pytest.mark.parametrize("name", OTHERS)
def test_episodes_of_the_other_tasks_are_the_packages(name, tmp_path):
    theirs, ours = both(name, tmp_path, reference.paper_timestep(name))
    found = reference.compare(name, theirs, ours, range(2))
    check(found)
    assert found.goals > 0


@pytest.mark.parametrize("name", ["SafetyPointGoal1-v0", "SafetyCarButton1-v0"])
def test_the_packages_own_timestep_gives_the_packages_trajectories(name, tmp_path):
    theirs, ours = both(name, tmp_path)
    found = reference.compare(name, theirs, ours, range(2))
    check(found)
    assert ours.model.opt.timestep == theirs.task.model.opt.timestep < 0.005


def test_an_episode_ends_where_the_package_finds_no_place_for_a_goal(tmp_path):
    # A goal that needs 70 cm around it fits once, hardly ever twice.
    def roomy(task):
        task.goal.keepout = 0.7

    name = "SafetyPointGoal1-v0"
    theirs, ours = both(name, tmp_path, 0.006, roomy)
    found = reference.compare(name, theirs, ours, range(8), noise=0.1)
    check(found)
    assert found.terminations >= 6
    assert found.goals > found.terminations


def test_the_fast_path_leaves_the_package_as_it_is(tmp_path):
    """One package environment alone, and one beside a fast path, do the same."""
    name = "SafetyPointButton1-v0"

    def trajectory(env):
        observation, _ = env.reset(seed=7)
        act, seen = reference.driver(name), [observation]
        for _ in range(50):
            seen.append(env.step(act(seen[-1]))[0])
        return np.array(seen)

    alone = trajectory(reference.untouched(name, tmp_path, 0.006))
    theirs, ours = both(name, tmp_path, 0.006)
    reference.compare(name, theirs, ours, [3], steps=50)
    np.testing.assert_array_equal(alone, trajectory(theirs))


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_every_number_of_a_compiled_world_is_the_packages(name):
    theirs, ours = both(name, None)
    for seed in range(2):
        theirs.reset(seed=seed)
        ours.seed(seed)
        ours.reset()
        assert unlike(theirs.task.model, ours.model) == []


def unlike(theirs, ours):
    """The model's arrays in which two compiled worlds differ, apart from pictures."""
    names = [name for name in dir(ours) if not name.startswith(("_", "tex_"))]
    arrays = [name for name in names if isinstance(getattr(ours, name), np.ndarray)]
    assert len(arrays) > 200
    return [
        name
        for name in arrays
        if name != "paths"
        and not np.array_equal(getattr(theirs, name), getattr(ours, name))
    ]
