"""The command ``python -m recovery``; see `recovery.cli`."""

import sys

from recovery.cli import main

sys.exit(main())
