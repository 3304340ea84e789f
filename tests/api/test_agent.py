"""Tests of `Agent`: training, predicting, evaluating and exporting."""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace

import jax
import numpy as np
import pytest

import orac
from helpers.pendulum import TINY, too_fast
from helpers.toy_envs import TwoKindsOfStart
from orac.evaluation.episodes import Episodes
from orac.training.export import policy_arrays


def test_a_gymnasium_id_with_a_cost_function_learns(pendulum):
    assert pendulum.num_timesteps == 400
    # One gradient step in four from the hundredth step on.
    assert int(pendulum.runner.state.agent.gradient_steps) == 76
    result = pendulum.evaluate(episodes=4, tails=0.5)
    assert len(result.episodes) == 4 and (result.episodes.length == 200).all()
    assert 0 <= result["cost/mean"] <= result["cost/cvar_0.5"] <= result["cost/worst"]


def test_evaluations_are_the_same_in_any_number_of_environments(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.orac")
    last = {"deterministic": False, "seed": 7, "checkpoint": "last"}
    several = pendulum.evaluate(5, **last).episodes
    one = orac.load(tmp_path / "agent.orac", cost_fn=too_fast)
    evaluation = replace(one.config.evaluation, num_envs=1)
    single = orac.api.Agent(
        "Pendulum-v1", replace(one.config, evaluation=evaluation), cost_fn=too_fast
    )
    single.runner.state = single.runner.state._replace(agent=one.runner.state.agent)
    played = single.evaluate(5, **last).episodes
    assert single.runner.evaluation_env.num_envs == 1
    assert pendulum.runner.evaluation_env.num_envs == 8
    np.testing.assert_array_equal(played.reward, several.reward)
    np.testing.assert_array_equal(played.cost, several.cost)


def test_an_evaluation_plays_the_policy_that_predict_has(pendulum):
    # The evaluation computes actions with NumPy, and predict with JAX.
    host = pendulum.runner.evaluation_env
    policy, mean = pendulum.policy_of()
    arrays = policy_arrays(pendulum.config, pendulum.spec, policy, mean)
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(
        orac.policy.Policy(arrays)(observations),
        pendulum.predict(observations)[0],
        rtol=1e-4,
        atol=1e-5,
    )
    assert host is pendulum.runner.evaluation_env is not pendulum.runner.env


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


BAD_OBSERVATIONS = [
    (np.zeros(4), "must have shape (3,) or (batch, 3), got (4,)"),
    (np.zeros((2, 2, 3)), "must have shape (3,) or (batch, 3), got (2, 2, 3)"),
    (1.0, "must have shape (3,) or (batch, 3), got ()"),
    ("left", "must be an array of 3 real numbers or a batch of such rows, got "),
    ([0.0, np.nan, 0.0], "must be finite"),
    ([[0.0] * 3, [0.0, 0.0, -np.inf]], "must be finite"),
]


@pytest.mark.parametrize(("observation", "says"), BAD_OBSERVATIONS)
def test_an_observation_that_cannot_be_acted_on_is_refused(
    pendulum, observation, says, tmp_path
):
    pendulum.export(tmp_path / "policy.npz")
    for act in (pendulum.predict, orac.policy.load(tmp_path / "policy.npz")):
        with pytest.raises(ValueError, match=re.escape(f"observation {says}")):
            act(observation)


def test_the_number_that_is_not_finite_is_pointed_at(pendulum):
    with pytest.raises(ValueError, match=re.escape("got -inf at index [1, 2]. Check")):
        pendulum.predict([[0.0] * 3, [0.0, 0.0, -np.inf]])


def test_a_nested_observation_of_an_exported_policy_is_to_be_flattened(
    pendulum, tmp_path
):
    pendulum.export(tmp_path / "policy.npz")
    policy = orac.policy.load(tmp_path / "policy.npz")
    with pytest.raises(
        ValueError, match=r"got a dict\. Flatten a Dict or Tuple observation"
    ):
        policy({"angle": [0.0, 1.0], "speed": [0.0]})


def test_another_file_is_no_exported_policy(pendulum, tmp_path):
    pendulum.save(tmp_path / "agent.zip")
    pendulum.export(tmp_path / "whole.npz")
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:500])
    (tmp_path / "my_env.py").write_text("import gymnasium\n")
    (tmp_path / "empty").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    pendulum.export(tmp_path / "policy.onnx")
    others = "half.npz", "my_env.py", "empty", "array.npy", "policy.onnx"
    for name in ("agent.zip", *others):
        with pytest.raises(ValueError) as caught:
            orac.policy.load(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name} must be a policy written by Agent.export as .npz, but it is "
            "another kind of file or incomplete. Use orac.load for a file of Agent.save, "
            "ONNX Runtime for .onnx and jax.export.deserialize for .stablehlo."
        )
    with pytest.raises(FileNotFoundError, match="nowhere"):
        orac.policy.load(tmp_path / "nowhere.npz")


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


def test_a_run_that_will_not_learn_is_warned_about(pendulum, monkeypatch):
    late = replace(pendulum.config.training, learning_starts=500)
    config = replace(pendulum.config, training=late)
    monkeypatch.setattr(pendulum.runner, "config", config)
    monkeypatch.setattr(
        pendulum.runner,
        "configure",
        lambda config: setattr(pendulum.runner, "config", config),
    )
    monkeypatch.setattr(pendulum, "_train", lambda *_: None)
    with pytest.warns(orac.api.ShortRunWarning) as told:
        pendulum.learn(500, progress_bar=False)
    (warning,) = told
    assert str(warning.message) == (
        "learning starts at step 500, but the run ends at 500, so it only acts at random. "
        "Set training.learning_starts lower, or train longer."
    )


