"""The program `orac`: words to a config to one of the library's functions.

Options are spelled as users of the field type them; `orac train --help` ends with every
config field and its sentence. Errors that a person can mend are one line, not a trace.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orac.cli.options import (
    add_compare_options,
    add_config_options,
    add_cost_option,
    add_evaluation_options,
    add_report_options,
    add_training_options,
)
from orac.cli.studies import (
    add_reproduce_options,
    add_sweep_options,
    run_reproduce,
    run_sweep,
)
from orac.cli.train import run_config, run_resume, run_train
from orac.config import presets
from orac.runs.cpu_affinity import limit_threads
from orac.runs.directory import RunInUse
from orac.runs.machine import threads_of
from orac.training.xla import keep_compiled_programs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        prepare(options)
        code = options.run(options) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read has seen enough, as with `| head`; nothing more is to be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ArithmeticError, ImportError, RunInUse) as error:
        if os.environ.get("ORAC_TRACEBACK"):
            raise
        notes = getattr(error, "__notes__", ())
        print("\n".join([f"orac {options.command}: {error}", *notes]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def prepare(options: argparse.Namespace) -> None:
    """What must be settled before JAX starts: threads, device, cache."""
    if options.command == "resume":
        # At another number of threads the resumed run would have other bits.
        limit_threads(threads_of(options.run_dir))
    device = getattr(options, "device", None)
    if device:
        choose_device(device)
    if getattr(options, "cost_fn", None) or ":" in (
        getattr(options, "env_id", None) or ""
    ):
        # As with `python -m`: a module beside the person who types is found.
        sys.path.insert(0, os.getcwd())
    keep_compiled_programs()


def choose_device(device: str) -> None:
    """Make JAX use this kind of device, or say that there is none."""
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return
    try:
        jax.config.update("jax_default_device", jax.devices(device)[0])
    except RuntimeError as error:
        known = sorted({found.platform for found in jax.devices()})
        raise ValueError(
            f"--device must be one that JAX finds here ({', '.join(known)}), got "
            f"{device}. Install JAX for it (https://docs.jax.dev says how), or leave "
            "--device out."
        ) from error


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="orac",
        description="Train policies whose worst-case cost stays below a limit.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    train = add(commands, "train", run_train, "train an agent in an environment")
    add_config_options(train)
    add_cost_option(train)
    add_training_options(train)
    train.add_argument("--name", default="default", help="name of the run's directory")

    resume = add(commands, "resume", run_resume, "go on with a run that was stopped")
    resume.add_argument("run_dir", metavar="RUN", help="the run's directory")
    resume.add_argument("--env-id", help="its environment, if in a module of your own")
    add_cost_option(resume)
    add_training_options(resume, out=False)

    evaluate = add(
        commands, "evaluate", run_evaluate, "episodes of a trained policy, and its risk"
    )
    add_evaluation_options(evaluate)
    add_cost_option(evaluate)

    report = add(commands, "report", run_report, "a page or tables about runs")
    add_report_options(report)
    compare = add(commands, "compare", run_compare, "two sets of runs side by side")
    add_compare_options(compare)

    about = "a table or figure of the paper: its runs, then ours beside the paper's"
    add_reproduce_options(add(commands, "reproduce", run_reproduce, about))
    about = "every run of a grid file, several at a time"
    add_sweep_options(add(commands, "sweep", run_sweep, about))

    show = add(commands, "config", run_config, "print a resolved config")
    add_config_options(show)

    add(commands, "agents", run_agents, "list the agents")
    add(commands, "envs", run_envs, "list the environments")
    add(
        commands,
        "doctor",
        run_doctor,
        "what is installed, and what would install the rest",
    )
    demo = add(commands, "demo", run_demo, "ORAC in the maze, in minutes")
    demo.add_argument(
        "--seed", type=int, default=0, help="everything random derives from it"
    )
    demo.add_argument("--out", default="demo", help="where to write (default: demo)")
    return parser


def add(commands: Any, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def run_evaluate(options: argparse.Namespace) -> int:
    from orac.cli.evaluate import run

    return run(options)


def run_report(options: argparse.Namespace) -> int:
    from orac.reports import html as report
    from orac.reports.run_groups import read_results

    if options.out or options.format in (None, "html"):
        out = options.out or Path("report.html")
        print(f"Report: {report.write(options.paths, out, options.format)}")
    else:
        print(report.render(options.paths, options.format), end="")
    if (report.form_of(options.out) if options.out else options.format) == "csv":
        # A table for programs has no place for what a person must know.
        for note in read_results(options.paths).notes:
            print(f"note: {note}", file=sys.stderr)
    if options.figures:
        from orac.reports.behaviour import save_pictures
        from orac.reports.figures import save_figures

        found = read_results(options.paths)
        drawn = save_figures(found, options.figures, ".pdf")
        drawn += save_pictures(found, options.figures, ".pdf")
        print("\n".join(f"Figure: {path}" for path in drawn))
    return 0


def run_compare(options: argparse.Namespace) -> int:
    from orac.reports.compare import compare
    from orac.reports.html import tables

    spell = getattr(tables, f"to_{options.format}")
    print("\n".join(map(spell, compare(options.ours, options.theirs))), end="")
    return 0


def run_agents(options: argparse.Namespace) -> int:
    for name, algorithm in presets.ALGORITHMS.items():
        form = algorithm.risk_form or "the world's"
        print(
            f"{name:<10} risk {form:<12} behaviour {algorithm.behaviour:<11} ", end=""
        )
        print(algorithm.describes)
    return 0


def run_envs(options: argparse.Namespace) -> int:
    import gymnasium

    from orac import envs

    for env_id in sorted(gymnasium.registry):
        if env_id.startswith("orac/"):
            kind = "on device" if envs.has_jax_form(env_id) else "on the host"
            print(f"{env_id:<32} {kind}")
    print("and any Gymnasium id: its cost is info['cost'], or what --cost-fn computes.")
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    from orac.cli.doctor import diagnose

    print(diagnose())
    return 0


def run_demo(options: argparse.Namespace) -> int:
    from orac.cli.demo import run

    return run(options.seed, Path(options.out))
