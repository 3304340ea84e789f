"""Command-line options of every `orac` command.

This module imports no JAX, so that `orac --help` and argument errors appear quickly.
"""

import argparse
import math
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from orac.config import serialization
from orac.runs.trackers import TRACKERS

STUDY_NAMES = (
    *("table1", "table1-iqn", "table2", "table3", "table2-fast", "table3-fast"),
    "iqn-vs-linear",
    *("ablation-cost-optimism", "ablation-reward-optimism", "ablation-ensemble"),
    *("figure1", "figure2", "limit"),
)
"""The studies of `orac reproduce`, listed here so that help does not import them."""

MAX_SEEDS = 100_000

field_descriptions = cache(serialization.field_help)


def add_config_options(parser: ArgumentParser) -> None:
    """Add the options that build the config. `--set` can change any field."""
    descriptions = field_descriptions()
    # argparse interprets a per cent sign in a help text as a format.
    escaped = {name: text.replace("%", "%%") for name, text in descriptions.items()}
    option = parser.add_argument
    option("--algo", help="agent (default: orac); `orac agents` lists all agents")
    option("--env-id", help=f"{escaped['env.id']} (default: orac/GuardedMaze-v0)")
    option(
        "--preset",
        help="paper, fast or general (default: paper for the paper's environments, "
        "general for others); `orac agents` describes them",
    )
    option("--config", type=path, help="YAML file to start from instead of a preset")
    option("--cost-limit", type=float, help=escaped["constraints.0.limit"])
    option("--tail", type=float, help=escaped["constraints.0.tail"])
    option("--seed", type=int, help=escaped["seed"])
    option("--total-steps", type=whole_number, help=escaped["training.total_steps"])
    option("--num-envs", type=whole_number, help=escaped["training.num_envs"])
    add_set_option(parser, "change a config field, such as agent.kappa=0.5")
    width = max(map(len, descriptions))
    fields = "\n".join(f"  {name:<{width}}  {t}" for name, t in descriptions.items())
    parser.epilog = f"config fields, for --set:\n{fields}"


def add_set_option(parser: ArgumentParser, description: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help=f"{description}; can be repeated",
    )


def add_function_options(parser: ArgumentParser) -> None:
    """Add the options that name the user's own functions."""
    parser.add_argument(
        "--cost-fn",
        metavar="MODULE:FUNCTION",
        help="import this function of (observation, action, next_observation, info) to "
        "compute the cost",
    )
    parser.add_argument(
        "--encoder",
        metavar="MODULE:NAME",
        help="import this pair of functions (init, apply), which turns observations into "
        "the features that every network gets",
    )


def add_cost_and_device_options(parser: ArgumentParser) -> None:
    add_function_options(parser)
    parser.add_argument(
        "--cost-bound",
        type=float,
        action="append",
        metavar="BOUND",
        help="largest possible cost of an episode, for an environment that does not declare "
        "it: the largest cost of a step times the number of steps; certificates rely on it; "
        "give it once per constraint",
    )
    about = "device that JAX uses"
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"), help=about)
    add_import_option(parser)


def add_import_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module, so that configs, grids and runs can use the "
        "environments and functions that it defines; can be repeated",
    )


def add_train_options(parser: ArgumentParser) -> None:
    add_config_options(parser)
    option = parser.add_argument
    about = "start with the agent of this run or file, and with its config"
    option("--from", dest="source", type=path, metavar="RUN", help=about)
    about = "root of the run directories (default: runs)"
    option("--out", type=folder, default="runs", help=about)
    about = "name of the run, which is a part of its directory (default: default)"
    option("--name", default="default", help=about)
    about = "print at the end how long each part of a step took"
    option("--profile", action="store_true", help=about)
    about = (
        "train several seeds, such as 0-4; after a stop, run the same command again to "
        "continue"
    )
    option("--seeds", type=parse_seeds, help=about)
    about = "number of seeds that train at the same time (default: one per processor)"
    option("--jobs", type=whole_number, help=about)
    add_progress_options(parser)


def add_resume_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("run_dir", metavar="RUN", type=path, help="directory of the run")
    about = "environment of the run, if your own module defines it"
    option("--env-id", type=not_empty, help=about)
    about = "train the run further, up to this total number of steps"
    option("--total-steps", type=whole_number, help=about)
    add_progress_options(parser)


