"""Three lines of Python, for every kind of environment."""

import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest

import orac
from orac.envs.guarded_maze import GuardedMaze

TINY = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "training.learning_starts": 100,
    "training.buffer_size": 2000,
    "training.batch_size": 32,
    "training.log_every": 100,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
}


def too_fast(observation, action, next_observation, info):
    return float(abs(next_observation[2]) > 4.0)


@pytest.fixture(scope="module")
def pendulum():
    agent = orac.WCSAC(
        "Pendulum-v1",
        cost_fn=too_fast,
        cost_limit=10.0,
        tail=0.25,
        seed=0,
        settings={**TINY, "training.gradient_steps": 0.25},
    )
    agent.learn(total_timesteps=400, progress_bar=False)
    return agent


def test_a_gymnasium_id_with_a_cost_function_learns(pendulum):
    assert pendulum.num_timesteps == 400
    # One gradient step in four from the hundredth step on.
    assert int(pendulum.runner.state.agent.gradient_steps) == 76
    result = pendulum.evaluate(episodes=4, tails=(0.5,))
    assert len(result.episodes) == 4 and (result.episodes.length == 200).all()
    assert 0 <= result["cost/mean"] <= result["cost/cvar_0.5"] <= result["cost/worst"]


def test_predict_gives_actions_in_the_environments_box(pendulum):
    one, state = pendulum.predict([1.0, 0.0, 0.0])
    many, _ = pendulum.predict(np.zeros((5, 3)))
    assert one.shape == (1,) and many.shape == (5, 1) and state is None
    assert np.abs(many).max() <= 2.0
    drawn = [
        pendulum.predict([1.0, 0.0, 0.0], deterministic=False, seed=i)[0]
        for i in (1, 2)
    ]
    assert drawn[0] != drawn[1]
    with pytest.raises(ValueError, match=r"shape \(3,\) or \(batch, 3\), got \(4,\)"):
        pendulum.predict(np.zeros(4))


def test_a_saved_agent_comes_back_the_same(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    again = orac.load(tmp_path / "agent.zip", cost_fn=too_fast)
    observation = [0.3, -0.2, 1.0]
    np.testing.assert_array_equal(
        pendulum.predict(observation)[0], again.predict(observation)[0]
    )


def test_an_exported_policy_needs_numpy_alone(pendulum, tmp_path):
    path = tmp_path / "policy.npz"
    pendulum.export(path)
    observation = [0.3, -0.2, 1.0]
    code = (
        "import sys\n"
        "for name in ('jax', 'gymnasium', 'optax', 'jaxtyping'):\n"
        "    sys.modules[name] = None\n"
        "import orac.policy\n"
        f"print(float(orac.policy.load({str(path)!r})({observation})[0]))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert float(told.stdout) == pytest.approx(
        float(pendulum.predict(observation)[0][0]), abs=1e-5
    )


def test_an_environment_object_is_played_by_one_agent_and_its_evaluations():
    env = gymnasium.make("Pendulum-v1")
    agent = orac.SACLagrangian(env, cost_fn=too_fast, settings=TINY)
    agent.learn(300, progress_bar=False)
    assert agent.num_timesteps == 300
    result = agent.evaluate(2)
    assert len(result.episodes) == 2
    # It learned from the mean, and is measured at the tail that other agents have.
    assert agent.config.constraints == (orac.Constraint("cost", 25.0, 0.25),)
    assert result["cost/risk"] == result["cost/cvar_0.25"] >= result["cost/mean"]
    (certificate,) = agent.certify(result.episodes)
    assert "CVaR at 0.25" in certificate.quantity


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


def test_several_constraints_have_names_limits_and_tails_of_their_own():
    def two_costs(observation, action, next_observation, info):
        return [float(abs(next_observation[2]) > 4.0), float(np.abs(action).sum())]

    agent = orac.WCSAC(
        "Pendulum-v1",
        cost_fn=two_costs,
        constraints=[
            orac.Constraint("speed", limit=10, tail=0.25),
            orac.Constraint("effort", limit=150, tail=1.0),
        ],
        settings=TINY,
    )
    agent.learn(200, progress_bar=False)
    result = agent.evaluate(2)
    assert {"cost/speed/mean", "cost/effort/mean", "cost/effort/limit"} <= set(
        result.summary
    )
    assert agent.runner.state.agent.multiplier.value.shape == (2,)


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


@pytest.mark.parametrize("kind", [dict, tuple])
def test_nested_observations_are_taken_as_the_environment_gives_them(kind):
    agent = orac.SAC(lambda: Split(kind), cost_fn=lambda *_: 0.0, settings=TINY)
    observation, _ = Split(kind).reset(seed=3)
    flat = gymnasium.make("Pendulum-v1").reset(seed=3)[0]
    np.testing.assert_array_equal(agent.predict(observation)[0], agent.predict(flat)[0])


def test_a_run_that_will_not_learn_is_warned_about(pendulum):
    # It was there already: nothing is run, and learning starts at the hundredth step.
    with pytest.warns(orac.api.NothingLearned) as told:
        pendulum.learn(100, progress_bar=False)
    (warning,) = told
    assert str(warning.message) == (
        "learning starts at step 100 and the run ends at 100: it only acts at random. "
        "Set training.learning_starts lower, or train longer."
    )
    pendulum.learn(101, progress_bar=False)


def test_learning_can_go_on(pendulum):
    before = jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0].copy()
    pendulum.learn(500, progress_bar=False)
    assert pendulum.num_timesteps == 500
    assert not np.array_equal(
        before, jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0]
    )


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"env": "CartPole-v1"}, "continuous"),
        ({"env": "Pendulum-v1"}, "cost"),
        ({"env": "Pendulum-v1", "cost_fn": lambda *_: float("nan")}, "nan"),
        ({"env": "Pendulum-v1", "cost_fn": lambda obs: 0.0}, "cost_fn"),
        ({"env": GuardedMaze(), "cost_fn": too_fast}, "cost_fn must be None"),
        ({"env": GuardedMaze(), "constraints": [], "tail": 0.5}, "either constraints"),
        (
            {
                "env": GuardedMaze(),
                "constraints": [orac.Constraint("a"), orac.Constraint("b")],
            },
            "Give one constraint per cost",
        ),
        ({"env": GuardedMaze(), "settings": {"agent.kapa": 1}}, "Did you mean 'kappa'"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(options, fragment):
    env = options.pop("env")
    with pytest.raises(ValueError, match=fragment):
        orac.WCSAC(env, **options)
