"""What a contestant is asked to do, and what it answers; plain JSON between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Job:
    """One measurement.

    Attributes:
        data: the folder of events.
        warm: a folder of a few events of the same kind, for what is not timed.
        out: the folder to write results to; it is not there yet.
        scratch: an empty folder for checkpoints and the like.
        rows: how many events there are.
        epoch_rows: how many an epoch of a streaming engine reads.
        files_per_epoch: in how many files those are.
        cores: how many cores to use.
        settings: what else this contestant is told, such as which windows to work out.
    """

    data: str
    warm: str
    out: str
    scratch: str
    rows: int
    epoch_rows: int
    files_per_epoch: int
    cores: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def windows(self) -> str:
        """Which windows to work out: ``tumbling``, ``sliding`` or ``session``."""
        return str(self.settings.get("windows", "tumbling"))


@dataclass(frozen=True)
class Figure:
    """What a measurement came to.

    Attributes:
        value: seconds, milliseconds or megabytes, as the work says.
        details: what else was seen, for the results file.
    """

    value: float
    details: dict[str, Any] = field(default_factory=dict)
