"""Let `python -m orac` do the same as `orac`."""

import sys

from orac.cli.main import main

sys.exit(main())
