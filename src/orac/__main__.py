"""The program `orac`, which `python -m orac` runs as well.

It handles signals before it imports anything else, so that Ctrl-C and SIGTERM end the
program without a traceback at any moment. Training and sweeps replace these handlers to
save a checkpoint first.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any


def main() -> int:
    """Run the command line and return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)
    from orac.cli.main import main as run_command

    return run_command()


def leave(number: int, frame: Any) -> None:
    """End the process at once, with the exit code that shells expect.

    Files are safe, because each is renamed into place when it is complete. An exception
    could get lost in an import or in a compiler.
    """
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, b"\nStopped.\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
