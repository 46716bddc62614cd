"""The peak memory of this process's Python workers, read from ``/proc``."""

from __future__ import annotations

import os
import threading
from pathlib import Path

EVERY_SECONDS = 0.2


class WorkerMemory:
    """Context manager that records the peak memory of this process's Python descendants.

    The system keeps the greatest resident size of each process, so samples miss only the last
    moments of a process. Pages that processes share count in each of them.

    Attributes:
        megabytes: the peak of each process, by its id.
    """

    def __init__(self) -> None:
        self.megabytes: dict[int, float] = {}
        self._done = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watching.join()

    @property
    def largest_megabytes(self) -> float:
        """The peak of the largest process; zero on systems without ``/proc``."""
        return max(self.megabytes.values(), default=0.0)

    def _watch(self) -> None:
        while not self._done.wait(EVERY_SECONDS):
            for process in descendants(os.getpid()):
                peak = python_peak_megabytes(process)
                if peak:
                    self.megabytes[process] = max(peak, self.megabytes.get(process, 0.0))


def descendants(process: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
    found, new = set[int](), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


def python_peak_megabytes(process: int) -> float:
    """Return the greatest resident size of a process; zero if it is not Python, or has ended."""
    status = _status(Path(f"/proc/{process}"))
    if not status.get("Name", "").startswith("python"):
        return 0.0
    return int(status.get("VmHWM", "0 kB").split()[0]) / 1024


def _parent(path: Path) -> int:
    return int(_status(path).get("PPid", "0"))


def _status(path: Path) -> dict[str, str]:
    try:
        lines = (path / "status").read_text().splitlines()
    except OSError:  # The process has ended since the listing.
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}
