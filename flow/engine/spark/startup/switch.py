"""The switch of the optional speed-ups: results are the same with and without them.

The speed-ups are the Spark home with its archive of classes, the early start of Python workers and
their daemon, copies of state on a worker's disk, and pipelined calls of Spark's state. The
environment variable ``FLOW_SPEEDUPS=off``, set before Spark starts, switches them off, to find out
whether one of them is the cause of a problem.
"""

from __future__ import annotations

import os

from flow.errors import EnvironmentProblem

VARIABLE = "FLOW_SPEEDUPS"
SPEEDUPS_OF_WORKERS = f"spark.executorEnv.{VARIABLE}"
"""The setting of Spark that sets the variable for a session's workers."""


def switched(is_on: bool) -> dict[str, str]:
    """Return the environment variable that switches the speed-ups on or off."""
    return {VARIABLE: "on" if is_on else "off"}


def has_speedups() -> bool:
    """Return True unless the optional speed-ups are switched off.

    Raises:
        EnvironmentProblem: when the variable is neither ``on`` nor ``off``.
    """
    value = os.environ.get(VARIABLE, "on")
    if value not in ("on", "off"):
        raise EnvironmentProblem(f"{VARIABLE} must be 'on' or 'off', got {value!r}")
    return value == "on"
