"""Tests of agents in every kind of environment."""

import json
from functools import partial

import gymnasium
import jax
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import orac
from helpers.pendulum import TINY, too_fast
from orac.api.environments import name_of_env
from orac.envs.maze.env import GuardedMaze


def test_evaluations_do_not_disturb_the_environments_of_training():
    def train(evaluates):
        agent = orac.SAC("Pendulum-v1", cost_fn=too_fast, seed=3, settings=TINY)
        for total in (110, 230, 300):
            agent.learn(total, progress_bar=False)
            if evaluates:
                agent.evaluate(2)
        return jax.tree.leaves(agent.runner.state.agent)

    for one, other in zip(train(True), train(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_factory_that_returns_one_environment_twice_is_refused_at_the_start():
    env = gymnasium.make("Pendulum-v1")
    agent = orac.SAC(lambda: env, cost_fn=too_fast, settings=TINY)
    with pytest.raises(ValueError, match="returned one environment twice"):
        agent.learn(300, progress_bar=False)
    assert agent.num_timesteps == 0


def test_an_environment_object_is_played_by_one_agent_and_its_evaluations():
    env = gymnasium.make("Pendulum-v1")
    with pytest.warns(orac.api.AssumedLimitWarning) as told:
        agent = orac.SACLagrangian(env, cost_fn=too_fast, settings=TINY)
    assert [str(warning.message) for warning in told] == [
        "no cost_limit was given for Pendulum-v1, so the mean of its episode cost is limited "
        "to 25. Pass cost_limit= and tail=."
    ]
    agent.learn(300, progress_bar=False)
    assert agent.num_timesteps == 300
    result = agent.evaluate(2)
    assert len(result.episodes) == 2
    # It learned from the mean, and is measured at the tail that other agents have.
    assert agent.config.constraints == (orac.Constraint("cost", 25.0, 0.25),)
    assert result["cost/risk"] == result["cost/cvar_0.25"] >= result["cost/mean"]
    (certificate,) = agent.certify(result.episodes)
    assert "at tail 0.25" in certificate.quantity


def test_a_jax_environment_is_trained_on_device():
    seen = []

    def stop_early(event):
        seen.append(event)
        return event.step < 300

    agent = orac.ORAC(GuardedMaze(), cost_limit=5, tail=0.05, settings=TINY)
    agent.learn(1000, callback=stop_early, progress_bar=False)
    assert agent.num_timesteps == 300
    assert [event.step for event in seen] == [100, 200, 300]
    assert seen[0].evaluation is None and len(seen[1].evaluation) == 3
    assert seen[0].agent is agent and "constraint/multiplier/cost" in seen[1].metrics


class Split(gymnasium.ObservationWrapper):
    """Pendulum that tells angle and speed apart."""

    def __init__(self, kind):
        super().__init__(gymnasium.make("Pendulum-v1"))
        parts = {
            "angle": gymnasium.spaces.Box(-1, 1, (2,)),
            "speed": gymnasium.spaces.Box(-8, 8, (1,)),
        }
        self.kind = kind
        spaces = {dict: gymnasium.spaces.Dict, tuple: gymnasium.spaces.Tuple}
        self.observation_space = spaces[kind](parts if kind is dict else parts.values())

    def observation(self, observation):
        angle, speed = observation[:2], observation[2:]
        if self.kind is tuple:
            return angle, speed
        return {"speed": speed, "angle": angle}


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (lambda: Split(dict), "Split"),
        (partial(Split, dict), "Split"),
        (lambda: gymnasium.make("Pendulum-v1"), "Pendulum-v1"),
        (lambda: TimeLimit(Split(dict), 9), "Split"),
    ],
)
def test_a_factory_without_a_name_has_that_of_what_it_makes(env, name):
    agent = orac.SAC(env, cost_fn=lambda *_: 0.0, settings=TINY)
    assert agent.config.env.id == name
    assert agent.runner.config is agent.config


@pytest.mark.parametrize("kind", [dict, tuple])
def test_nested_observations_are_taken_as_the_environment_gives_them(kind):
    agent = orac.SAC(lambda: Split(kind), cost_fn=lambda *_: 0.0, settings=TINY)
    observation, _ = Split(kind).reset(seed=3)
    flat = gymnasium.make("Pendulum-v1").reset(seed=3)[0]
    np.testing.assert_array_equal(agent.predict(observation)[0], agent.predict(flat)[0])


class Mixed(gymnasium.Env):
    """An environment whose observation has parts of every kind."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "doors": spaces.Tuple(
                [spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(2)]
            ),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode_length = 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {"cost": 0.0}


def test_observations_of_every_kind_are_flattened_and_said_so_once(tmp_path, caplog):
    agent = orac.SAC(Mixed, settings=TINY)
    with pytest.warns(orac.api.ShortRunWarning):
        agent.learn(8, progress_bar=False)
    choice = "one-hot encoded"
    assert [x.message for x in caplog.records if "flattened" in x.message] == [
        f"observations are flattened to 15 numbers: doors.0 (6, {choice}), doors.1 (2), "
        f"gear (3, {choice}), place (4)."
    ]
    env = Mixed()
    nested = [env.reset(seed=seed)[0] for seed in range(5)]
    flat = np.stack([spaces.flatten(env.observation_space, one) for one in nested])
    wanted = agent.predict(flat)[0]
    agent.export(tmp_path / "policy.npz")
    policy = orac.policy.load(tmp_path / "policy.npz")
    for one, action in zip(nested, wanted, strict=True):
        np.testing.assert_allclose(agent.predict(one)[0], action, atol=1e-6)
        np.testing.assert_allclose(policy(one), action, atol=1e-5)
    np.testing.assert_allclose(policy(flat), wanted, atol=1e-5)
    agent.export(tmp_path / "policy.onnx")
    runtime = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    about = runtime.get_modelmeta().custom_metadata_map
    structure = json.loads(about["observation_structure"])
    rows = np.stack([orac.policy.flatten(one, structure) for one in nested])
    (actions,) = runtime.run(["action"], {"observation": rows})
    np.testing.assert_allclose(actions, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="must be a dict with the keys doors, gear, p"):
        policy({"gear": 1})


def test_the_name_of_an_id_is_the_id():
    assert name_of_env("mine:Tank-v0") == "mine:Tank-v0"
