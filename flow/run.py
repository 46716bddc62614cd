"""The command ``python -m flow.run module:flow``: run a flow; see `flow.cli.run_command`.

The function ``flow.run`` is in `flow.running`.
"""

import sys

from flow.cli.command_line import exit_if_hidden
from flow.running import run

if __name__ == "__main__":
    exit_if_hidden()
    # The command imports the package, so the check has to come before this import.
    from flow.cli.run_command import main

    sys.exit(main())
else:
    from types import ModuleType

    class _CallableModule(ModuleType):
        """A module that can be called: its import replaces the function ``flow.run``."""

        __call__ = staticmethod(run)

    sys.modules[__name__].__class__ = _CallableModule
