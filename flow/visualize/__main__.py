"""The command ``python -m flow.visualize``; see `flow.visualize`."""

from __future__ import annotations

import sys

from flow.visualize import main

if __name__ == "__main__":
    sys.exit(main())
