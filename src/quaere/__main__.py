"""`python -m quaere` is the command `quaere`."""

import sys

from quaere.cli.main import main

sys.exit(main())
