"""The memory of the Python process that runs a task."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 where the system does not say it.

    Linux counts pages that processes share, such as those of a forked daemon, for each of them.
    """
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def worker_name() -> str:
    """Return the name of this process: its machine and its process id."""
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()
