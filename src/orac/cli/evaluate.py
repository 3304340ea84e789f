"""The commands `orac evaluate` and `orac certify`.

`orac evaluate` plays episodes of a trained policy or a hand-coded baseline and prints the
results. Its options add certificates, save the results or record a video. `orac certify`
tests on fresh episodes whether a run's policy is within its limits.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orac.api import Agent, Evaluation, evaluate_baseline, load
from orac.api.agent import certificate_file, check_own_task, write_certificate
from orac.api.environments import cost_bound_options
from orac.config.schema import Config
from orac.envs.base import EnvSpec
from orac.evaluation.certification import cannot_certify
from orac.evaluation.cvar_bounds import Certificate, violation_sentence
from orac.evaluation.episodes import certify, cost_noun, costs_of, declared_cost_bound
from orac.evaluation.rollout import (
    baseline_config,
    check_episodes,
    check_video_path,
    record_video,
)
from orac.evaluation.seed_intervals import check_level
from orac.runs.atomic_io import shown_path
from orac.runs.directory import evaluation_path, save_evaluation, valid_certificate


@dataclass(frozen=True)
class Evaluated:
    """An evaluation with its certificates, config and environment."""

    result: Evaluation
    certificates: list[Certificate]
    config: Config
    spec: EnvSpec
    source: dict[str, Any]
    """The policy and the way it was evaluated, as recorded in meta.json."""
    name: str
    """Name of the evaluation's directory below `--out`, as `--name` is for a run."""
    agent: Agent | None = None


def run_evaluate(options: argparse.Namespace) -> int:
    """Evaluate a policy, print the results, and save them or record a video if asked."""
    check_options(options)
    # Playing episodes may change the working directory.
    for name in ("out", "video"):
        if getattr(options, name) is not None:
            setattr(options, name, Path(getattr(options, name)).absolute())
    several = len(options.seeds or ()) > 1
    evaluate = evaluate_baseline_per_seed if options.rule else evaluate_run
    json_results = []
    for evaluated in evaluate(options):
        sentences = certificate_sentences(evaluated)
        if not options.json:
            heading = [f"seed {evaluated.config.seed}"] if several else []
            print("\n".join([*heading, str(evaluated.result), *sentences]))
        seed = {"seed": evaluated.config.seed} if several else {}
        summary = evaluated.result.summary
        json_results.append({**seed, **summary, "certificates": sentences})
        if options.out is not None:
            path = save_evaluation(
                options.out,
                evaluated.config,
                evaluated.result.episodes.rows(evaluated.spec.cost_names),
                evaluated.source,
                evaluated.name,
            )
            if not options.json:
                print(f"Saved: {shown_path(path)}")
        if options.video is not None:
            path = record_video(
                evaluated.agent, options.video, checkpoint=options.checkpoint
            )
            if not options.json:
                print(f"Video: {shown_path(path)}")
    if options.json:
        print(json.dumps(json_results if several else json_results[0], indent=2))
    return 0


def check_options(options: argparse.Namespace) -> None:
    """Raise a `ValueError` for options that contradict each other.

    Sets the default of `--confidence`.
    """
    seeds = options.seeds or ()
    if (options.run_dir is None) == (options.rule is None):
        both = (
            f"RUN {options.run_dir} and --rule {options.rule}. Leave one of them out."
        )
        neither = "neither. Give the directory of a run, or the name of a rule."
        raise ValueError(
            "evaluate needs either a RUN or a --rule, got "
            f"{neither if options.rule is None else both}"
        )
    if options.rule is None and options.set:
        raise ValueError(
            "--set is only for a --rule, because a RUN has its own config. Leave it out."
        )
    if options.rule is not None and options.checkpoint is not None:
        raise ValueError(
            "--checkpoint is only for a RUN, because a --rule has no checkpoints. Leave it "
            "out."
        )
    if options.rule is None and len(seeds) > 1:
        raise ValueError(
            "a RUN is evaluated on the episodes of one seed, got --seeds "
            f"{' '.join(map(str, seeds))}. Evaluate it once per seed."
        )
    check_episodes(options.episodes)
    if options.rule is not None and options.video is not None:
        raise ValueError(
            "--video films a trained agent and cannot film a --rule. Leave it out."
        )
    if len({*seeds}) < len(seeds):
        raise ValueError(
            f"--seeds must all differ, got {' '.join(map(str, seeds))}, which would count "
            "the same episodes twice. Give each seed once."
        )
    if options.confidence is not None and not options.certify:
        raise ValueError(
            "--confidence is the confidence of a certificate. Add --certify, or leave it "
            "out."
        )
    if options.confidence is None:
        options.confidence = 0.95
    check_level(options.confidence)
    if options.video is not None:
        check_video_path(options.video)


