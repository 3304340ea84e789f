"""The program `orac`, which `python -m orac` runs as well."""

import sys

from orac.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
