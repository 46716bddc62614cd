"""``python -m recovery``; see `recovery.commandline`."""

import sys

from recovery.commandline import main

sys.exit(main())
