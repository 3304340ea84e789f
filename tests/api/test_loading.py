"""Saved agents, loaded again."""

import gymnasium
import numpy as np
import pytest

import orac
from helpers.pendulum import TINY, too_fast


def test_a_saved_agent_comes_back_the_same(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    observation = [0.3, -0.2, 1.0]
    np.testing.assert_array_equal(
        pendulum.predict(observation)[0], again.predict(observation)[0]
    )


def test_an_agent_that_only_predicts_and_evaluates_has_no_replay(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    again.predict(np.zeros(3))
    again.certify(again.evaluate(episodes=2).episodes)
    assert again.runner.state.replay == ()
    assert pendulum.runner.state.replay.capacity > 0


def test_an_agent_that_was_never_evaluated_has_nothing_to_plot(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    with pytest.raises(ValueError, match="nothing to plot, because this agent was not"):
        again.plot()


class TwoCosts(gymnasium.Wrapper):
    """Pendulum that reports two costs as one flat array."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action):
        observation, reward, *ends, _ = super().step(action)
        costs = np.array([float(abs(observation[2]) > 4.0), 3.0])
        return observation, reward, *ends, {"cost": costs}


def test_several_costs_come_in_one_array_and_a_saved_agent_finds_them_again(tmp_path):
    constraints = [orac.Constraint("speed", 5, 0.5), orac.Constraint("place", 2, 0.1)]
    agent = orac.WCSAC(TwoCosts, constraints=constraints, settings=TINY)
    assert agent.evaluate(1)["cost/place/mean"] == 600.0
    agent.save(tmp_path / "agent.orac")
    again = orac.load(tmp_path / "agent.orac", env=TwoCosts)
    assert again.spec.cost_names == ("speed", "place")
    with pytest.raises(ValueError) as caught:
        orac.load(tmp_path / "agent.orac")
    assert str(caught.value) == (
        "the environment of this run is 'TwoCosts', which is not registered with Gymnasium "
        "here. Pass it again as env= (the class, factory or object that it was trained in), "
        "or import the module that registers it (in the shell --env-id module:Name-v0)."
    )
