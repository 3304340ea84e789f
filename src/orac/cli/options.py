"""The options of `orac`'s commands, spelled as users of the field type them."""

import argparse
from pathlib import Path

from orac.config import serialization as config_text


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Words that make a config; `--set` reaches every field."""
    sentences = config_text.field_sentences()
    # In help texts argparse takes a per cent sign for a format.
    short = {name: text.replace("%", "%%") for name, text in sentences.items()}
    parser.add_argument(
        "--algo", default=None, help="agent (default: orac); `orac agents` lists them"
    )
    parser.add_argument(
        "--env-id", default=None, help=f"{short['env.id']} (default: the guarded maze)"
    )
    parser.add_argument("--config", type=Path, help="start from this YAML file instead")
    parser.add_argument("--cost-limit", type=float, help=short["constraints.0.limit"])
    parser.add_argument("--tail", type=float, help=short["constraints.0.tail"])
    parser.add_argument("--seed", type=int, help=short["seed"])
    for option, field in (
        ("--total-steps", "training.total_steps"),
        ("--num-envs", "training.num_envs"),
    ):
        parser.add_argument(option, type=whole_number, help=short[field])
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="any config field, such as agent.kappa=0.5; may be given again",
    )
    width = max(map(len, sentences))
    fields = "\n".join(f"  {name:<{width}}  {text}" for name, text in sentences.items())
    parser.epilog = f"config fields, for --set:\n{fields}"


def whole_number(text: str) -> int:
    """`100000`, `100_000` and `1e5` alike."""
    try:
        value = float(text)
    except ValueError:
        value = 0.5
    if not value.is_integer():
        raise argparse.ArgumentTypeError(
            f"must be a whole number, such as 100000 or 1e5; got {text!r}"
        )
    return int(value)


def add_cost_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cost-fn",
        metavar="MODULE:FUNCTION",
        help="import this function of (obs, action, next_obs, info): it gives the cost",
    )


def add_training_options(parser: argparse.ArgumentParser, out: bool = True) -> None:
    if out:
        parser.add_argument(
            "--out", default="runs", help="root of run directories (default: runs)"
        )
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"), help="where to run")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--track",
        action="append",
        choices=("tensorboard", "wandb", "mlflow"),
        help="where metrics go beside the CSV files (default: tensorboard)",
    )


def add_evaluation_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir", metavar="RUN", nargs="?", help="a run's directory or saved agent"
    )
    parser.add_argument(
        "--rule", help="a rule that nobody trained instead, such as thermostat"
    )
    parser.add_argument(
        "--env-id", help="environment of the --rule (orac/CityLearn-v0), or of the RUN"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="config of the --rule, such as env.params.buildings=[1,2,3]; may be repeated",
    )
    parser.add_argument(
        "--seeds",
        "--seed",
        dest="seeds",
        type=int,
        nargs="+",
        metavar="N",
        help="evaluate the --rule once for each (0); of a RUN, one number: other episodes "
        "than those it always plays",
    )
    parser.add_argument("--episodes", type=int, default=100, help="how many (100)")
    parser.add_argument(
        "--out",
        type=Path,
        help="keep the episodes below here, as runs that report and compare read",
    )
    parser.add_argument(
        "--tails", type=float, nargs="+", default=[], help="more tails to show"
    )
    parser.add_argument(
        "--stochastic", action="store_true", help="sample the policy, not its mean"
    )
    parser.add_argument(
        "--certify", action="store_true", help="bound the risk with confidence"
    )
    parser.add_argument("--confidence", type=float, help="of --certify (0.95)")
    parser.add_argument("--video", type=Path, help="film one episode: a .gif or .mp4")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"), help="where to run")


def add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="RUNS", nargs="+", help="runs, or directories that hold some"
    )
    parser.add_argument(
        "--out", type=Path, help="file to write (report.html; tables are printed)"
    )
    parser.add_argument(
        "--format",
        choices=("html", "markdown", "latex", "csv"),
        help="the page, or its tables alone (default: by the ending of --out)",
    )
    parser.add_argument(
        "--figures", type=Path, help="also draw figures for print, as PDF, in here"
    )


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ours", metavar="A", help="a directory below which runs are")
    parser.add_argument("theirs", metavar="B", help="another one")
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "latex"),
        default="text",
        help="how tables are spelled (text)",
    )
