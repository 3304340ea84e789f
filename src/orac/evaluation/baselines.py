"""Policies that nobody trained: what a learned one has to be better than.

Each is made for one environment and evaluated like an agent. They see what an agent
sees, nothing more.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from orac import envs
from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.envs.base import EnvSpec
from orac.envs.baselines import check_baseline, make_baseline
from orac.evaluation.result import Episodes, summarise
from orac.evaluation.rollout import roll_out


def rule_config(
    env_id: str, name: str, seed: int = 0, assignments: Sequence[str] = ()
) -> Config:
    """The paper's config in that environment, under the rule's name.

    What it says about environment, constraints and seed holds for a rule too; what it
    says about learning does not. `assignments` are words such as `constraints.0.tail=0.1`.
    """
    check_baseline(env_id, name)
    config = replace(presets.preset("orac", env_id), algo=name, seed=seed)
    return config_text.override(config, list(assignments))


def evaluate_rule(
    config: Config, episodes: int, tails: Sequence[float] = ()
) -> tuple[dict[str, float], Episodes, EnvSpec]:
    """Whole episodes of a rule under a `rule_config`, and its numbers."""
    env = envs.make(config.env.id, **dict(config.env.params))
    baseline = make_baseline(config.env.id, config.algo, env)
    key = jax.random.key(config.seed)
    rolled = roll_out(
        key, None, env, lambda _, __, observed: baseline(observed), episodes
    )
    summary = summarise(
        rolled, config.constraints, env.spec.cost_names, env.spec.metrics, tails
    )
    return summary, rolled, env.spec
