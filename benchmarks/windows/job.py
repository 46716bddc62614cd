"""The job of a contestant and its result, which processes exchange as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Job:
    """One measurement.

    Attributes:
        data: the folder of events.
        warm: a folder with a few events of the same kind, for the warm-up.
        out: the folder to write results to; the contestant creates it.
        scratch: an empty folder for checkpoints and other files.
        rows: the number of events.
        epoch_rows: the number of events that an epoch of a streaming engine reads.
        files_per_epoch: the number of files of these events.
        cores: the number of cores to use.
        settings: further settings of the contestant, such as the kind of windows.
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
        """``tumbling``, ``sliding`` or ``session``; ``join``, ``asof`` or ``dedup``."""
        return str(self.settings.get("windows", "tumbling"))

    @property
    def skipped(self) -> int:
        """The number of first epochs that a streaming contestant does not measure."""
        return int(self.settings.get("skipped", 0))


@dataclass(frozen=True)
class Figure:
    """The result of a measurement.

    Attributes:
        value: the measured value, in the unit of the work: seconds, milliseconds or megabytes.
        details: further data, for the results file.
    """

    value: float
    details: dict[str, Any] = field(default_factory=dict)
