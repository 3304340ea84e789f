"""The commands `orac train`, `orac resume` and `orac config`.

The options of all commands are in `options.py`.
"""

import argparse
import shlex
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orac.config import overrides, presets, serialization
from orac.config.schema import Config, Constraint, RiskMeasure
from orac.config.validation import check_count
from orac.runs.atomic_io import shown_path

if TYPE_CHECKING:
    from orac.api import Agent

OTHER_SETTINGS = (
    "Add --name NAME for a new run, choose another --out, or repeat the settings of the "
    "existing run."
)
"""Advice for `train --seeds` if the folder already has a run with other settings."""
NOTHING_EVALUATED = "finished, and nothing was evaluated"


def run_train(options: argparse.Namespace) -> int:
    """Train a new agent, or several of them if `--seeds` is given."""
    check_seeds(options)
    config = None
    if options.source is not None:
        check_from(options)
    else:
        config, base = resolve_config(options)
        presets.check_algorithm(config)
        is_long = config.training.total_steps >= base.training.total_steps
        note = presets.long_preset_note(config, options.preset)
        if note and is_long and options.config is None:
            print(f"note: {note}", flush=True)
    # Making the environment may change the working directory.
    options.out = Path(options.out).absolute()
    # JAX is imported here, after the options were checked.
    from orac.api import Agent, ShortRunWarning, load
    from orac.api.environments import choose_env

    agent_options: dict[str, Any] = {
        "cost_fn": options.cost_fn,
        "encoder": options.encoder,
    }
    bound = options.cost_bound
    if config is None:
        agent_options["cost_bound"] = bound
        agent = load(str(options.source), options.env_id, **agent_options)
    else:
        # Only an id that the user typed may import its module, not an id in a file.
        env = options.env_id or choose_env(config, None)
        host_options = {} if bound is None else {"cost_bound": bound}
        agent = Agent(env, config, **agent_options, host_options=host_options)
    if options.seeds is not None:
        return train_seeds(agent, options)
    print(describe(agent))
    show_by_default = warnings.showwarning

    def show_warning(message: Any, category: Any, *where: Any) -> None:
        if category is ShortRunWarning:
            print(f"  note: {message}")
        else:
            show_by_default(message, category, *where)

    with warnings.catch_warnings():
        warnings.simplefilter("always", ShortRunWarning)
        warnings.showwarning = show_warning
        agent.learn(
            options.total_steps,
            progress_bar=not options.quiet,
            out=options.out,
            name=options.name,
            trackers=tuple(options.track or ("tensorboard",)),
            profile=options.profile,
        )
    if agent.profile:
        print(agent.profile.table())
    assert agent.run_path is not None
    return finish(agent, agent.run_path, options)


def check_seeds(options: argparse.Namespace) -> None:
    """Raise an error for options that conflict with `--seeds`, or that need it."""
    if options.seeds is None:
        if options.jobs is not None:
            raise ValueError(
                f"--jobs {options.jobs} is the number of seeds that train at a time. Add "
                "--seeds, such as --seeds 0-4, or leave out --jobs."
            )
        return
    for name, value in (
        ("seed", options.seed),
        ("from", options.source),
        ("device", options.device),
        ("profile", options.profile or None),
    ):
        if value is not None:
            raise ValueError(
                f"--{name} is for one run, and --seeds trains several in separate "
                f"processes, got both. Leave out --{name}, or train one --seed at a time."
            )
    from orac.runs.directory import check_run_name
    from orac.runs.machine import MAX_PROCESSES
    from orac.runs.trackers import check_trackers

    if options.jobs is not None:
        check_count("--jobs", options.jobs, high=MAX_PROCESSES)
    check_run_name(options.name)
    check_trackers(options.track or ())


