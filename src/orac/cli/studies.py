"""`orac reproduce` and `orac sweep`: choose a study and run it."""

import argparse
from pathlib import Path

from orac.config.validation import check_choice, check_count
from orac.experiments import run_study
from orac.experiments.run_study import STUDIES, StudyOptions
from orac.experiments.study import with_settings
from orac.experiments.sweep import read_grid


def run_reproduce(options: argparse.Namespace) -> int:
    """Run a table or figure of the paper."""
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


def study_options(
    options: argparse.Namespace, out: Path, seeds: tuple[int, ...] | None
) -> StudyOptions:
    """Return the checked options that both commands share."""
    if options.jobs is not None:
        check_count("--jobs", options.jobs)
    check_count("--threads", options.threads)
    if not options.budget > 0:
        raise ValueError(
            f"--budget must be a number of hours above 0, got {options.budget:g}. Leave it "
            "out to run to the end."
        )
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
