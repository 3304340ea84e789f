"""Tests that the fast path gives the package's trajectories, by stepping both."""

import importlib.metadata

import numpy as np
import pytest

from orac.envs.safety.env import SafetyEnv
from orac.envs.safety.tasks import PAPER_TASKS

pytestmark = pytest.mark.slow
reference = pytest.importorskip("helpers.safety_reference", exc_type=ImportError)

PAPER = ("SafetyPointGoal1-v0", "SafetyPointButton1-v0")
OTHERS = tuple(name for name in PAPER_TASKS if name not in PAPER)


def both(name, folder, timestep=None, change=lambda task: None):
    """Return the untouched package's environment and the fast path."""
    theirs = reference.untouched(name, folder, timestep)
    ours = reference.untouched(name)
    change(theirs.task)
    change(ours.task)
    return theirs, reference.FastSimulation(ours.task, timestep)


def check(found):
    """Check costs, goals, ends, physics, and every array of each compiled model."""
    assert found.unequal == []
    assert found.observation <= 1e-12
    assert found.reward <= 1e-12


@pytest.mark.parametrize("name", PAPER)
def test_twenty_episodes_of_the_papers_tasks_equal_the_packages(name, tmp_path):
    theirs, ours = both(name, tmp_path, reference.paper_timestep(name))
    found = reference.compare(name, theirs, ours, range(100, 120))
    check(found)
    assert found.steps == 20 * reference.STEPS
    # The comparison is meaningful only if goals and costs of every kind occurred.
    assert found.goals > 40
    assert all(total > 10 for total in found.costs.values()), found.costs


@pytest.mark.parametrize("name", OTHERS)
def test_episodes_of_the_other_tasks_equal_the_packages(name, tmp_path):
    theirs, ours = both(name, tmp_path, reference.paper_timestep(name))
    found = reference.compare(name, theirs, ours, range(2))
    check(found)
    assert found.goals > 0


@pytest.mark.parametrize("name", ["SafetyPointGoal1-v0", "SafetyCarButton1-v0"])
def test_trajectories_are_equal_at_the_packages_own_timestep(name, tmp_path):
    theirs, ours = both(name, tmp_path)
    found = reference.compare(name, theirs, ours, range(2))
    check(found)
    assert ours.model.opt.timestep == theirs.task.model.opt.timestep < 0.005


def test_episodes_end_when_there_is_no_place_for_a_new_goal(tmp_path):
    # A goal with a radius of 70 cm fits once but rarely twice.
    def enlarge_goal(task):
        task.goal.keepout = 0.7

    name = "SafetyPointGoal1-v0"
    theirs, ours = both(name, tmp_path, 0.006, enlarge_goal)
    found = reference.compare(name, theirs, ours, range(8), noise=0.1)
    check(found)
    assert found.terminations >= 6
    assert found.goals > found.terminations


def test_the_fast_path_leaves_the_package_unchanged(tmp_path):
    """A package environment does the same with and without a fast path nearby."""
    name = "SafetyPointButton1-v0"

    def trajectory(env):
        observation, _ = env.reset(seed=7)
        act, seen = reference.driver(name), [observation]
        for _ in range(50):
            seen.append(env.step(act(seen[-1]))[0])
        return np.array(seen)

    expected = trajectory(reference.untouched(name, tmp_path, 0.006))
    theirs, ours = both(name, tmp_path, 0.006)
    reference.compare(name, theirs, ours, [3], steps=50)
    np.testing.assert_array_equal(expected, trajectory(theirs))


def test_requiring_the_fast_path_for_an_unsupported_task_explains_why_not():
    with pytest.raises(ValueError, match=r"does not run SafetyPointPush1-v0: it supp"):
        SafetyEnv("SafetyPointPush1-v0", fast=True)
    with pytest.raises(ValueError, match="run SafetyHopperVelocity-v1: velocity tasks"):
        SafetyEnv("SafetyHopperVelocity-v1", fast=True)


def test_a_task_with_another_setting_is_unsupported():
    from orac.envs.safety.fast_path import unsupported_reason

    task = reference.untouched(PAPER[0]).task
    assert unsupported_reason(task) is None
    task.lidar_conf.alias = False
    reason = "lidar_conf.alias is False, but only True is supported"
    assert unsupported_reason(task) == reason


@pytest.mark.parametrize(
    ("distribution", "version", "reason"),
    [
        (
            "safety-gymnasium",
            "1.2.0",
            "it needs version 1.0.0 of the package, not 1.2.0",
        ),
        ("mujoco", "3.3.5", "it needs MuJoCo 3.3.6 or newer, not 3.3.5"),
    ],
)
def test_other_versions_are_unsupported(monkeypatch, distribution, version, reason):
    from orac.envs.safety.fast_path import unsupported_reason

    task, installed = reference.untouched(PAPER[0]).task, importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: version if name == distribution else installed(name),
    )
    assert unsupported_reason(task) == reason
