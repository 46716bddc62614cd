"""How much of the processors a process and all that it started have used.

A flow runs in a Python process, a JVM and several Python workers. Linux says of each process how
long it ran, and how long those of its children did that have ended; the sum over the family is what
the flow took, whatever else the machine was doing.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _FIRST, _LAST = 1, 11, 15
"""Fields after the process's name: its parent, and its own and its ended children's ticks."""


def processor_seconds(root: int | None = None) -> float | None:
    """Processor time of a process and its descendants so far, in seconds.

    Args:
        root: the process's id; this process when left out.

    Returns:
        The time, or ``None`` where the system does not say, as on macOS.
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
    """The parent and the ticks of each process."""
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text("utf-8", "replace")
        except OSError:  # it has ended meanwhile
            continue
        fields = stat.rpartition(")")[2].split()
        ticks = sum(int(field) for field in fields[_FIRST:_LAST])
        found[int(folder.name)] = int(fields[_PARENT]), ticks
    return found
