"""Tests of the errors without the package. They run whether or not it is installed."""

import importlib.util
import sys

import gymnasium
import pytest

from orac.envs import safety
from orac.envs.safety import import_compat

safety.register()

INSTALL = (
    'pip install "orac-rl[safety]" && pip install --no-deps safety-gymnasium==1.0.0'
)


@pytest.fixture
def hide(monkeypatch):
    """Return a function that makes modules look as if they were not installed."""

    def hide_modules(*names):
        original = importlib.util.find_spec

        def find_spec(name, *args):
            return None if name in names else original(name, *args)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(import_compat, "load", import_compat.load.__wrapped__)

    return hide_modules


@pytest.mark.parametrize(
    "id", ["orac/SafetyPointGoal1-v0", "SafetyCarPush1-v0", "SafetyAntVelocity-v1"]
)
def test_making_an_environment_without_the_package_prints_install_commands(hide, id):
    hide("safety_gymnasium")
    with pytest.raises(ImportError) as error:
        gymnasium.make(id)
    assert "needs safety_gymnasium" in str(error.value)
    assert str(error.value).endswith(f"which must be installed first: {INSTALL}")


def test_missing_lists_every_module_that_is_not_installed(hide):
    hide("safety_gymnasium", "xmltodict")
    assert import_compat.missing() == ("safety_gymnasium", "xmltodict")
    with pytest.raises(ImportError, match="safety_gymnasium and xmltodict"):
        import_compat.load()
