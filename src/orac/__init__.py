"""Risk-averse constrained reinforcement learning.

Public names are imported when they are first used, so `import orac` is fast and an exported
policy runs without JAX and Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ORAC": "orac.api",
    "WCSAC": "orac.api",
    "SACLagrangian": "orac.api",
    "SAC": "orac.api",
    "Agent": "orac.api",
    "Evaluation": "orac.evaluation.result",
    "make_agent": "orac.api",
    "load": "orac.api",
    "resume": "orac.api",
    "Config": "orac.config.schema",
    "Constraint": "orac.config.schema",
    "RiskMeasure": "orac.config.schema",
    "preset": "orac.config.presets",
    "Monitor": "orac.monitor",
}

if TYPE_CHECKING:
    from orac.api import (
        ORAC,
        SAC,
        WCSAC,
        Agent,
        SACLagrangian,
        load,
        make_agent,
        resume,
    )
    from orac.config.presets import preset
    from orac.config.schema import Config, Constraint, RiskMeasure
    from orac.evaluation.result import Evaluation
    from orac.monitor import Monitor

__all__ = [
    "ORAC",
    "SAC",
    "WCSAC",
    "Agent",
    "Config",
    "Constraint",
    "Evaluation",
    "Monitor",
    "RiskMeasure",
    "SACLagrangian",
    "load",
    "make_agent",
    "preset",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    try:
        return importlib.import_module(f"orac.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"orac.{name}":
            raise
        raise AttributeError(f"module 'orac' has no attribute {name!r}") from None


# Register our environments with Gymnasium. An exported policy also runs without Gymnasium,
# so a missing Gymnasium is not an error here.
try:
    import orac.envs  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
