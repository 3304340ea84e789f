"""Tests of configs as text: round trips lose nothing, and errors name the wrong field."""

import dataclasses
import itertools
import time

import numpy as np
import pytest
import yaml

from orac.config import overrides, presets, serialization
from orac.config.schema import Config, Constraint, EnvConfig, MultiplierConfig

ENVIRONMENTS = (
    "orac/GuardedMaze-v0",
    "orac/SafetyPointButton1-v0",
    "orac/CityLearn-v0",
    "Pendulum-v1",
)


@pytest.mark.parametrize(
    "algo, env_id", tuple(itertools.product(presets.ALGORITHMS, ENVIRONMENTS))
)
def test_every_preset_survives_a_round_trip_through_yaml(algo, env_id):
    config = presets.preset(algo, env_id)
    assert serialization.parse(serialization.dump(config)) == config


def test_a_config_of_unusual_values_survives_a_round_trip():
    config = Config(
        seed=7,
        env=EnvConfig(
            "a/b-v0", (("cells", (1, (2, 3))), ("word", "on"), ("none", None))
        ),
        constraints=(
            Constraint("a", limit=np.float64(1e-7), tail=1e-3),
            Constraint("b", risk="cpw", risk_parameter=0.71),
        ),
        agent=dataclasses.replace(
            Config().agent,
            kappa=np.float64(1e-5),
            multiplier=MultiplierConfig(cap=1e9, pid=True),
        ),
    )
    back = serialization.parse(serialization.dump(config))
    assert back == config and hash(back) == hash(config)


@pytest.mark.parametrize("text", ["1e5", ".5e3", "1:30", "no", "~", "2020-01-01"])
def test_text_that_looks_like_another_value_stays_text(text):
    config = Config(env=EnvConfig(text, (("name", text),)))
    assert serialization.parse(serialization.dump(config)) == config


def test_text_is_plain_yaml_in_the_order_of_the_fields():
    text = serialization.dump(presets.preset("orac", "orac/GuardedMaze-v0"))
    data = yaml.safe_load(text)
    assert list(data) == [f.name for f in dataclasses.fields(Config)]
    assert data["env"]["params"] == {"guard_probability": 0.15, "normalize_obs": True}
    assert "!!" not in text


