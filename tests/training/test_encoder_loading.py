"""Tests of agents with an encoder: given by name or as functions, saved, resumed, refused."""

import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import orac
from helpers import encoder_examples as examples
from helpers.encoder_examples import CONVOLUTION, Screen
from orac.cli.main import main
from orac.config import serialization
from orac.envs.user_code import ALLOWED_MODULES, NotImported, allow_module
from orac.runs.directory import read_meta, run_path
from orac.training.encoder_loading import (
    checked_pair,
    encoder_of_file,
    import_encoder,
    name_of_pair,
    with_encoder,
)

NAME = "helpers.encoder_examples:CONVOLUTION"
SETTINGS = {
    "agent.hidden_sizes": [8, 8],
    "agent.num_quantiles": 4,
    "agent.num_cost_critics": 1,
    "training.learning_starts": 20,
    "training.batch_size": 8,
    "training.buffer_size": 100,
    "training.log_every": 20,
    "training.checkpoint_every": 40,
    "training.gradient_steps": 0.5,
    "evaluation.every": 40,
    "evaluation.episodes": 2,
    "evaluation.num_envs": 2,
}
OPTIONS = {"cost_limit": 2.0, "tail": 0.5, "num_envs": 2, "settings": SETTINGS}
IMAGES = np.random.default_rng(0).integers(0, 256, (20, *examples.SHAPE), np.uint8)


def make(encoder=CONVOLUTION, **changes):
    options = {**OPTIONS, "settings": {**SETTINGS, **changes}}
    return orac.ORAC(Screen, encoder=encoder, **options)


