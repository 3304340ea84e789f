"""`orac evaluate`: evaluate a trained policy or a hand-coded rule.

The results are printed, and on request certified, saved as a run and filmed.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orac.runs.saved_evaluations as saved_evaluations
from orac.api import Agent, load
from orac.config.schema import Config
from orac.evaluation.baselines import evaluate_rule, rule_config
from orac.evaluation.certificates import Certificate, violation_sentence
from orac.evaluation.intervals import check_level
from orac.evaluation.result import Evaluation, certify
from orac.evaluation.rollout import check_episodes, check_video_path, record_video


@dataclass(frozen=True)
class Evaluated:
    """One evaluation with everything that is printed and saved about it."""

    result: Evaluation
    config: Config
    cost_names: tuple[str, ...]
    source: dict[str, Any]
    """What was evaluated and how, for meta.json."""
    name: str
    """Name of the directory below `--out`."""
    certificates: list[str]
    agent: Agent | None = None

    @classmethod
    def make(cls, result, config, cost_names, source, name)-> "Evaluated":
        ...
