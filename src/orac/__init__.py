"""Risk-averse constrained reinforcement learning.

`import orac` is cheap: names are imported when they are first used, so that an exported
policy runs where neither JAX nor Gymnasium is installed.
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

__all__ = [
    "ORAC",
    "SAC",
    "WCSAC",
    "Agent",
    "Config",
    "Constraint",
    "Evaluation",
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


# Gymnasium learns our environments' names with the import. Only where Gymnasium itself is
# missing, as beside an exported policy, is that no error.
try:
    import orac.envs  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
