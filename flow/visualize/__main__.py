"""The command ``python -m flow.visualize``; see `flow.visualize`."""

import sys

from flow.cli.command_line import exit_if_hidden
from flow.visualize import main

exit_if_hidden()
sys.exit(main())
