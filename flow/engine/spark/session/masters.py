"""Spark's master URLs for sessions on this machine; the module needs no PySpark."""

from __future__ import annotations

import re

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")


def local_tasks(master: str | None, cpus: int) -> int | None:
    """Return the number of tasks that a local master runs at a time; ``None`` for a cluster.

    >>> [local_tasks(master, 2) for master in ("local[3]", "local[3,4]", None, "local", "yarn")]
    [3, 3, 2, 1, None]

    Args:
        master: the master URL; ``None`` for the default, all processors of this machine.
        cpus: number of processors of this machine.
    """
    match = _LOCAL.fullmatch(master or "local[*]")
    if match is None:
        return None
    number = match[1] or "1"
    return cpus if number == "*" else int(number)


def is_local_master(master: str | None) -> bool:
    """Return True if a session with this master runs its tasks in this machine's one JVM."""
    return local_tasks(master, 1) is not None
