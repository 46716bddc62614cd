"""The command ``python -m flow.run module:flow``: run a flow; see `flow.cli.run_command`.

The function ``flow.run`` is in `flow.execution`.
"""

import sys

from flow.cli.command_line import exit_if_hidden
from flow.execution import run

if __name__ == "__main__":
    exit_if_hidden()
    from flow.cli.run_command import main
    from recovery import RecoveryConfig

    sys.exit(main(RecoveryConfig))
else:
    from types import ModuleType

    class _CallableModule(ModuleType):
        """A module that can be called: its import replaces the function ``flow.run``."""

        __call__ = staticmethod(run)

    sys.modules[__name__].__class__ = _CallableModule
