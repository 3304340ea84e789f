"""Tests of setting fields of a config by dotted name, and of differences between configs."""

import pytest

from orac.config import overrides, presets
from orac.config.schema import Config


def test_assignments_apply_in_order_through_the_same_checks():
    config = overrides.override(
        presets.preset("orac", "orac/GuardedMaze-v0"),
        [
            "agent.kappa=0.5",
            "agent.hidden_sizes=[32, 32]",
            "constraints.0.limit=7",
            "env.params.guard_probability=1e-1",
            "env.params.new=[1, 2]",
            "training.total_steps=1e5",
            "agent.kappa=2e-1",
            "agent.multiplier.cap=null",
        ],
    )
    assert config.agent.kappa == 0.2 and config.agent.hidden_sizes == (32, 32)
    assert config.constraints[0].limit == 7.0
    params = dict(config.env.params)
    assert params["guard_probability"] == 0.1 and params["new"] == (1, 2)
    assert params["normalize_obs"] is True
    assert config.training.total_steps == 100_000


@pytest.mark.parametrize(
    "assignment, message",
    [
        ("agent.kapa=1", "a field of agent must .* Did you mean 'kappa'"),
        ("agnt.kapa=1", "a field of the config must .* Did you mean 'agent'"),
        (
            "hidden_sizes=[3]",
            "a field of the config .* Did you mean 'agent.hidden_sizes'",
        ),
        ("training.kappa=1", "Did you mean 'agent.kappa'\\? The names are total_steps"),
        ("constraints.1.limit=1", "an entry of constraints must be one of 0; got '1'"),
        ("agent.kappa.x=1", "agent.kappa has no fields, got agent.kappa.x"),
        ("agent.kappa", "an assignment must look like agent.kappa=0.5, got 'agent.kap"),
        ("agent.kappa=[", "the value of agent.kappa cannot be read as YAML"),
        ("agent.kappa=-1", "agent.kappa must be above 0, got -1"),
    ],
)
def test_a_bad_assignment_is_named(assignment, message):
    with pytest.raises(ValueError, match=message):
        overrides.override(Config(), [assignment])


def test_differences_are_told_by_dotted_name():
    base = presets.preset("orac", "orac/GuardedMaze-v0")
    assert overrides.difference(base, base) == {}
    changed = overrides.override(
        base, ["agent.kappa=0.5", "constraints.0.tail=0.1", "env.params.extra=3"]
    )
    assert overrides.difference(changed, base) == {
        "agent.kappa": (0.5, 1.0),
        "constraints.0.tail": (0.1, 0.05),
        "env.params.extra": (3, None),
    }