def train_seeds(agent: "Agent", options: argparse.Namespace) -> int:
    """Train several seeds in parallel, each in its own process.

    The config of `agent` is used for all seeds. Finished runs are skipped and unfinished
    ones are resumed, so the same command continues after a stop.
    """
    from orac.api.agent import short_run
    from orac.envs.user_code import allow_module
    from orac.experiments.launcher import processes
    from orac.experiments.launcher.schedule import (
        PlannedRun,
        check_plan,
        run_all,
        stop_signals,
    )
    from orac.experiments.run_study import UNFINISHED, exit_code
    from orac.runs.progress import Progress

    config = agent.config
    agent.close()
    if module := config.env.id.rpartition(":")[0]:
        # The user named this module with `--env-id` or `--import`.
        allow_module(module)
    if options.encoder is not None:
        allow_module(options.encoder.partition(":")[0])
    bounds = options.cost_bound
    runs = [
        PlannedRun(
            f"{config.algo} in {config.env.id}",
            replace(config, seed=seed),
            options.name,
            Path(options.out),
            cost_bound=None if bounds is None else tuple(bounds),
            cost_fn=options.cost_fn,
        )
        for seed in options.seeds
    ]
    check_plan(runs, OTHER_SETTINGS)
    print(describe(agent, f"seeds {', '.join(map(str, options.seeds))}"))
    if note := short_run(config):
        print(f"  note: {note}")
    trackers = tuple(options.track or ("tensorboard",))
    backend = processes.Processes(options.jobs, trackers=trackers)
    total = sum(run.total_steps for run in runs)
    start = sum(min(run.step(), run.total_steps) for run in runs)
    with stop_signals() as signals, Progress(total, start, quiet=options.quiet) as bar:
        outcomes = run_all(runs, backend, log=bar.print, signals=signals, bar=bar)
    code = exit_code(outcomes, print)
    for outcome in outcomes:
        if outcome.status == "finished":
            print(f"seed {outcome.run.config.seed}: {delivered_line(outcome.run.path)}")
    print(f"Report: orac report {shlex.quote(str(shown_path(runs[0].path.parent)))}")
    return 128 + signals[0] if signals and code == UNFINISHED else code


def delivered_line(path: Path) -> str:
    """Return a line on the policy that a finished run delivers."""
    from orac.reports.run_reader import delivered_problem, read_delivered_policy
    from orac.runs.directory import read_config

    try:
        config = serialization.from_dict(read_config(path))
        policy = read_delivered_policy(path, config)
    except (OSError, ValueError) as error:
        return f"finished, but {error}"
    if policy is None:
        problem = delivered_problem(path, config)
        return f"finished, but {problem}" if problem else NOTHING_EVALUATED
    measured = [f"reward {policy.reward:.4g}"]
    for constraint, risk in zip(config.constraints, policy.risk, strict=True):
        limit = f"(limit {constraint.limit:g})"
        measured.append(f"risk of {constraint.name} {risk:.4g} {limit}")
    within = "within" if policy.within_limits else "not within"
    limits = f", {within} the limits" if config.constraints else ""
    return f"{', '.join(measured)}{limits}, on {policy.episodes:,} episodes"


def check_from(options: argparse.Namespace) -> None:
    """Raise an error for options that change the config of the agent of `--from`."""
    names = ("algo", "preset", "config", "cost_limit", "tail", "seed", "num_envs")
    given = [
        name for name in (*names, "set") if getattr(options, name) not in (None, [])
    ]
    if given:
        raise ValueError(
            "--from starts with the config of that run; only --env-id, --total-steps, --out "
            f"and --name can differ, got --{given[0].replace('_', '-')}. Leave it out."
        )


def run_resume(options: argparse.Namespace) -> int:
    """Continue a run from its newest intact checkpoint."""
    from orac.api import resume

    agent = resume(
        options.run_dir,
        options.env_id,
        total_timesteps=options.total_steps,
        cost_fn=options.cost_fn,
        encoder=options.encoder,
        cost_bound=options.cost_bound,
        progress_bar=not options.quiet,
        trackers=tuple(options.track or ("tensorboard",)),
    )
    assert agent.run_path is not None
    return finish(agent, agent.run_path, options)