def test_a_file_is_read_and_what_it_leaves_out_keeps_its_default(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("seed: 3\nagent: {kappa: 0.5}\n")
    config = serialization.load(path)
    agent = dataclasses.replace(Config().agent, kappa=0.5)
    assert config == Config(seed=3, agent=agent)


@pytest.mark.parametrize(
    "text, value",
    [
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        ("-2.5e+1", -25.0),
        (".5e0", 0.5),
        ("1_0e1", 100.0),
        ("3", 3),
        ("0.5", 0.5),
        ("1e5x", "1e5x"),
        ("e5", "e5"),
        ("on", True),
        ("null", None),
        ("[64, 64]", [64, 64]),
    ],
)
def test_values_mean_what_they_look_like(text, value):
    assert serialization.read_yaml(text, "x") == value


def test_numbers_find_their_type():
    text = "training: {total_steps: 1e6, gradient_steps: 1}\nagent: {kappa: 1e-3}"
    config = serialization.parse(text)
    steps, gradients = config.training.total_steps, config.training.gradient_steps
    assert steps == 1_000_000 and isinstance(steps, int)
    assert gradients == 1 and isinstance(gradients, float)
    assert config.agent.kappa == 1e-3


@pytest.mark.parametrize(
    "text, message",
    [
        ("agent: {kapa: 1}", "a field of agent must be one of .* 'kapa'. .* 'kappa'"),
        ("sed: 1", "a field of the config must be .* got 'sed'. Did you mean 'seed'"),
        ("agent: {multiplier: {inital: 1}}", "of agent.multiplier .* 'initial'"),
        ("constraints: [{limits: 1}]", r"of constraints\[0\] .* Did you mean 'limit'"),
        ("constraints: {limit: 1}", "constraints must be a list, got {'limit': 1}"),
        ("agent: 3", "agent must be a mapping of names to values, got 3"),
        ("", "the config must be a mapping of names to values, got None"),
        ("seed: 1.5", "seed must be a whole number, got 1.5"),
        ("seed: true", "seed must be a whole number, got True"),
        ("agent: {kappa: wide}", "agent.kappa must be a number, got 'wide'"),
        ("agent: {kappa: '1'}", "agent.kappa must be a number, got '1'"),
        ("agent: {layer_norm: 1}", "agent.layer_norm must be true or false, got 1"),
        (
            "agent: {hidden_sizes: 64}",
            r"agent.hidden_sizes must be a list, got 64. Write \[64\].",
        ),
        ("constraints: 5", "constraints must be a list, got 5.$"),
        ("agent: {hidden_sizes: [a]}", r"hidden_sizes\[0\] must be a whole number"),
        ("algo: 3", "algo must be text, got 3"),
        ("env: {params: [1]}", r"env.params must be a mapping, got \[1\]"),
        ("agent: [1", "the config cannot be read as YAML: while parsing"),
        # Through the same checks as Python's own arguments.
        ("constraints: [{tail: 0}]", r"must be in \(0, 1\]"),
        ("constraints: [{limit: .nan}]", "must be at least 0, got nan"),
        ("agent: {num_cost_critics: 0}", "a whole number of at least 1, got 0"),
    ],
)
def test_a_slip_of_the_pen_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        serialization.parse(text)


def test_a_file_never_runs_code():
    for text in ("!!python/object/apply:os.getcwd []", "!!python/name:os.getcwd"):
        with pytest.raises(
            ValueError, match="cannot be read as YAML: could not determine"
        ):
            serialization.parse(text)


def nested(levels):
    """A list of ten, of which each further level holds ten aliases."""
    text = "[x,x,x,x,x,x,x,x,x,x]"
    for i in range(1, levels):
        text = f"[&b{i} {text}," + ",".join([f"*b{i}"] * 9) + "]"
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"seed: {nested(9)}", "contains more than 50,000 values"),
        ("seed: &a [*a]", "contains more than 50,000 values"),
        ("[" * 3000, "nested deeper than 30 levels"),
        ("{a: " * 3000, "nested deeper than 30 levels"),
        ("seed: 0\nseed: 1\n", "line 2 repeats the key 'seed'"),
        ("agent: {kappa: 1, 'kappa': 2}", "line 1 repeats the key 'kappa'"),
        ("env: {params: {0x1: a, 1: b}}", "line 1 has two keys with the same value"),
        (
            "seed: 0\nenv: {params: {true: a, yes: b}}",
            "line 2 has two keys with the sa",
        ),
        ("env: {params: {0x1: a, '1': b}}", "line 1 has two keys with the same value"),
        (f"seed: {'9' * 5000}", "a number of more than 100 digits"),
        (f"seed: 1{':59' * 3000}", "a number of more than 100 digits"),
        ("seed: 2020-13-45", "month must be in 1..12"),
        ("# " * 150_000, "at most 262,144 characters"),
        ("seed: \x00", "cannot be read as YAML"),
    ],
)
def test_yaml_that_is_too_large_or_ambiguous_is_refused(text, message):
    with pytest.raises(ValueError, match=message) as error:
        serialization.parse(text)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("digits", ["1", "1_", "_1", "1."])
def test_a_long_text_of_digits_is_read_quickly(digits):
    text = digits * (100_000 // len(digits)) + "x"
    started = time.process_time()
    assert serialization.read_yaml(f"a: {text}", "it") == {"a": text}
    assert time.process_time() - started < 10


def test_a_key_may_replace_that_of_a_merged_mapping():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}"
    assert serialization.read_yaml(text, "it")["b"] == {"x": 1, "y": 3}


def test_an_alias_that_is_not_too_large_is_allowed():
    assert serialization.read_yaml("a: &x [1, 2]\nb: *x", "it") == {
        "a": [1, 2],
        "b": [1, 2],
    }


def test_every_field_has_a_sentence():
    sentences = serialization.field_help()
    flat = overrides.flatten(serialization.to_dict(Config()))
    assert set(flat) <= {*sentences}
    for name, sentence in sentences.items():
        assert len(sentence) > 15 and sentence.endswith("."), name
    assert sentences["constraints.0.tail"].startswith("CVaR is the mean cost")