def test_training_that_is_not_recorded_in_the_run_directory_warns(
    pendulum, monkeypatch, tmp_path
):
    monkeypatch.setattr(pendulum, "run_path", tmp_path / "seed-000")
    monkeypatch.setattr(pendulum.runner, "configure", lambda config: None)
    monkeypatch.setattr(pendulum, "_train", lambda *_: None)
    with pytest.warns(
        orac.api.NotRecordedWarning,
        match=r"not be written to .*orac.resume\('.*seed-000', "
        r"cost_fn='helpers.pendulum:too_fast', total_timesteps=500\)",
    ):
        pendulum.learn(500, progress_bar=False)


@pytest.mark.parametrize("total", [100, 400])
def test_steps_that_were_taken_already_are_not_silently_nothing(pendulum, total):
    before = pendulum.config
    with pytest.raises(ValueError) as caught:
        pendulum.learn(total, progress_bar=False)
    assert str(caught.value) == (
        "the total number of steps includes the steps of earlier calls, so it must be above "
        f"the 400 steps taken so far, got {total}. To take {total} more steps, pass "
        f"{400 + total}."
    )
    assert pendulum.config is before


def test_learning_without_a_number_of_steps_says_what_to_pass(pendulum):
    advice = r"all 400 steps .* pass more_steps, or a total_timesteps above 400"
    with pytest.raises(ValueError, match=advice):
        pendulum.learn(progress_bar=False)


def test_an_evaluation_does_not_repeat_the_last_one_of_training(pendulum):
    rows = pendulum._history.evaluations
    logged = [x["reward"] for x in rows if x["env_steps"] == pendulum.num_timesteps]
    for seed in (None, pendulum.config.seed):
        result = pendulum.evaluate(len(logged), seed=seed, checkpoint="last")
        assert not {*result.episodes.reward.tolist()} & {*logged}


def test_an_evaluation_above_the_declared_bound_gives_a_warning():
    agent = orac.WCSAC(Understated(), cost_limit=3, tail=0.5, settings=TINY)
    with pytest.warns(UserWarning, match="declared bound .* one episode cost 10"):
        agent.evaluate(50, deterministic=False)


class Understated(TwoKindsOfStart):
    """An environment in which an episode can cost 10, although 5 is declared."""

    @property
    def spec(self):
        return replace(super().spec, cost_bounds=(5.0,))


EARLY = {**TINY, "training.learning_starts": 50}
FREE = Episodes(np.zeros(9), np.zeros((9, 1)), np.ones(9, int))


def assert_refused(agent):
    """Check that nothing is certified, even with episodes that cost nothing."""
    with pytest.raises(
        ValueError, match=r"at least .*, but one episode cost 10 \(train"
    ):
        agent.certify(FREE)


@pytest.mark.parametrize("every", [0, 100])
def test_a_training_episode_above_the_declared_bound_certifies_nothing(tmp_path, every):
    settings = {**EARLY, "evaluation.every": every}
    agent = orac.WCSAC(Understated(), cost_limit=3, tail=0.5, settings=settings)
    agent.certify(FREE)
    agent.learn(100, progress_bar=False, out=tmp_path, trackers=())
    path = agent.run_path
    resumed = orac.resume(
        path, Understated(), total_timesteps=120, progress_bar=False, trackers=()
    )
    for name in ("episodes.csv", "evaluations.csv"):
        (path / name).unlink(missing_ok=True)
    agent.save(tmp_path / "agent.zip")
    assert_refused(agent)
    assert_refused(orac.load(path, Understated()))
    assert_refused(orac.load(tmp_path / "agent.zip", Understated()))
    assert_refused(resumed)


def test_an_agent_of_an_earlier_version_has_no_largest_cost(tmp_path):
    agent = orac.WCSAC(Understated(), cost_limit=3, tail=0.5, settings=EARLY)
    agent.learn(100, progress_bar=False)
    assert_refused(agent)
    agent.save(tmp_path / "agent.zip")

    def load_with(**changes):
        with (
            zipfile.ZipFile(tmp_path / "agent.zip") as source,
            zipfile.ZipFile(tmp_path / "other.zip", "w") as copy,
        ):
            for name in source.namelist():
                data = source.read(name)
                if name == "sizes.json":
                    sizes = json.loads(data)
                    del sizes["largest_cost"]
                    data = json.dumps({**sizes, **changes})
                copy.writestr(name, data)
        return orac.load(tmp_path / "other.zip", Understated())

    load_with().certify(FREE)
    for wrong in (None, 3, ["x"], [-1.0], [float("inf")]):
        with pytest.raises(
            ValueError, match=r"largest_cost in .* must be a list of fin"
        ):
            load_with(largest_cost=wrong)


def test_steps_of_a_wrong_shape_are_refused_before_training():
    class OneCost(TwoKindsOfStart):
        @property
        def spec(self):
            return replace(super().spec, cost_names=("a", "b"), cost_bounds=(9.0, 9.0))

    constraints = [orac.Constraint(name, 3, 0.5) for name in "ab"]
    with pytest.raises(
        ValueError, match=r"with the shape \(2,\) .* got the shape \(1,\)"
    ):
        orac.ORAC(OneCost(), constraints=constraints, settings=TINY)


def test_learning_can_go_on(pendulum):
    before = jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0].copy()
    pendulum.learn(500, progress_bar=False)
    assert pendulum.num_timesteps == 500
    assert not np.array_equal(
        before, jax.tree.leaves(pendulum.runner.state.agent.actor.params)[0]
    )