def add_progress_options(parser: ArgumentParser) -> None:
    """Add the options that `orac train` and `orac resume` share."""
    add_cost_and_device_options(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument(
        "--track",
        action="append",
        choices=TRACKERS,
        help="also send the metrics to this tracker (default: tensorboard)",
    )


def add_evaluate_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    about = "directory of a run, or file of a saved agent"
    option("run_dir", metavar="RUN", type=path, nargs="?", help=about)
    option(
        "--rule",
        type=not_empty,
        help="evaluate this hand-coded baseline instead, such as thermostat",
    )
    option(
        "--env-id",
        type=not_empty,
        help="environment of the --rule (default: orac/CityLearn-v0) or of the RUN",
    )
    add_set_option(
        parser,
        "change a field of the rule's config, such as env.params.buildings=[1,2,3]",
    )
    option(
        "--seeds",
        "--seed",
        dest="seeds",
        type=int,
        nargs="+",
        metavar="N",
        help="evaluate the --rule once per seed (default: 0); with a RUN, give a single "
        "seed to play different episodes from the default ones",
    )
    about = "number of episodes (default: 100)"
    option("--episodes", type=whole_number, default=100, help=about)
    about = "save the episodes under this directory, for orac report and compare"
    option("--out", type=folder, help=about)
    about = "additional tails at which to print the CVaR"
    option("--tails", type=float, nargs="+", default=[], help=about)
    about = "sample actions instead of using the policy's mean"
    option("--stochastic", action="store_true", help=about)
    add_checkpoint_option(parser)
    about = "print upper confidence bounds on the risk"
    option("--certify", action="store_true", help=about)
    option("--confidence", type=float, help="confidence of --certify (default: 0.95)")
    option("--video", type=path, help="film one episode to a .gif or .mp4 file")
    option("--json", action="store_true", help="print JSON")
    add_cost_and_device_options(parser)


def add_checkpoint_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last"),
        help="policy of a RUN: best is the policy that it delivers, last is the policy of "
        "its last step (default: best if there is one)",
    )


def add_certify_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    about = "directory of a run, or file of a saved agent"
    option("run_dir", metavar="RUN", type=path, help=about)
    about = "environment of the run, if your own module defines it"
    option("--env-id", type=not_empty, help=about)
    about = "probability with which the certificate holds (default: 0.95)"
    option("--confidence", type=float, default=0.95, help=about)
    about = (
        "maximum number of fresh episodes per look, see --looks (default: 20,000, or "
        "100,000 on device)"
    )
    option("--episodes-max", type=whole_number, help=about)
    about = (
        "maximum number of looks, which are attempts with new fresh episodes; the error "
        "probability is divided among them (default: 3)"
    )
    option("--looks", type=whole_number, default=3, help=about)
    option("--json", action="store_true", help="print JSON")
    add_cost_and_device_options(parser)


def add_report_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    about = "runs, or directories that contain runs"
    option("paths", metavar="RUNS", type=path, nargs="+", help=about)
    about = "file to write (default: report.html; other formats are printed)"
    option("--out", type=path, help=about)
    option(
        "--format",
        choices=("html", "markdown", "latex", "csv"),
        help="the HTML page, or only its tables (default: set by the suffix of --out)",
    )
    about = "also write figures as PDF files to this directory"
    option("--figures", type=folder, help=about)


def add_compare_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("ours", metavar="A", type=path, help="a directory that contains runs")
    about = "another directory that contains runs"
    option("theirs", metavar="B", type=path, help=about)
    formats = ("text", "markdown", "latex")
    about = "format of the tables (default: text)"
    option("--format", choices=formats, default="text", help=about)


def add_reproduce_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("study", metavar="NAME", help=", ".join(STUDY_NAMES))
    about = "number of seeds, or A-B for seeds A to B (default: the seeds of each case)"
    option("--seeds", type=parse_seeds, help=about)
    option("--steps", type=whole_number, help="environment steps of each run")
    add_set_option(
        parser, "change a config field of every run, such as training.num_envs=8"
    )
    about = "run only cases of this agent, environment or label; can be repeated"
    option("--only", action="append", default=[], metavar="CASES", help=about)
    about = "directory of the runs (default: runs/paper)"
    option("--out", type=folder, default=Path("runs/paper"), help=about)
    add_schedule_options(parser)


def add_sweep_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("grid", type=path, help="YAML file with envs, algos, seeds, ...")
    about = "directory of the runs (default: runs/<grid's name>)"
    option("--out", type=folder, help=about)
    add_schedule_options(parser)


