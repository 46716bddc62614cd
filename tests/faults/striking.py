"""Faults within a flow: at a named point, a process of the run dies or an exception is raised."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Whom(Enum):
    """Who is killed, or what else happens.

    Attributes:
        DRIVER: the process that started the flow; the JVM sees that it has gone.
        ALL: that process and the JVM at once; what the JVM has started sees that it has gone.
        SELF: the process that the fault strikes in: of a worker, the worker alone.
        RAISE: nobody, an exception is raised.
        WAIT: nobody, the epoch takes a minute longer.
    """

    DRIVER = "driver"
    ALL = "all"
    SELF = "self"
    RAISE = "raise"
    WAIT = "wait"


class Struck(Exception):
    """Exception that a fault raises."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a flow, at most so many times in all of its runs.

    Attributes:
        point: where it strikes.
        at: at which number of the epoch, or of the item.
        whom: what happens.
        marks: a folder where it is noted that it has struck.
        times: how often it strikes.
        driver: the process that started the flow, which leads its group.
    """

    point: str = ""
    at: int = 0
    whom: Whom = Whom.ALL
    marks: Path = Path()
    times: int = 1
    driver: int = field(default_factory=os.getpid)

    def strike(self, point: str, at: int) -> None:
        """Do what is to be done if this is the place."""
        if (point, at) == (self.point, self.at) and self._marked():
            _DO[self.whom](self)

    def _marked(self) -> bool:
        """Return True if the fault has not struck `times` times yet, and mark one more strike."""
        for number in range(self.times):
            try:
                (self.marks / f"struck-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False


NO_FAULT = Fault()


def _raise(fault: Fault) -> None:
    raise Struck(f"{fault.point} {fault.at}")


WAIT_SECONDS = 60.0


_DO: dict[Whom, Callable[[Fault], Any]] = {
    Whom.DRIVER: lambda fault: os.kill(fault.driver, signal.SIGKILL),
    Whom.ALL: lambda fault: os.killpg(fault.driver, signal.SIGKILL),
    Whom.SELF: lambda fault: os.kill(os.getpid(), signal.SIGKILL),
    Whom.RAISE: _raise,
    Whom.WAIT: lambda _: time.sleep(WAIT_SECONDS),
}