def evaluate_run(options: argparse.Namespace) -> Iterator[Evaluated]:
    """Evaluate the delivered or the last policy of a run, or of an agent in a file."""
    path, agent = Path(options.run_dir), load_from_options(options)
    # A run is in <name>/seed-000. For a file, the name of the file is used.
    name = path.resolve().parent.name if path.is_dir() else path.stem
    config = agent.config_of_env
    if options.out is not None:
        evaluation_path(options.out, config, name)
    seed = options.seeds[0] if options.seeds else None
    _, uses_mean = agent.policy_of(options.checkpoint)
    deterministic = uses_mean and not options.stochastic
    result = agent.evaluate(
        options.episodes, deterministic, options.tails, seed, options.checkpoint
    )
    best = None if options.checkpoint == "last" else agent.best
    source = {
        "run": str(path),
        "env_steps": agent.num_timesteps,
        "deterministic": deterministic,
        "checkpoint": "last" if best is None else "best",
        "policy_step": agent.num_timesteps if best is None else best.step,
    }
    if seed is not None:
        source["episodes_of_seed"] = seed
    certificates = []
    if options.certify:
        certificates = agent.certify(result.episodes, options.confidence)
    yield Evaluated(result, certificates, config, agent.spec, source, name, agent)


def load_from_options(options: argparse.Namespace) -> Agent:
    """Load the agent of a run's newest checkpoint, or one that was saved to a file."""
    return load(
        options.run_dir,
        options.env_id,
        cost_fn=options.cost_fn,
        encoder=options.encoder,
        cost_bound=options.cost_bound,
    )


def evaluate_baseline_per_seed(options: argparse.Namespace) -> Iterator[Evaluated]:
    """Evaluate the baseline that `--rule` names, once per seed."""
    env_id = options.env_id or "orac/CityLearn-v0"
    configs = [
        baseline_config(env_id, options.rule, seed, options.set)
        for seed in options.seeds or [0]
    ]
    if options.out is not None:
        for config in configs:
            evaluation_path(options.out, config, "rule")
    for config in configs:
        result, spec = evaluate_baseline(config, options.episodes, options.tails)
        certificates = []
        if options.certify:
            certificates = certify(
                result.episodes, config.constraints, spec, options.confidence
            )
        source = {"rule": options.rule}
        yield Evaluated(result, certificates, config, spec, source, "rule")


def certificate_sentences(evaluated: Evaluated) -> list[str]:
    """Return two sentences per constraint: bounds on its risk and on its violations.

    There are none without `--certify`.
    """
    sentences = []
    constraints = evaluated.config.constraints if evaluated.certificates else ()
    for certificate, constraint in zip(
        evaluated.certificates, constraints, strict=True
    ):
        sentences.append(certificate.sentence())
        sentences.append(
            violation_sentence(
                costs_of(evaluated.result.episodes, constraint, evaluated.spec),
                float(constraint.limit),
                certificate.level,
                cost_noun(constraint.name),
            )
        )
    return sentences


def run_certify(options: argparse.Namespace) -> int:
    """Certify the policy of a run, or of an agent in a file, and write certificate.json.

    Returns 0 if a policy is certified and 1 if not. If `orac.load` loads the run after this,
    its agent delivers the certified policy.
    """
    path = Path(options.run_dir).absolute()
    agent = load_from_options(options)
    check_own_task(agent, options.run_dir)
    check_certifiable(agent, path)

    def log(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout)

    if earlier := earlier_certificate(path):
        log(earlier)
    try:
        result = agent.certify(
            confidence=options.confidence,
            looks=options.looks,
            episodes_max=options.episodes_max,
            log=log,
        )
    except KeyboardInterrupt as stopped:
        file = certificate_file(path)
        unchanged = f" {file} has not changed." if file.exists() else ""
        stopped.add_note(f"Nothing was certified, and nothing was written.{unchanged}")
        raise
    record, file = write_certificate(agent, result, path)
    if options.json:
        print(json.dumps(record, indent=2))
    else:
        sentence = result.sentence()
        print(f"{sentence[0].upper()}{sentence[1:]}.")
        if agent._not_compared:
            print(f"Note: {agent._not_compared}")
        print(
            f"The policy is from step {result.policy.step:,}. Written: {shown_path(file)}"
        )
    return 0 if result.certified else 1


def earlier_certificate(path: Path) -> str:
    """Return a message about the valid certificate of a run directory; "" if it has none."""
    record = valid_certificate(path) if path.is_dir() else None
    if record is None:
        return ""
    done = "already certifies a policy of this run"
    if not record.get("certified"):
        done = "contains an earlier attempt, which certified no policy"
    return (
        f"{certificate_file(path)} {done}. With the same options, this command plays the "
        "same episodes again and has the same result. With other options, it is another "
        "attempt: if one of several attempts is chosen by its result, the stated "
        "confidence does not hold."
    )


class MissingBound(ValueError):
    """Raised if a run that was started with a cost bound is certified without one."""

    def __init__(self, message: str, options: Sequence[str]) -> None:
        super().__init__(message)
        self.options = options
        """Options that the command lacks. The program prints the command with them added."""


def check_certifiable(agent: Agent, path: Path) -> None:
    """Raise an error if no constraint can be certified, so that no file is replaced."""
    constraints, spec = agent.config.constraints, agent.spec
    reasons = [cannot_certify(c, declared_cost_bound(c, spec)) for c in constraints]
    if not reasons or not all(reasons):
        return
    message = f"{reasons[0]}."
    if spec.cost_bounds is None and (bounds := cost_bound_options(path)):
        raise MissingBound(f"{message} The run was started with a cost bound.", bounds)
    raise ValueError(message)
