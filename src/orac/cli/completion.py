"""`orac --print-completion SHELL`: print a script that completes commands in a shell."""

import argparse
from pathlib import Path

import shtab

from orac.config import presets

PATHS = {"run_dir", "paths", "ours", "theirs", "out"}
"""Arguments that name files or folders, in addition to those of type `Path`."""


def print_completion(parser: argparse.ArgumentParser, shell: str) -> None:
    """Print the completion script of a shell for all commands of the parser."""
    complete_values(parser)
    print(shtab.complete(parser, shell))


def complete_values(parser: argparse.ArgumentParser) -> None:
    """Let files and agents be completed too, in this parser and those of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_values(command)
        elif action.type is Path or action.dest in PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest == "algo":
            action.choices = [*presets.ALGORITHMS]
