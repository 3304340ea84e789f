"""`orac evaluate`: episodes of a trained policy or of a rule, printed, certified, kept."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orac.api import Agent
from orac.config.schema import Config
from orac.envs.base import EnvSpec
from orac.evaluation import baselines as rules
from orac.evaluation.certificates import violation_sentence
from orac.evaluation.intervals import check_level
from orac.evaluation.result import Evaluation, certify
from orac.evaluation.rollout import check_episodes
from orac.loading import load
from orac.runs import saved_evaluations as kept


@dataclass(frozen=True)
class Evaluated:
    """One evaluation, and what was evaluated."""

    result: Evaluation
    config: Config
    spec: EnvSpec
    what: dict[str, Any]
    name: str = "default"
    agent: Agent | None = None

    def certificates(self, confidence: float) -> list[str]:
        """Of each constraint, what is proved of its risk and of how often it is broken."""
        episodes, constraints = self.result.episodes, self.config.constraints
        proofs = certify(episodes, constraints, self.spec, confidence)
        found = []
        for proof, constraint in zip(proofs, constraints, strict=True):
            name, limit = constraint.name, float(constraint.limit)
            costs = episodes.cost[:, self.spec.cost_names.index(name)]
            words = name if name == "cost" else f"cost {name}"
            found.append(proof.sentence())
            found.append(violation_sentence(costs, limit, confidence, words))
        return found


def run(options: argparse.Namespace) -> int:
    """Evaluate, print, and keep or film what was asked for."""
    _check(options)
    found = []
    for one in evaluate(options):
        found.append(one)
        sentences = _certificates(one, options)
        if not options.json:
            heading = (
                [f"seed {one.config.seed}"] if len(options.seeds or ()) > 1 else []
            )
            print("\n".join([*heading, str(one.result), *sentences]))
        if options.out is not None:
            path = keep(options.out, one)
            if not options.json:
                print(f"Kept: {path}")
    if options.json:
        told = [_plain(one, options) for one in found]
        print(json.dumps(told[0] if len(told) == 1 else told, indent=2))
    if options.video is not None and found[0].agent is not None:
        from orac.evaluation.video import record

        print(f"Film: {record(found[0].agent, options.video)}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse words that do not go together, before anything takes time."""
    if (options.run_dir is None) == (options.rule is None):
        raise ValueError(
            "evaluate needs a RUN or a --rule, one of the two; "
            f"got RUN {options.run_dir} and --rule {options.rule}."
        )
    if options.rule is None and options.set:
        raise ValueError(
            "--set is for a --rule; a RUN has its own config. Leave it out."
        )
    if options.rule is None and len(options.seeds or ()) > 1:
        raise ValueError(
            "a RUN is evaluated on the episodes of one seed, got --seeds "
            f"{' '.join(map(str, options.seeds))}. Evaluate it once for each."
        )
    check_episodes(options.episodes)
    if options.rule is not None and options.video is not None:
        raise ValueError("--video films a trained agent; a rule has none.")
    seeds = options.seeds or ()
    if len({*seeds}) < len(seeds):
        raise ValueError(
            f"--seeds must all differ, got {seeds}: the same episodes twice are one sample."
        )
    if options.confidence is not None and not options.certify:
        raise ValueError(
            "--confidence is that of a certificate. Add --certify, or leave it out."
        )
    check_level(_confidence(options))
    if options.video is not None:
        from orac.evaluation.video import check_film

        check_film(options.video)


def _check_out(options: argparse.Namespace, config: Config, name: str) -> None:
    """Refuse a place that is taken before the episodes are played."""
    if options.out is not None:
        kept.free_path(options.out, config, name)


def _confidence(options: argparse.Namespace) -> float:
    return 0.95 if options.confidence is None else options.confidence


def _certificates(one: Evaluated, options: argparse.Namespace) -> list[str]:
    return one.certificates(_confidence(options)) if options.certify else []


def evaluate(options: argparse.Namespace) -> Iterator[Evaluated]:
    """One evaluation of a run, or one of a rule for each seed."""
    if options.rule is None:
        yield _evaluate_run(options)
        return
    env_id = options.env_id or "orac/CityLearn-v0"
    configs = [
        rules.rule_config(env_id, options.rule, seed, options.set)
        for seed in options.seeds or [0]
    ]
    for config in configs:
        _check_out(options, config, "rule")
    for config in configs:
        summary, episodes, spec = rules.evaluate_rule(
            config, options.episodes, options.tails
        )
        result = Evaluation(summary, episodes)
        yield Evaluated(result, config, spec, {"rule": options.rule}, "rule")


def _evaluate_run(options: argparse.Namespace) -> Evaluated:
    agent = load(options.run_dir, options.env_id, cost_fn=options.cost_fn)
    path = Path(options.run_dir)
    # A run lies in <name>/seed-000; an agent that was saved to a file has no name.
    name = path.resolve().parent.name if path.is_dir() else path.stem
    _check_out(options, agent.config, name)
    deterministic = not options.stochastic
    seed = options.seeds[0] if options.seeds else None
    result = agent.evaluate(options.episodes, deterministic, options.tails, seed)
    what = {
        "run": str(path),
        "env_steps": agent.num_timesteps,
        "deterministic": deterministic,
        **({} if seed is None else {"episodes_of_seed": seed}),
    }
    return Evaluated(result, agent.config, agent.spec, what, name, agent)


def keep(out: Path, one: Evaluated) -> Path:
    """Write an evaluation where `orac report` and `orac compare` find it."""
    return kept.keep(
        out,
        one.config,
        one.result.episodes,
        one.spec.cost_names,
        one.what,
        one.name,
    )


def _plain(one: Evaluated, options: argparse.Namespace) -> dict[str, Any]:
    sentences = _certificates(one, options)
    seed = {"seed": one.config.seed} if len(options.seeds or ()) > 1 else {}
    return {**seed, **one.result.summary, "certificates": sentences}
