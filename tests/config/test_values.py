"""Tests of every number in a config, with every kind of wrong value and every way to set it.

A value that is outside of the field's range, or of another type, raises an error of one
sentence that names the field. An accepted value is finite and is read back unchanged.
"""

import dataclasses
import math
import types
import typing

import pytest

from orac.config import overrides, presets, serialization
from orac.config.schema import AgentConfig, Config
from orac.config.validation import FLOAT32_MAX, MAX_COUNT, Range
from orac.experiments.sweep import parse_grid

BASE = presets.preset("orac", "orac/GuardedMaze-v0")


def numeric_fields(kind=Config, prefix=""):
    """Yield the dotted name, the type (int or float) and the range of every number."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        dotted, rule = f"{prefix}{name}", Range()
        while True:
            origin, arguments = typing.get_origin(hint), typing.get_args(hint)
            if origin is typing.Annotated:
                rule = arguments[1] if isinstance(arguments[1], Range) else rule
            elif origin is tuple:
                dotted += ".0"
            elif origin not in (types.UnionType, typing.Union):
                break
            hint = arguments[0]
        if dataclasses.is_dataclass(hint):
            yield from numeric_fields(hint, f"{dotted}.")
        elif hint in (int, float):
            yield dotted, hint, rule


FIELDS = [*numeric_fields()]

WRONG = [
    *("nan", "inf", "-inf", ".nan", ".inf", "-.inf"),
    *("1e39", "1e400", "-1e39", "9" * 400),
    *(
        "text",
        "''",
        "true",
        "[1, 2]",
        "{a: 1}",
        "2020-01-01",
        "0x",
        "1+1",
        "[]",
        "[[]]",
    ),
]
"""Values that no number can have."""
EDGES = ["0", "-1", "-0.5", "0.5", "1.5", "1e9", "1e12", "1e30", "1e-30", "-0.0"]
"""Values that some numbers can have."""


def test_there_are_numbers_in_every_section():
    names = [name for name, _, _ in FIELDS]
    assert len(names) > 40
    for section in ("seed", "env.", "constraints.0.", "agent.pivot.", "training."):
        assert any(name.startswith(section) for name in names)


def by_option(field, text):
    return overrides.override(BASE, [f"{field}={text}"])


def by_file(field, text):
    data = serialization.to_dict(BASE)
    overrides.assign(data, field, serialization.read_yaml(text, "the value"))
    return serialization.parse(serialization.write_yaml(data))


def by_grid(field, text):
    value = serialization.read_yaml(text, "the value")
    grid = {"set": {field: value}} if field != "seed" else {"seeds": [value]}
    study, seeds = parse_grid(grid)
    return dataclasses.replace(study.cases[0].config, seed=seeds[0])


WAYS = {by_option: None, by_file: ("nan", "''", "-1"), by_grid: ("inf", "true", "0.5")}
"""Ways to set a value. Those of files share the checks of the first, so a few are enough."""


def ways_and(texts):
    """Yield each way to set a value with each of the texts that it is tried with."""
    for way, some in WAYS.items():
        yield from ((way, text) for text in texts if some is None or text in some)


def check_refusal(error, field):
    """Check that an error is one sentence, names the field and is not too long."""
    message = str(error)
    ending = [part for part in field.split(".") if not part.isdigit()][-1]
    named = {"limit": "limit", "tail": "tail", "risk_parameter": "risk_parameter"}
    wanted = named.get(ending, ending)
    assert wanted in message or "the value cannot be read as YAML" in message, message
    assert "\n" not in message and message.endswith(".") and len(message) < 600


def read_back(config, field):
    value = overrides.flatten(serialization.to_dict(config)).get(field)
    if value is None:
        parent, _, index = field.rpartition(".")
        value = overrides.flatten(serialization.to_dict(config))[parent]
        value = value[int(index)] if isinstance(value, list | tuple) else value
    return value


@pytest.mark.parametrize(("field", "kind", "rule"), FIELDS, ids=lambda x: str(x)[:40])
def test_what_is_no_number_is_refused(field, kind, rule):
    for way, text in ways_and(WRONG):
        with pytest.raises(ValueError) as error:
            way(field, text)
        check_refusal(error.value, field)


@pytest.mark.parametrize(("field", "kind", "rule"), FIELDS, ids=lambda x: str(x)[:40])
def test_a_number_outside_of_its_range_is_refused(field, kind, rule):
    for way, text in ways_and(EDGES):
        value = float(text)
        outside = value < rule.low or (rule.open_low and value == rule.low)
        outside = outside or value > min(rule.high, FLOAT32_MAX)
        if kind is int:
            outside = outside or not value.is_integer() or value > MAX_COUNT
        try:
            config = way(field, text)
        except ValueError as error:
            check_refusal(error, field) if outside else None
            assert "\n" not in str(error)
            continue
        assert not outside, f"{field}={text} was accepted"
        assert serialization.parse(serialization.dump(config)) == config
        number = read_back(config, field)
        assert type(number) is kind and math.isfinite(number) and number == value


@pytest.mark.parametrize(
    "grid",
    [
        *({"seeds": x} for x in (0, -1, 1.5, math.nan, "", "3", True, None, {}, 10**9)),
        *({"seeds": [x]} for x in (-1, 1.5, math.nan, "", True, None, [], 2**32)),
        *({"envs": x} for x in ([], "", [""], None, 3, [[]], {"a": 1})),
        *({"algos": x} for x in ([], "", [""], None, 3, [[]])),
        *({"vary": x} for x in (3, "x", [1], {"agent.kappa": []}, {"": [1]})),
        *({"set": x} for x in (3, "x", [1], {"agent.kappa": ""}, {"": 1})),
        *({"name": x} for x in ("", "../x", "a/b", "a b", None, 3.5, [])),
        *({x: 1} for x in ("", 3, None, "seed")),
    ],
    ids=repr,
)
def test_a_wrong_value_in_a_grid_is_one_sentence(grid):
    try:
        study, seeds = parse_grid(grid)
    except ValueError as error:
        assert "\n" not in str(error) and str(error).endswith((".", "?"))
        return
    # A number is a name too; nothing else is accepted.
    assert grid in ({"name": 3.5}, {"name": None}) and study.cases and seeds


def test_a_network_has_at_most_16_hidden_layers():
    AgentConfig(hidden_sizes=(8,) * 16)
    with pytest.raises(ValueError, match=r"hidden_sizes must have .* at most 16, got"):
        AgentConfig(hidden_sizes=(8,) * 300)
