"""The processor time of a process and its descendants.

A flow runs in a Python process, a JVM and several Python workers. Linux counts the processor time
of each process, and that of its children that have ended. The sum over these processes is the
processor time of the flow, whatever other processes run on the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _FIRST, _LAST = 1, 11, 15
"""Fields after the name in ``/proc/PID/stat``: the parent, and the ticks of it and its children."""


def processor_seconds(root: int | None = None) -> float | None:
    """Return the processor time of a process and its descendants so far, in seconds.

    Args:
        root: the process's id; by default this process.

    Returns:
        The time, or ``None`` on systems without ``/proc``, such as macOS.
    """
    if not (_PROC / "self" / "stat").exists():
        return None
    known = _processes()
    ticks, family = 0, [os.getpid() if root is None else root]
    while family:
        one = family.pop()
        ticks += known.get(one, (0, 0))[1]
        family += [child for child, (parent, _) in known.items() if parent == one]
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes() -> dict[int, tuple[int, int]]:
    """Return the parent and the ticks of each process, by its id."""
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text("utf-8", "replace")
        except OSError:  # The process has ended since the listing.
            continue
        fields = stat.rpartition(")")[2].split()
        ticks = sum(int(field) for field in fields[_FIRST:_LAST])
        found[int(folder.name)] = int(fields[_PARENT]), ticks
    return found
