"""The command ``python -m flow.visualize``; see `flow.visualize`."""

import sys

from flow.visualize import main

sys.exit(main())
