"""Memory and processors of this machine, also within the limits of a container; sizes as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_NO_LIMIT = 1 << 60
"""Bytes; cgroup v1 shows a larger number where there is no limit."""
_MEMORY = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
_SIZE = re.compile(r"([0-9]{1,9})([kmgt])", re.IGNORECASE)
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Machine:
    """Processors and memory of this machine that a run may use.

    Attributes:
        cpus: processors that this process may use.
        memory: bytes of memory; ``None`` if unknown.
        limit: bytes of memory that the container may use; ``None`` without a limit.
    """

    cpus: int
    memory: int | None = None
    limit: int | None = None

    @property
    def usable(self) -> int | None:
        """Bytes of memory that a run may use; ``None`` if unknown."""
        known = [size for size in (self.memory, self.limit) if size is not None]
        return min(known, default=None)

    @property
    def place(self) -> str:
        """The name of what bounds the memory."""
        is_limited = self.limit is not None and self.limit == self.usable
        return "this container" if is_limited else "this machine"


def this_machine(root: Path = Path("/")) -> Machine:
    """Return the memory and the processors of this machine.

    Args:
        root: the folder with ``proc`` and ``sys``.
    """
    return Machine(_cpus(root), _memory(root), _lowest(root, _MEMORY_FILES, _bytes))


def _cpus(root: Path) -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = _lowest(root, _CPU_FILES, _processors)
    return count if quota is None else max(1, min(count, quota))


def _memory(root: Path) -> int | None:
    match = _MEMORY.search(text_of(root / "proc/meminfo"))
    if match is not None:
        return int(match[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf.
        return None


def _bytes(text: str) -> int | None:
    """Return the limit in a file of memory; ``None`` for ``max`` and for a huge number."""
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None


def _processors(text: str) -> int | None:
    """Return the processors in a quota and a period in µs, rounded up; ``None`` for ``max``."""
    quota, _, period = text.partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return -(-int(quota) // int(period))


_MEMORY_FILES = (("memory.max",), ("memory/memory.limit_in_bytes",))
_CPU_FILES = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files of a limit, of cgroup v2 below ``/sys/fs/cgroup`` and the group, and of cgroup v1 below
``/sys/fs/cgroup``, the controller and the group."""


def _lowest(
    root: Path, files: tuple[tuple[str, ...], ...], read: Callable[[str], int | None]
) -> int | None:
    """Return the lowest limit of this process's control group and of the groups around it."""
    limits: list[int] = []
    top = root / "sys/fs/cgroup"
    for group in _groups(root):
        for names in files:
            paths = (top / Path(name).parent / group / Path(name).name for name in names)
            limit = read(" ".join(text_of(path).strip() for path in paths))
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _groups(root: Path) -> list[str]:
    """Return the control groups of this process, and those around them, relative to the top.

    Inside a container the top itself is often the container's group, with another path in
    ``/proc/self/cgroup``.
    """
    groups = {""}
    for line in text_of(root / "proc/self/cgroup").splitlines():
        parts = [part for part in line.rpartition(":")[2].split("/") if part not in ("", "..")]
        groups |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return sorted(groups)


def text_of(path: Path) -> str:
    """Return the text of a file; empty for a file that cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size such as ``512m`` or ``4g``; ``None`` for other text.

    >>> size_bytes("4g"), size_bytes("512M"), size_bytes("4 GB")
    (4294967296, 536870912, None)
    """
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _BYTES[match[2].lower()]


def size_text(size: int) -> str:
    """Return a number of bytes with a unit, rounded.

    >>> size_text(4 << 30), size_text(300 << 20), size_text(25_000_000_000)
    ('4.0 GiB', '300 MiB', '23.3 GiB')
    """
    if size >= _BYTES["g"]:
        return f"{size / _BYTES['g']:,.1f} GiB"
    return f"{size / _BYTES['m']:,.0f} MiB"
