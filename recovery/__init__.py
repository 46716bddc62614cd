"""Where a flow's state lives on disk, for it to go on after a stop.

Start with `RecoveryConfig`, which `flow.run` takes.
"""

from recovery.settings import RecoveryConfig

__all__ = ["RecoveryConfig"]
