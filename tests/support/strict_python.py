"""The command of a Python that raises warnings as errors, as pytest does."""

from __future__ import annotations

import sys

from flow.engine.spark.session.versions import installed_version, parse_version

PYSPARK_LEAVES_SOCKETS = parse_version(installed_version()) < (4, 2)
"""True if PySpark leaves the sockets of collected rows to the garbage collector, as 4.1 does."""


def strict_python() -> list[str]:
    """Return the command, without the warning of PySpark's own sockets."""
    ignored = ["-W", "ignore::ResourceWarning"] if PYSPARK_LEAVES_SOCKETS else []
    return [sys.executable, "-W", "error", *ignored]
