"""Checkpoints, from which flows continue after a stop, and tools that show and change checkpoints.

Start with `RecoveryConfig`, an argument of `flow.run`. The functions are tools, which are also
commands: ``python -m recovery --help``.
"""

# ruff: noqa: E402  (files of the user that hide packages are named before the imports of these)

import sys as _sys
from importlib.util import find_spec as _find_spec

for _name in ("flow", "flow_windowing"):
    _found = _find_spec(_name)
    if _found is not None and _found.submodule_search_locations is None:
        _problem = (
            f"{_found.origin} hides the package {_name!r}, which is installed: rename that file, "
            "or run the program in another folder"
        )
        if _sys.argv[:1] == ["-m"]:  # The command, which shows no traceback.
            _sys.exit(_problem)
        raise ImportError(_problem, name=_name, path=_found.origin)

from recovery.settings import RecoveryConfig
from recovery.tools.exporting import Export, export
from recovery.tools.inspecting import KeyState, StepState, inspect
from recovery.tools.layouts import Rescaled, rescale, seed
from recovery.tools.relocating import Relocation, relocate
from recovery.tools.rewinding import Rewind, rewind
from recovery.tools.status import CheckpointStatus, SourceStatus, StepStatus, status
from recovery.tools.verifying import Problem, verify

__all__ = [
    "CheckpointStatus",
    "Export",
    "KeyState",
    "Problem",
    "RecoveryConfig",
    "Relocation",
    "Rescaled",
    "Rewind",
    "SourceStatus",
    "StepState",
    "StepStatus",
    "export",
    "inspect",
    "relocate",
    "rescale",
    "rewind",
    "seed",
    "status",
    "verify",
]
