"""Ids are known, and say what to install, without the package."""

import importlib.util
import sys

import gymnasium
import pytest

from orac.envs import safety
from orac.envs.safety import import_compat as package
from orac.envs.safety.tasks import PAPER_TASKS, parse, stock_ids

safety.register()


def test_the_papers_variants_have_its_timestep_and_length():
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
def test_the_packages_own_ids_keep_its_timestep_and_length(name, steps):
    spec = gymnasium.spec(name)
    assert spec.max_episode_steps == spec.kwargs["time_limit"] == steps
    assert "timestep" not in spec.kwargs


def test_entry_points_are_names_so_that_nothing_is_imported_early():
    for name in ("orac/SafetyPointGoal1-v0", "SafetyPointPush1-v0"):
        assert isinstance(gymnasium.spec(name).entry_point, str)
        assert isinstance(gymnasium.spec(name).vector_entry_point, str)


def test_registering_again_changes_nothing():
    before = gymnasium.spec("orac/SafetyPointGoal1-v0")
    safety.register()
    assert gymnasium.spec("orac/SafetyPointGoal1-v0") is before


def test_an_id_is_taken_apart():
    task = parse("SafetyRacecarFadingEasy2Vision-v0")
    assert (task.name, task.agent) == ("SafetyRacecarFadingEasy2-v0", "Racecar")
    assert task.settings["observe_vision"]
    robot = parse("SafetyAntVelocity-v1")
    assert (robot.robot, robot.release, robot.agent) == ("Ant", "v1", None)


def test_every_id_is_known_once():
    ids = stock_ids()
    assert len(set(ids)) == len(ids) == 5 * 19 * 2 + 12
    for name in ids:
        parse(name)


def test_an_unknown_task_gets_the_nearest_one():
    with pytest.raises(ValueError, match="Did you mean 'SafetyPointGoal1-v0'"):
        parse("SafetyPointGaol1-v0")


LINES = (
    "make setup-safety",
    'pip install "orac-rl[safety]"',
    "pip install --no-deps safety-gymnasium==1.0.0",
)


@pytest.fixture
def without(monkeypatch):
    """Make modules look as if they were not installed."""

    def hide(*names):
        original = importlib.util.find_spec

        def find_spec(name, *args):
            return None if name in names else original(name, *args)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(package, "load", package.load.__wrapped__)

    return hide


@pytest.mark.parametrize(
    "id", ["orac/SafetyPointGoal1-v0", "SafetyCarPush1-v0", "SafetyAntVelocity-v1"]
)
def test_without_the_package_an_environment_says_the_lines_to_run(without, id):
    without("safety_gymnasium")
    with pytest.raises(ImportError) as error:
        gymnasium.make(id)
    assert "needs safety_gymnasium" in str(error.value)
    assert all(line in str(error.value) for line in LINES)


def test_missing_names_every_module_that_is_not_there(without):
    without("safety_gymnasium", "xmltodict")
    assert package.missing() == ("safety_gymnasium", "xmltodict")
    with pytest.raises(ImportError, match="safety_gymnasium and xmltodict"):
        package.load()


def test_an_unknown_render_mode_is_refused_before_anything_is_loaded():
    from orac.envs.safety.adapter import SafetyEnv

    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array'"):
        SafetyEnv("SafetyPointGoal1-v0", render_mode="human")
