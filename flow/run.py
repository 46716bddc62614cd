"""The command line: ``python -m flow.run module:flow`` runs a flow, see `flow.cli.run_command`.

The function of the same name is ``flow.run``, which lives in `flow.running`.
"""

import sys

from flow.cli.run_command import main
from flow.running import run

if __name__ == "__main__":
    sys.exit(main())
else:
    from types import ModuleType

    class _CallableModule(ModuleType):
        """This module, once imported, stands where the package had its function: it is called."""

        __call__ = staticmethod(run)

    sys.modules[__name__].__class__ = _CallableModule
