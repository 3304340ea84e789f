"""Risk-averse constrained reinforcement learning.

Public names are imported when they are first used, so `import orac` is fast and an exported
policy runs without JAX and Gymnasium.
"""

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any


def _leave(number: int, frame: Any) -> None:
    """End the process at once, with the exit code that shells expect.

    A file that replaces another is safe, because it is renamed into place only when it is
    complete. Raising an exception instead is not reliable, because an import or a compiler
    could swallow it.
    """
    try:
        sys.stdout.flush()
        os.write(2, b"\nStopped.\n")
    finally:
        os._exit(128 + number)


# In the program `orac`, Ctrl-C and SIGTERM must not show a traceback, not even during
# imports. So this code comes before all large imports. Training and sweeps replace these
# handlers, to save a checkpoint before they stop.
if os.path.basename((sys.argv or [""])[0]) in ("orac", "-m"):
    for _number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _leave)

__version__ = "0.1.0"

_HOMES = {
    "ORAC": "orac.api.constructors",
    "WCSAC": "orac.api.constructors",
    "SACLagrangian": "orac.api.constructors",
    "SAC": "orac.api.constructors",
    "Agent": "orac.api.agent",
    "Evaluation": "orac.api.evaluation",
    "make_agent": "orac.api.constructors",
    "load": "orac.api.loading",
    "resume": "orac.api.loading",
    "Config": "orac.config.schema",
    "Constraint": "orac.config.schema",
    "RiskMeasure": "orac.config.schema",
    "preset": "orac.config.presets",
    "Monitor": "orac.monitor",
}

if TYPE_CHECKING:
    from orac.api.agent import Agent
    from orac.api.constructors import ORAC, SAC, WCSAC, SACLagrangian, make_agent
    from orac.api.evaluation import Evaluation
    from orac.api.loading import load, resume
    from orac.config.presets import preset
    from orac.config.schema import Config, Constraint, RiskMeasure
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


# Register the environments of orac with Gymnasium. Exported policies run without Gymnasium,
# so it is no error if Gymnasium is not installed.
try:
    import orac.envs  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