def add_tune_options(parser: ArgumentParser) -> None:
    add_config_options(parser)
    option = parser.add_argument
    about = "total number of trials, including those of earlier calls (default: 30)"
    option("--trials", type=whole_number, default=30, help=about)
    add_parallel_options(parser, "trial")
    option(
        "--space",
        type=path,
        help="YAML file with the fields to search and their values (default: the space of "
        "the preset, in orac/experiments/search_spaces.yaml)",
    )
    option(
        "--episodes",
        type=whole_number,
        help="number of fresh episodes that measure the reward and the risk of a trial "
        "(default: 100, or more, so that at least 10 are in the tail)",
    )
    about = "folder of the study (default: tune/<environment>-<agent>)"
    option("--out", type=folder, help=about)
    option(
        "--storage",
        type=not_empty,
        metavar="URL",
        help="database of Optuna that several machines share, such as "
        "postgresql://user@host/name (default: an SQLite file in --out)",
    )
    about = "name of the study in the database (default: <environment>-<agent>)"
    option("--study-name", type=not_empty, metavar="NAME", help=about)
    add_function_options(parser)
    add_import_option(parser)


def add_schedule_options(parser: ArgumentParser) -> None:
    """Add the options that `orac reproduce` and `orac sweep` share."""
    add_parallel_options(parser, "run")
    option = parser.add_argument
    option("--backend", default="processes", help="processes (default) or ray")
    option("--address", type=not_empty, help="address of the Ray cluster, such as auto")
    about = "also send the metrics to this tracker (default: none)"
    option("--track", action="append", default=[], choices=TRACKERS, help=about)
    about = (
        "band around curves: interval (default), or half-std as in the paper's Figure 2"
    )
    option("--band", default="interval", help=about)
    about = "start no runs and show the results so far, from the runs and from --record"
    option("--render-only", action="store_true", help=about)
    about = (
        "folder for the tables, the figure and the numbers of every run; its files are "
        "small enough to commit. Runs already recorded there as finished are not trained again"
    )
    option("--record", type=folder, metavar="FOLDER", help=about)
    add_import_option(parser)


def add_parallel_options(parser: ArgumentParser, noun: str) -> None:
    """Add the options of commands that train many runs. `noun` is "run" or "trial"."""
    option = parser.add_argument
    about = (
        f"number of {noun}s that train at the same time (default: one per processor)"
    )
    option("--jobs", type=whole_number, help=about)
    about = f"threads of each {noun} (default: 1)"
    option("--threads", type=whole_number, default=1, help=about)
    about = "save everything and stop after this time; run the same command again to continue"
    option("--budget", type=float, default=math.inf, metavar="HOURS", help=about)


def add_demo_options(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("--seed", type=int, default=0, help="random seed (default: 0)")
    about = "output directory (default: demo)"
    option("--out", type=folder, default=Path("demo"), help=about)


def not_empty(text: str) -> str:
    """Return the text. An empty text, such as from an unset variable, is an error."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty, got ''")
    return text


def path(text: str) -> Path:
    """Return a path. An empty string is an error, not the working directory."""
    return Path(not_empty(text))


def folder(text: str) -> Path:
    """Return the path of a folder to write to, which exists or can be made."""
    chosen = path(text)
    try:
        files = [x for x in (chosen, *chosen.parents) if x.exists() and not x.is_dir()]
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"must be a folder to write to, got {text!r}: {error.strerror}"
        ) from error
    if files:
        raise argparse.ArgumentTypeError(
            f"must be a folder to write to, got the file {files[0]}"
        )
    return chosen


def whole_number(text: str) -> int:
    """Parse `100000`, `100_000` or `1e5`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise argparse.ArgumentTypeError(
            f"must be a whole number, such as 100000 or 1e5; got {text!r}"
        )
    return int(value)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse `5` or `0-4` as the seeds 0 to 4, `10:15` as 10 to 14, `0,3` as these two."""
    seeds: Sequence[int] = ()
    with suppress(ValueError):
        if "," in text:
            seeds = [int(part) for part in text.split(",")]
        elif ":" in text:
            first, last = text.split(":")
            seeds = range(int(first), int(last))
        elif "-" in text:
            first, last = text.split("-")
            seeds = range(int(first), int(last) + 1)
        else:
            seeds = range(int(text))
    # `len` fails for a range with a length of more than 64 bits, so shorten the range first.
    seeds = seeds[: MAX_SEEDS + 1]
    if not 0 < len(seeds) <= MAX_SEEDS or min(seeds) < 0 or len({*seeds}) < len(seeds):
        raise argparse.ArgumentTypeError(
            "must be a number of seeds, such as 5, a range, such as 0-4, or a list, such as "
            f"0,3; got {text!r}"
        )
    return tuple(seeds)