def run_config(options: argparse.Namespace) -> int:
    """Print the config as YAML, and its differences from the preset or from `--config`."""
    config, base = resolve_config(options)
    presets.check_algorithm(config)
    print(serialization.dump(config), end="")
    changes = overrides.difference(config, base)
    origin = "the preset" if options.config is None else str(options.config)
    print(f"# changed from {origin}:" if changes else f"# identical to {origin}")
    for name, (value, base_value) in changes.items():
        print(f"#   {name}: {base_value} -> {value}")
    return 0


def resolve_config(options: argparse.Namespace) -> tuple[Config, Config]:
    """Return the config that the options describe, and the preset or file that it is based on.

    The second config already has the agent and the environment that the options name.
    """
    if options.config is not None:
        if options.preset is not None:
            raise ValueError(
                "--preset and --config each give a whole config, got both. Leave one of "
                "them out."
            )
        base = serialization.load(options.config)
        if options.algo is not None:
            base = presets.with_algorithm(base, options.algo)
        if options.env_id is not None:
            base = overrides.override(base, [f"env.id={options.env_id!r}"])
    else:
        chosen = "orac/GuardedMaze-v0" if options.env_id is None else options.env_id
        algo = "orac" if options.algo is None else options.algo
        base = presets.preset(algo, chosen, options.preset)
        if getattr(options, "encoder", None) is not None:
            base = presets.for_encoder(base)
    given = {
        "seed": options.seed,
        "training.total_steps": options.total_steps,
        "training.num_envs": options.num_envs,
        "constraints.0.limit": options.cost_limit,
        "constraints.0.tail": options.tail,
    }
    changes = [
        f"{field}={value}" for field, value in given.items() if value is not None
    ]
    return overrides.override(base, [*changes, *options.set]), base


def describe(agent: "Agent", seeds: str | None = None) -> str:
    """Return a description of the run, with one line per limit."""
    from orac.evaluation.episodes import risk_phrase

    def limit_phrase(constraint: Constraint, measure: RiskMeasure) -> str:
        limit = f"at most {constraint.limit:g} per episode"
        return f"{constraint.name}: {risk_phrase(measure, limit)}"

    config = agent.config
    lines = [f"{config.algo} in {config.env.id}, {seeds or f'seed {config.seed}'}"]
    if config.agent.follows_episodes:
        from orac.training.measurement import window_size

        share = 1 - config.agent.multiplier.margin
        return "\n".join(
            [
                *lines,
                *(
                    f"  {limit_phrase(constraint, config.limited_measure(constraint))}, "
                    f"measured over the last {window_size(config):,} episodes of the "
                    "deployed policy; "
                    f"the multiplier aims at {share * constraint.limit:g}"
                    for constraint in config.constraints
                ),
            ]
        )
    for constraint, value in zip(
        config.constraints, agent.problem.cost_value_limits, strict=True
    ):
        lines.append(
            f"  {limit_phrase(constraint, config.agent.learned_measure(constraint))}, which "
            f"is {value:.4f} in the critics' units "
            f"(discount {config.agent.cost_discount:g})"
        )
    return "\n".join(lines)


def finish(agent: "Agent", path: Path, options: argparse.Namespace) -> int:
    """Print how the run ended and which commands to type next; return the exit code."""
    from orac.api.environments import run_arguments

    if agent.num_timesteps < agent.config.training.total_steps:
        if options.quiet:
            # Otherwise `learn` has printed it.
            print(agent.stopped_text())
        return 128 + (agent.stop_signal or signal.SIGINT)
    arguments = run_arguments(path, agent.config, options.cost_bound, agent.env_id)
    print(f"Done: {shown_path(path)}")
    print("\n".join(agent.delivery_lines()))
    print(f"Evaluate it with: orac evaluate {arguments}")
    if agent.config.constraints:
        known = agent.spec.cost_bounds is not None or "--cost-bound" in arguments
        bound = "" if known else " --cost-bound BOUND"
        print(f"Certify it with: orac certify {arguments}{bound}")
    return 0
