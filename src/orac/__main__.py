"""`python -m orac` is `orac`."""

import sys

from orac.cli.main import main

sys.exit(main())
