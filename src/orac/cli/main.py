"""Entry point of the command line `orac`: parse the arguments and run the command.

Every command is a function that takes the parsed options. The function's module is imported
only when the command runs. An error that the user can fix is printed without a traceback,
unless the environment variable ORAC_TRACEBACK is set.
"""

import argparse
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orac.cli.options import (
    add_certify_options,
    add_compare_options,
    add_config_options,
    add_demo_options,
    add_evaluate_options,
    add_report_options,
    add_reproduce_options,
    add_resume_options,
    add_sweep_options,
    add_train_options,
    add_tune_options,
    folder,
    path,
)
from orac.config.validation import did_you_mean
from orac.runs.machine import is_out_of_memory, limit_threads, threads_of

COMMANDS = {
    "train": ("train", "train an agent in an environment", add_train_options),
    "resume": ("train", "continue a run, or train it further", add_resume_options),
    "evaluate": ("evaluate", "measure a trained policy's risk", add_evaluate_options),
    "certify": (
        "evaluate",
        "certify that a run's policy is within its limits",
        add_certify_options,
    ),
    "report": ("reports", "write a page or tables about runs", add_report_options),
    "compare": ("reports", "compare two sets of runs", add_compare_options),
    "reproduce": (
        "studies",
        "run a study, such as a table of the paper",
        add_reproduce_options,
    ),
    "sweep": ("studies", "run all combinations of a grid file", add_sweep_options),
    "tune": ("studies", "search for better settings with Optuna", add_tune_options),
    "config": (
        "train",
        "print the config that the options describe",
        add_config_options,
    ),
    "agents": ("doctor", "list the agents", None),
    "envs": ("doctor", "list the environments", None),
    "doctor": ("doctor", "list the packages that are installed or missing", None),
    "demo": ("demo", "train ORAC in the guarded maze in minutes", add_demo_options),
}
"""The commands by name: module, help text, and the function that adds the options.

The function `run_<name>` of the module runs the command.
"""
ELSEWHERE = {
    "export": "A policy is exported in Python: orac.load(RUN).export('policy.npz').",
}
"""What to do instead of commands that users may expect."""
LIGHT_COMMANDS = ("config", "agents", "envs", "train")
"""Commands that do not need JAX, or need it only after their options were checked."""
FUNCTION_OPTIONS = {"--cost-fn": "cost_fn", "--encoder": "encoder"}
"""Options that name a function of the user, and their names in Python and meta.json."""
OUT_OF_MEMORY = (
    "there is not enough memory. Lower training.buffer_size, training.num_envs or "
    "agent.hidden_sizes, or close other programs."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    The program `orac` has these exit codes:

    - 0: The command succeeded, or the reader of its output closed the pipe. If `certify` or
      `demo` succeeds, the policy is certified; if `tune` does, a trial is within the limits.
    - 1: There was an error, or a run of a study, a sweep or `train --seeds` failed. For
      `certify`, `demo` and `tune`, the code also means that no policy or trial passed.
    - 2: An option or argument is unknown, missing or malformed (argparse).
    - 3: `reproduce`, `sweep` or `tune` stopped because its `--budget` was used up. The same
      command continues it (`experiments.run_study.UNFINISHED`).
    - 130: Ctrl-C (SIGINT) stopped the command. A run that was training has been saved.
    - 143: SIGTERM stopped it in the same way.
    """
    parser = make_parser()
    options = parse(parser, sys.argv[1:] if arguments is None else arguments)
    if options.version:
        print(f"orac {importlib.import_module('orac').__version__}")
        return 0
    if options.command is None and not options.print_completion:
        parser.print_help()
        return 0
    try:
        if options.print_completion or options.command is None:
            print_completion(parser, options.print_completion)
            sys.stdout.flush()
            return 0
        prepare(options)
        module = importlib.import_module(f"orac.cli.{COMMANDS[options.command][0]}")
        code = getattr(module, f"run_{options.command}")(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does. Discard the rest of the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("ORAC_TRACEBACK") or not is_user_error(error):
            raise
        message = getattr(error, "shell_text", str(error))
        if is_out_of_memory(error):
            message = OUT_OF_MEMORY
        if missing := getattr(error, "options", ()):
            if not hasattr(options, FUNCTION_OPTIONS.get(missing[0], "command")):
                # This command does not have the option, but --import allows the module.
                missing = "--import", error.module  # pyright: ignore[reportAttributeAccessIssue]
            typed = sys.argv[1:] if arguments is None else [*arguments]
            message += f" Type: {import_command(typed, missing, options)}"
        notes = getattr(error, "__notes__", ())
        lines = [f"orac {options.command}: {message}", *notes]
        print("\n".join(map(printable, lines)), file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        if arguments is None:
            # Another Ctrl-C must not end the program with another exit code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        notes = getattr(stopped, "__notes__", ())
        print("\n" + " ".join(["Stopped.", *notes]), file=sys.stderr)
        return 130


def import_command(
    typed: Sequence[str], missing: Sequence[str], options: argparse.Namespace
) -> str:
    """Return the typed command with the missing options, such as `--cost-fn`, added.

    If the user's function of the run is in another folder, the command adds that folder to
    PYTHONPATH. The command also gets the `--cost-bound` that the run was started with.
    """
    from orac.api.environments import cost_bound_options
    from orac.envs.user_code import search_path
    from orac.runs.directory import read_meta

    command = shlex.join(["orac", *typed, *missing])
    run = getattr(options, "run_dir", None) or getattr(options, "source", None)
    if (
        missing[0] not in FUNCTION_OPTIONS
        or run is None
        or not (Path(run) / "meta.json").exists()
    ):
        return command
    if getattr(options, "cost_bound", ()) is None:
        command = shlex.join(["orac", *typed, *missing, *cost_bound_options(Path(run))])
    # As with `python -m`, a module is found in the working directory.
    sys.path.insert(0, os.getcwd())
    folder = search_path(read_meta(run).get(FUNCTION_OPTIONS[missing[0]]))
    if folder is None:
        return command
    more = ":$PYTHONPATH" if os.environ.get("PYTHONPATH") else ""
    return f"PYTHONPATH={shlex.quote(str(folder))}{more} {command}"


def printable(text: str) -> str:
    """Return a text on one line. Control characters are written as in a Python literal."""
    return "".join(x if x.isprintable() else repr(x)[1:-1] for x in text)


def is_user_error(error: Exception) -> bool:
    """Return whether the user can fix this error, so that it needs no traceback."""
    if isinstance(error, ValueError | OSError | ArithmeticError | ImportError):
        return True
    from orac.runs.directory import RunInUse

    return isinstance(error, RunInUse) or is_out_of_memory(error)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="orac",
        description="Train policies with a limit on the mean cost of the worst episodes.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh"),
        help="print a script that completes commands and options in this shell",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (_, description, add_options) in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=description,
            description=f"{description[0].upper()}{description[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if add_options:
            add_options(subparser)
    return parser


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.Namespace:
    """Parse the arguments. Errors suggest the nearest command or option."""
    command = arguments[0] if arguments else ""
    if command in ELSEWHERE:
        parser.error(f"there is no command {command!r}. {ELSEWHERE[command]}")
    if command and not command.startswith("-") and command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        parser.error(
            f"there is no command {command!r}.{hint} `orac --help` lists all commands."
        )
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Print the usage of the command, not that of the program.
        subparser = subparsers_of(parser).get(options.command, parser)
        known = [x for action in subparser._actions for x in action.option_strings]
        name = unknown[0].partition("=")[0]
        hint = did_you_mean(name, known, 0.7) if name.startswith("-") else ""
        subparser.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    return options


def subparsers_of(
    parser: argparse.ArgumentParser,
) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of every command by its name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def print_completion(parser: argparse.ArgumentParser, shell: str) -> None:
    """Print a script that completes commands, options and their values in a shell."""
    import shtab

    from orac.config import presets

    def complete_values(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if action.type in (path, folder):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest == "algo":
                action.choices = [*presets.ALGORITHMS]
            elif action.dest == "preset":
                action.choices = [*presets.PRESETS]

    for command in subparsers_of(parser).values():
        complete_values(command)
    print(shtab.complete(parser, shell))


def prepare(options: argparse.Namespace) -> None:
    """Set what JAX reads when it starts, and allow imports of the user's modules.

    JAX reads the number of threads, the device and the compilation cache.
    """
    if options.command == "resume":
        # With another number of threads the resumed run would not be bit-identical.
        limit_threads(threads_of(options.run_dir))
    if getattr(options, "device", None):
        choose_device(options.device)
    env_id = getattr(options, "env_id", None) or ""
    imports = getattr(options, "imports", ())
    typed = any(getattr(options, name, None) for name in FUNCTION_OPTIONS.values())
    if typed or ":" in env_id or imports:
        # As with `python -m`, a user's module is found in the working directory.
        sys.path.insert(0, os.getcwd())
    if options.command not in LIGHT_COMMANDS:
        from orac.training.xla import enable_compilation_cache

        enable_compilation_cache()
    if imports:
        from orac.envs.user_code import allow_module

        for module in imports:
            allow_module(module)


def choose_device(device: str) -> None:
    """Make JAX use this kind of device, or raise an error that lists the available ones."""
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
            f"{device}. Install JAX for it (see https://docs.jax.dev), or leave out "
            "--device."
        ) from error
