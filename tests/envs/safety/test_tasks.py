"""Tests of the task ids. They run without the package."""

import gymnasium
import pytest

from orac.envs.safety.tasks import PAPER_TASKS, package_ids, parse_id, register

register()


def test_ids_of_the_paper_have_its_timestep_and_episode_length():
    point = gymnasium.spec("orac/SafetyPointGoal1-v0")
    car = gymnasium.spec("orac/SafetyCarButton2-v0")
    assert point.max_episode_steps == car.max_episode_steps == 400
    assert point.kwargs["timestep"] == 0.006
    assert car.kwargs["timestep"] == 0.01
    assert len(PAPER_TASKS) == 12


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("SafetyPointGoal1-v0", 1000),
        ("SafetyRacecarCircle2-v0", 500),
        ("SafetyAntRun0-v0", 500),
        ("SafetyDoggoFadingHard1-v0", 1000),
        ("SafetyPointGoal1Vision-v0", 1000),
        ("SafetyHalfCheetahVelocity-v1", 1000),
    ],
)
def test_ids_of_the_package_keep_its_timestep_and_episode_length(name, steps):
    spec = gymnasium.spec(name)
    assert spec.max_episode_steps == spec.kwargs["time_limit"] == steps
    assert "timestep" not in spec.kwargs


def test_entry_points_are_strings_so_that_nothing_is_imported_early():
    for name in ("orac/SafetyPointGoal1-v0", "SafetyPointPush1-v0"):
        assert isinstance(gymnasium.spec(name).entry_point, str)
        assert isinstance(gymnasium.spec(name).vector_entry_point, str)


def test_registering_again_changes_nothing():
    before = gymnasium.spec("orac/SafetyPointGoal1-v0")
    register()
    assert gymnasium.spec("orac/SafetyPointGoal1-v0") is before


def test_parse_id_splits_an_id_into_its_parts():
    task = parse_id("SafetyRacecarFadingEasy2Vision-v0")
    assert (task.name, task.agent) == ("SafetyRacecarFadingEasy2-v0", "Racecar")
    assert task.config["observe_vision"]
    robot = parse_id("SafetyAntVelocity-v1")
    assert (robot.robot, robot.version, robot.agent) == ("Ant", "v1", None)


def test_every_id_is_unique_and_can_be_parsed():
    ids = package_ids()
    assert len(set(ids)) == len(ids) == 5 * 19 * 2 + 12
    for name in ids:
        parse_id(name)


def test_an_unknown_task_gets_a_suggestion():
    with pytest.raises(ValueError, match="Did you mean 'SafetyPointGoal1-v0'"):
        parse_id("SafetyPointGaol1-v0")
