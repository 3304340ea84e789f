"""Every number a run depends on, in frozen dataclasses that check themselves.

Each field is followed by the sentence that `orac train --help` prints. A config is
hashable and static under `jit`. Presets that hold the paper's tables are in
`presets.py`; YAML and `--set` are in `config_text.py`.
"""

from orac.config.agent import (
    AgentConfig,
    ExplorationConfig,
    MultiplierConfig,
    PivotConfig,
)
from orac.config.constraint import Constraint
from orac.config.run import Config, EnvConfig, EvaluationConfig, TrainingConfig

__all__ = [
    "AgentConfig",
    "Config",
    "Constraint",
    "EnvConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "MultiplierConfig",
    "PivotConfig",
    "TrainingConfig",
]