def state_bytes(agent):
    leaves = jax.tree.leaves(agent.runner.state.agent)
    return [np.asarray(leaf).tobytes() for leaf in leaves]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An agent that was trained without a stop, with its run directory."""
    return make().learn(
        80, progress_bar=False, out=tmp_path_factory.mktemp("whole"), trackers=()
    )


def test_an_agent_learns_from_images(whole):
    config = whole.config
    assert config.agent.encoder.name == NAME
    assert not config.agent.normalize_observations
    fresh = make()
    for old, new in zip(
        jax.tree.leaves(fresh.runner.state.agent.actor.params.encoder),
        jax.tree.leaves(whole.runner.state.agent.actor.params.encoder),
        strict=True,
    ):
        assert not np.array_equal(old, new)
    # What the run delivers is one of its candidates, whose encoder is its own.
    assert whole.best is not None
    evaluation = whole.evaluate(4)
    assert 0 <= evaluation["cost/mean"] <= 5
    sampled = whole.evaluate(4, deterministic=False)
    assert sampled["cost/mean"] != evaluation["cost/mean"]


def test_the_settings_can_scale_observations_again():
    agent = make(**{"agent.normalize_observations": True})
    assert agent.config.agent.normalize_observations


def test_predict_takes_images_or_flat_vectors(whole):
    actions, _ = whole.predict(IMAGES)
    assert actions.shape == (20, 2)
    np.testing.assert_array_equal(whole.predict(IMAGES.reshape(20, -1))[0], actions)
    one, _ = whole.predict(IMAGES[3])
    np.testing.assert_allclose(one, actions[3], atol=1e-6)


def test_a_stopped_run_continues_bit_for_bit(whole, tmp_path):
    stop_at_40 = dict(callback=lambda event: event.step < 40)
    agent = make().learn(
        80, progress_bar=False, out=tmp_path, trackers=(), **stop_at_40
    )
    assert agent.num_timesteps == 40
    again = orac.resume(
        agent.run_path, Screen, encoder=CONVOLUTION, progress_bar=False, trackers=()
    )
    assert again.num_timesteps == 80
    assert state_bytes(again) == state_bytes(whole)
    for name in ("metrics.csv", "evaluations.csv"):
        path = again.run_path / name
        assert path.read_bytes() == (whole.run_path / name).read_bytes()


def test_resume_reports_another_encoder(whole):
    messages = []
    other = (examples.init, lambda params, image: examples.apply(params, image))
    orac.resume(
        whole.run_path, Screen, encoder=other, progress_bar=False, log=messages.append
    )
    assert any(f"started with the encoder {NAME}" in text for text in messages)


def test_a_saved_agent_predicts_the_same(whole, tmp_path):
    whole.save(tmp_path / "agent")
    wanted, _ = whole.predict(IMAGES)
    for source in (tmp_path / "agent", whole.run_path):
        with pytest.raises(
            NotImported, match=f"the encoder is '{NAME}', and orac never"
        ):
            orac.load(source, Screen)
        agent = orac.load(source, Screen, encoder=NAME)
        np.testing.assert_array_equal(agent.predict(IMAGES)[0], wanted)
        assert state_bytes(agent) == state_bytes(whole)


def test_another_encoder_does_not_fit_a_saved_agent(whole, tmp_path):
    whole.save(tmp_path / "agent")
    other = (examples.init, lambda params, image: image.reshape(-1))
    for source in (tmp_path / "agent", whole.run_path):
        with pytest.raises(
            ValueError, match=r"must fit .*encoder|If it has an encoder"
        ):
            orac.load(source, Screen, encoder=other)


def test_a_run_records_where_its_encoder_is(whole):
    assert serialization.load(whole.run_path / "config.yaml").agent.encoder == NAME
    file = str(Path(examples.__file__))
    module, name = NAME.split(":")
    found = {"module": module, "file": file, "name": name}
    assert read_meta(whole.run_path)["encoder"] == found


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("CONVOLUTION", "its name as module:pair, got 'CONVOLUTION'"),
        ("no_such_module:PAIR", "cannot be imported"),
        (NAME.replace("CONV", "KONV"), "has no pair 'KONVOLUTION'. Did you mean 'CONV"),
        ("helpers.encoder_examples:init", "must be a pair of functions, init"),
        ((examples.init, examples.divided_by_zero), "features .* must be finite"),
        ((examples.init, examples.as_matrix), "must return a vector"),
    ],
)
def test_what_is_no_encoder_is_refused_before_training(encoder, message):
    with pytest.raises(ValueError, match=message):
        make(encoder)


class Unhashable:
    __hash__ = None

    def __call__(self, params, observation):
        return observation


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (examples.init, "must be a pair of functions, init"),
        ((examples.init,), "must be a pair of functions, init"),
        ((examples.init, "apply"), "must be a pair of functions, init"),
        ((examples.init, Unhashable()), "functions that can be hashed"),
    ],
)
def test_a_pair_must_be_two_functions(pair, message):
    with pytest.raises(ValueError, match=message):
        checked_pair(pair, "encoder")
    assert checked_pair([*CONVOLUTION], "encoder") == CONVOLUTION


def test_images_without_an_encoder_get_a_warning_that_names_it():
    with pytest.warns(UserWarning, match=r"Without an encoder.*image_encoder"):
        make(encoder=None)


def test_a_pair_has_the_name_of_its_place():
    assert name_of_pair(*CONVOLUTION) == NAME
    nowhere = name_of_pair(examples.init, examples.as_matrix)
    assert nowhere == "helpers.encoder_examples:(init, as_matrix)"
    with pytest.raises(NotImported, match="Pass the pair itself as encoder=") as caught:
        encoder_of_file(nowhere)
    text = vars(caught.value)["shell_text"]
    assert "cannot be imported by its name: write ENCODER = (init, apply)" in text


def test_a_file_may_name_only_the_top_level_of_an_allowed_module(monkeypatch):
    monkeypatch.setattr("orac.training.encoder_loading.ALLOWED_MODULES", set())
    with pytest.raises(NotImported) as refusal:
        encoder_of_file(NAME)
    assert refusal.value.options == ("--encoder", NAME)
    allowed = {NAME.partition(":")[0]}
    monkeypatch.setattr("orac.training.encoder_loading.ALLOWED_MODULES", allowed)
    assert encoder_of_file(NAME) == import_encoder(NAME)
    with pytest.raises(ValueError, match="must be at the top level"):
        encoder_of_file(NAME.replace(":", ":np."))


MODULE = """
from pathlib import Path
from helpers.encoder_examples import CONVOLUTION
Path(__file__).with_name("was_run").touch()
PAIR = (CONVOLUTION[0], CONVOLUTION[1])
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a user's module that leaves a file when it is run."""
    (tmp_path / "own_networks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    gymnasium.register("Screen-v0", Screen)
    yield tmp_path
    del gymnasium.registry["Screen-v0"]
    sys.modules.pop("own_networks", None)
    ALLOWED_MODULES.discard("own_networks")


def was_run(own):
    sys.modules.pop("own_networks", None)
    found = (own / "was_run").exists()
    (own / "was_run").unlink(missing_ok=True)
    return found


def test_the_command_line_imports_an_encoder_only_if_it_is_typed(own, capsys):
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    typed = ["--cost-limit=2", "--tail=0.5", "--num-envs=2", "--total-steps=40"]
    train = ["train", "--env-id=Screen-v0", "--quiet", "--out=runs", *typed, *settings]
    assert main([*train, "--encoder=own_networks:PAIR"]) == 0
    path = run_path(Path("runs"), "Screen-v0", "orac", 0, "default")
    again = f"orac evaluate {path} --encoder own_networks:PAIR"
    assert again in capsys.readouterr().out
    assert was_run(own)
    config = serialization.load(path / "config.yaml")
    assert config.agent.encoder == "own_networks:PAIR"
    assert not config.agent.normalize_observations
    for command in (["evaluate", str(path)], ["resume", str(path)]):
        assert main(command) == 1
        refusal = capsys.readouterr().err
        assert "Add --encoder own_networks:PAIR or --import own_networks" in refusal
        assert f"orac {' '.join(command)} --encoder own_networks:PAIR" in refusal
        assert not was_run(own)
    assert main(["train", f"--config={path / 'config.yaml'}", "--out=others"]) == 1
    assert not was_run(own) and not Path("others").exists()
    evaluate = ["evaluate", str(path), "--episodes=2"]
    assert main([*evaluate, "--encoder=own_networks:PAIR"]) == 0
    assert main([*evaluate, "--import=own_networks"]) == 0


def test_with_encoder_keeps_an_encoder_that_a_config_already_has(whole):
    config = whole.config
    assert with_encoder(config, None) is config
    allow_module("helpers.encoder_examples")
    try:
        named = serialization.parse(serialization.dump(config))
        assert with_encoder(named, None).agent == config.agent
    finally:
        ALLOWED_MODULES.discard("helpers.encoder_examples")
