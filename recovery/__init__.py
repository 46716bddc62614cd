"""Checkpoints, from which flows continue after a stop, and tools that show and change checkpoints.

Start with `RecoveryConfig`, an argument of `flow.run`. The functions are tools, which are also
commands: ``python -m recovery --help``.
"""

import flow_windowing as _flow_windowing  # noqa: F401  (it checks the package `flow`)
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
