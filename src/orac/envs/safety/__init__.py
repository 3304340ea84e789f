"""Safety-Gymnasium's tasks on current versions of Python, NumPy and Gymnasium.

`register` adds their ids to Gymnasium. Importing this package needs neither
Safety-Gymnasium nor MuJoCo; making an environment needs both.
"""

from orac.envs.safety.import_compat import INSTALL, missing
from orac.envs.safety.tasks import ENTRY_POINT, register

__all__ = ["ENTRY_POINT", "INSTALL", "missing", "register"]
