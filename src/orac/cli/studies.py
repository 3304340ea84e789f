"""`orac reproduce` and `orac sweep`: their options, and words to a study to its runs."""

import argparse
import math
from pathlib import Path
from typing import Any

from orac.config.validation import check_choice

NAMES = (
    "table1",
    "table2",
    "table3",
    "iqn-vs-linear",
    "ablation-cost-optimism",
    "ablation-reward-optimism",
    "ablation-ensemble",
    "figure1",
    "figure2",
)


def add_reproduce_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(
        "--seeds",
        type=seeds_of,
        help="how many, or A:B for A to B-1 (default: as many as the paper)",
    )
    parser.add_argument("--steps", type=int, help="environment steps of each run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a config field of every run, such as training.num_envs=8",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="run these cases alone: an agent, an environment or a case's label",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/paper"), help="where runs are kept"
    )
    add_schedule_options(parser)


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("grid", type=Path, help="a YAML file: envs, algos, seeds, ...")
    parser.add_argument(
        "--out", type=Path, help="where runs are kept (default: runs/<grid's name>)"
    )
    add_schedule_options(parser)


def add_schedule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, help="runs at a time (default: one for each processor)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of each run (1: best use)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=math.inf,
        metavar="HOURS",
        help="stop, with everything saved, when these are used; run again to go on",
    )
    parser.add_argument("--backend", default="processes", help="processes or ray")
    parser.add_argument("--address", help="of the Ray cluster, such as auto")
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        choices=("tensorboard", "wandb", "mlflow"),
        help="where metrics go beside the CSV files (default: nowhere)",
    )
    parser.add_argument(
        "--band",
        default="interval",
        help="of curves: interval, or half-std as in the paper's Figure 2",
    )
    parser.add_argument(
        "--render-only", action="store_true", help="run nothing, show what is there"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="also write small files to keep"
    )


def seeds_of(text: str) -> tuple[int, ...]:
    """`5` is 0 to 4, `10:15` is 10 to 14."""
    first, colon, last = text.partition(":")
    try:
        start, end = (int(first), int(last)) if colon else (0, int(first))
    except ValueError:
        start, end = 0, 0
    if not 0 <= start < end:
        raise argparse.ArgumentTypeError(
            f"must be a number of seeds, such as 5, or a range, such as 10:15; got {text!r}"
        )
    return tuple(range(start, end))


def run_reproduce(options: argparse.Namespace) -> int:
    from orac.experiments.run_study import carry_out
    from orac.experiments.studies import STUDIES
    from orac.experiments.study import with_settings

    check_choice("a study", options.study, NAMES)
    study = STUDIES[options.study]
    chosen = with_settings(study, options.steps, options.set, options.only)
    return carry_out(chosen, orders_of(options, options.out, options.seeds))


def run_sweep(options: argparse.Namespace) -> int:
    from orac.experiments.run_study import carry_out
    from orac.experiments.sweep import read_grid

    study, seeds = read_grid(options.grid)
    out = options.out or Path("runs") / study.name
    return carry_out(study, orders_of(options, out, seeds))


def orders_of(
    options: argparse.Namespace, out: Path, seeds: tuple[int, ...] | None
) -> Any:
    from orac.experiments.run_study import Orders

    for name in ("jobs", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}.")
    if not options.budget > 0:
        raise ValueError(
            f"--budget must be hours above 0, got {options.budget:g}. Leave it out to run "
            "to the end."
        )
    return Orders(
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
