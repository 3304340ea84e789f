"""Run the program `orac` with `python -m orac`."""

import sys

from orac.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
