"""Defaults of a new session that code without PySpark needs too."""

from __future__ import annotations

QUIET_LEVELS = ("WARN", "ERROR", "FATAL", "OFF")
"""The levels of Spark's log at which a long run writes little."""

LOG_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", *QUIET_LEVELS)
"""The levels of Spark's log."""

LOCAL_DRIVER_MEMORY = "4g"
"""The heap of the JVM of a session on this machine."""
