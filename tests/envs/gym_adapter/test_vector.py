"""Tests of vector environments: true last observations and costs in every autoreset mode."""

import re
import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from helpers.gym_probes import (
    Counter,
    CounterBatch,
    JaxProbe,
    Matrix,
    Odd,
    Reusing,
    Single,
    SixBatch,
    expected_transitions,
    transitions,
    zeros,
)
from orac.envs.gym_adapter.make import make_host

MODES = list(AutoresetMode)


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_gives_the_last_observation_and_the_last_cost(
    mode, truncates
):
    # Lengths differ, so that one environment restarts while the other continues.
    fns = [partial(Counter, 3, truncates), partial(Counter, 4, truncates)]
    vector = SyncVectorEnv(fns, autoreset_mode=mode)
    seen = transitions(make_host(vector, cost_names=["cost"]), 12)
    assert seen[0] == expected_transitions(3, len(seen[0]), truncates)
    assert seen[1] == expected_transitions(4, len(seen[1]), truncates)
    # NEXT_STEP spends a call on each restart: 12 calls are 9 steps of episodes of 3.
    assert len(seen[0]) == (9 if mode is AutoresetMode.NEXT_STEP else 12)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_async_vector_environment_gives_the_same_transitions(mode):
    fns = [partial(Counter, 3), partial(Counter, 4)]
    vector = AsyncVectorEnv(fns, autoreset_mode=mode, context="spawn")
    seen = transitions(make_host(vector, cost_names=["cost"]), 8)
    assert seen[0] == expected_transitions(3, len(seen[0]))
    assert seen[1] == expected_transitions(4, len(seen[1]))


@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_vectorised_factory_gives_true_last_observations(vectorization):
    host = make_host(Counter, 2, vectorization=vectorization)
    assert transitions(host, 9) == [expected_transitions(3, 9)] * 2


def test_worker_processes_do_not_import_jax():
    options = {"metric_names": ["has_jax"], "cost_names": ["cost"]}
    host = make_host(JaxProbe, 1, vectorization="async", **options)
    host.reset(seed=0)
    assert host.step(zeros(host)).metrics["has_jax"].tolist() == [0.0]
    host.close()


def test_vector_environment_of_another_class_is_read_without_masks():
    host = make_host(CounterBatch(3), cost_names=["cost"], episode_length=3)
    assert transitions(host, 7) == [expected_transitions(3, 7)] * 3


def test_vector_environment_may_step_with_six_values():
    host = make_host(SixBatch(2), episode_length=3, metric_names=["speed"])
    assert transitions(host, 7) == [expected_transitions(3, 7)] * 2
    host.reset(seed=0)
    speeds = [host.step(zeros(host)).metrics["speed"].tolist() for _ in range(3)]
    assert speeds[2] == [0.5, 1.5]
    assert np.isnan(speeds[:2]).all()


@pytest.mark.parametrize("copies", [False, True])
def test_arrays_that_an_environment_reuses_do_not_change_earlier_steps(copies):
    vector = SyncVectorEnv([Reusing], copy=copies, autoreset_mode="Disabled")
    assert transitions(make_host(vector, cost_names=["cost"]), 7) == [
        expected_transitions(3, 7)
    ]
    first = make_host(Reusing(), cost_names=["cost"])
    before = first.reset(seed=0).copy()
    step = first.step(zeros(first))
    first.step(zeros(first))
    assert step.next_observation.tolist() == [[0.0, 1.0]]
    assert before.tolist() == [[0.0, 0.0]]


def test_vector_environment_may_declare_that_it_takes_a_list_of_seeds():
    class Seeded(CounterBatch):
        takes_seeds = True

        def reset(self, *, seed=None, options=None):
            self.seeds = seed
            return super().reset()

    vector = Seeded(2)
    host = make_host(vector, cost_names=["cost"], episode_length=3)
    host.reset(seed=0)
    assert len(set(vector.seeds)) == 2


def test_same_seed_starts_the_same_episodes_and_environments_differ():
    host = make_host("Pendulum-v1", 3, cost_fn=lambda *_: 0.0)
    first, again, other = host.reset(seed=0), host.reset(seed=0), host.reset(seed=1)
    assert np.array_equal(first, again)
    starts = np.concatenate([first, other])
    assert len(np.unique(starts, axis=0)) == 6


def test_rank_two_actions_are_reshaped_clipped_and_cast():
    host = make_host(Matrix(), cost_names=["left", "right"])
    assert host.spec.action_low == (0.0, -2.0, -1.0, -1.0)
    assert host.spec.action_high == (1.0, 2.0, 1.0, 3.0)
    host.reset(seed=0)
    step = host.step(np.array([[0.5, 1.0, 0.25, 9.0]], np.float32))
    # Rows of the action are [0.5, 1] and [0.25, 3], the 9 being clipped to 3.
    assert step.cost.tolist() == [[1.5, 3.25]]


def test_action_without_axes_is_one_number():
    host = make_host(Single, 2)
    assert host.spec.action_low == (-2.0,)
    host.reset(seed=0)
    step = host.step(np.array([[0.5], [1.5]], np.float32))
    assert step.cost.tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros((1, 3)), "takes actions of shape (1, 1)"),
        (np.zeros((2, 1)), "got (2, 1)"),
        (np.full((1, 1), np.nan), "The policy has diverged"),
    ],
)
def test_invalid_action_raises(action, message):
    host = make_host(Counter())
    host.reset(seed=0)
    with pytest.raises(ValueError, match=re.escape(message)):
        host.step(action)


def test_metrics_are_those_of_the_last_step_and_nan_where_absent():
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


def test_cost_may_also_be_a_metric():
    host = make_host(Counter(), metric_names=["cost"])
    host.reset(seed=0)
    step = host.step(zeros(host))
    assert (step.cost.tolist(), step.metrics["cost"].tolist()) == ([[1.0]], [1.0])


def test_without_metric_names_there_are_no_metrics():
    host = make_host(Counter())
    host.reset(seed=0)
    assert host.step(zeros(host)).metrics == {}


def test_large_finite_numbers_are_accepted_without_warnings():
    host = make_host(Odd(report=lambda _: {"cost": 1e30}), episode_length=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        host.reset(seed=0)
        step = host.step(np.zeros((1, 1), np.float32))
    assert step.cost.tolist() == [[np.float32(1e30)]]
