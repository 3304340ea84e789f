"""Tests of the ids, parameters and declared metrics of the environments."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from helpers.toy_envs import Counter
from orac import envs
from orac.envs import registry
from orac.envs.base import MetricSpec
from orac.envs.gym_adapter.make import make_host
from orac.envs.registry import metrics_of

MAZE = "orac/GuardedMaze-v0"


def test_make_knows_the_ids_of_jax_environments():
    assert envs.is_jax_env(MAZE)
    assert not envs.is_jax_env("CartPole-v1")
    assert envs.make(MAZE, start_box=[1.0, 1.0, 2.0, 2.0]).start_box == (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: envs.make("orac/GuardedMase-v0"),
            "Did you mean 'orac/GuardedMaze-v0'",
        ),
        (lambda: envs.make(MAZE, gaurd_probability=1), "mean 'guard_probability'"),
        (
            lambda: gymnasium.make_vec(MAZE, max_episode_steps=5),
            "got 'max_episode_steps'",
        ),
    ],
)
def test_unknown_id_or_parameter_raises_with_the_nearest_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_ids_are_registered_without_importing_jax():
    code = (
        "import sys, gymnasium, orac.envs\n"
        f"assert {MAZE!r} in gymnasium.registry\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("env_id", registry.JAX_ENVS)
def test_declared_metrics_are_those_of_the_spec(env_id):
    assert metrics_of(env_id) == envs.make(env_id).spec.metrics


def test_metrics_are_known_without_making_the_environment():
    names = {
        env_id: [metric.name for metric in metrics_of(env_id)]
        for env_id in ("orac/SafetyPointGoal1-v0", "SafetyCarButton2-v0", "Pendulum-v1")
    }
    assert [*names.values()] == [["goals"], ["goals"], []]
    assert metrics_of("no such id") == ()


def test_metrics_are_known_by_the_class_name_of_an_environment_object():
    for env_id in registry.JAX_ENVS:
        assert metrics_of(type(envs.make(env_id)).__name__) == metrics_of(env_id)
    assert [metric.name for metric in metrics_of("SafetyEnv")] == ["goals"]


def test_metrics_of_the_maze_declare_labels_and_hide_the_guard():
    path, moved, guard = metrics_of(MAZE)
    assert {label.code: label.name for label in path.labels} == {
        1: "long",
        -1: "guarded",
        0: "none",
    }
    assert [label.better for label in path.labels] == ["", "", "lower"]
    assert (path.hidden, moved.hidden, guard.hidden) == (False, False, True)


def test_spec_lists_metric_names_and_a_title_defaults_to_the_name():
    spec = Counter().spec
    assert spec.metric_names == ("count", "secret")
    assert spec.hidden_metric_names == ("secret",)
    assert MetricSpec("speed").title == "speed"


def test_metrics_of_an_adapted_environment_have_their_declared_titles():
    host = make_host(MAZE, metric_names=["path", "other"])
    assert host.spec.metrics == (metrics_of(MAZE)[0], MetricSpec("other"))
    host.reset(seed=0)
    metrics = host.step(np.zeros((1, 2), np.float32)).metrics
    assert np.isnan(metrics["other"]).all() and not np.isnan(metrics["path"]).any()
