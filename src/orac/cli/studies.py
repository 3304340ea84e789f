"""Commands that train many runs: `orac reproduce`, `sweep` and `tune`."""

import argparse
from pathlib import Path

from orac.cli.train import resolve_config
from orac.config.validation import check_choice
from orac.envs.registry import is_library_id
from orac.envs.user_code import allow_module
from orac.experiments import run_study
from orac.experiments.run_study import STUDIES, StudyOptions
from orac.experiments.study import with_settings
from orac.experiments.sweep import read_grid
from orac.runs.directory import safe_name
from orac.runs.machine import check_resources


def run_reproduce(options: argparse.Namespace) -> int:
    """Run the study that the options name, such as a table or figure of the paper."""
    check_choice("a study", options.study, STUDIES)
    study = with_settings(
        STUDIES[options.study], options.steps, options.set, options.only
    )
    return run_study.run(study, study_options(options, options.out, options.seeds))


def run_sweep(options: argparse.Namespace) -> int:
    """Run every combination of a grid file."""
    study, seeds = read_grid(options.grid)
    out = options.out or Path("runs") / study.name
    return run_study.run(study, study_options(options, out, seeds))


def run_tune(options: argparse.Namespace) -> int:
    """Search for the settings with the highest reward and a risk within the limits."""
    from orac.api import Agent
    from orac.api.environments import choose_env, run_arguments
    from orac.experiments import tune
    from orac.experiments.search_space import space_of

    tune.import_optuna()
    config, _ = resolve_config(options)
    space = space_of(config, options.preset, options.space)
    default = Path("tune") / safe_name(f"{config.env.id}-{config.algo}")
    tune_options = tune.TuneOptions(
        options.out or default,
        options.trials,
        options.jobs,
        options.threads,
        options.budget,
        options.storage,
        options.study_name,
        options.episodes,
    )
    tune.check_options(tune_options)
    tune.check_folder(tune_options.out)
    # Worker processes may import modules named on the command line, but not those named in
    # a file.
    env_id = options.env_id or ""
    module = "" if is_library_id(env_id) else env_id.rpartition(":")[0]
    for name in (module, options.cost_fn or "", options.encoder or ""):
        if name:
            allow_module(name.partition(":")[0])
    env = options.env_id or choose_env(config, None)
    agent = Agent(env, config, cost_fn=options.cost_fn, encoder=options.encoder)
    config = agent.config
    agent.close()
    del agent
    arguments = run_arguments(Path(), config).removeprefix(".")
    return tune.tune(config, space, tune_options, arguments=arguments)


def study_options(
    options: argparse.Namespace, out: Path, seeds: tuple[int, ...] | None
) -> StudyOptions:
    """Check the options that `reproduce` and `sweep` share, and return them."""
    check_resources(options.jobs, options.threads, options.budget)
    return StudyOptions(
        out,
        seeds,
        options.jobs,
        options.threads,
        options.budget,
        options.backend,
        options.address,
        tuple(options.track),
        options.band,
        options.render_only,
        options.record,
    )
