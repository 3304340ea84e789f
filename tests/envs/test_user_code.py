"""Tests of importing cost functions by name."""

import sys

import pytest

from orac.envs.user_code import import_cost_fn, name_of_cost_fn

MODULE = """
CALLS = 3
def too_fast(obs, action, next_obs, info):
    return float(abs(next_obs[2]) > 4.0)
class Costs:
    @staticmethod
    def none(obs, action, next_obs, info):
        return 0.0
"""


@pytest.fixture
def own_costs(tmp_path, monkeypatch):
    """A user's module `own_costs` that can be imported."""
    (tmp_path / "own_costs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_costs", None)


def test_import_cost_fn_finds_a_static_method(own_costs):
    assert import_cost_fn("own_costs:Costs.none")(0, 0, 0, {}) == 0.0


def test_name_of_cost_fn_is_the_name_of_the_function_or_class():
    class SpeedCost:
        def __call__(self, *_):
            return 0.0

    assert name_of_cost_fn(name_of_cost_fn) == "orac.envs.user_code:name_of_cost_fn"
    assert name_of_cost_fn(SpeedCost()).endswith("SpeedCost")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_fast", "my_costs:too_fast"),
        ("own_costs:", "its name as module:function, got 'own_costs:'"),
        (":too_fast", "its name as module:function"),
        ("no_such_module:too_fast", "which cannot be imported"),
        ("own_costs:too_fats", "has no function 'too_fats'. Did you mean 'too_fast'?"),
        ("own_costs:CALLS", "(observation, action, next_observation, info), got 3"),
        ("", "its name as module:function, got ''"),
    ],
)
def test_import_cost_fn_explains_a_wrong_name(own_costs, name, message):
    with pytest.raises(ValueError) as caught:
        import_cost_fn(name)
    assert message in str(caught.value)
