"""`python -m orac` is `orac`."""

import sys

from orac.cli import main

sys.exit(main())
