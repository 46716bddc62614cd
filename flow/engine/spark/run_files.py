"""Files of a run whose processes, and the programs that follow it, share the checkpoint alone.

::

    <checkpoint>/run/current.json         the token of the newest run, and the flow's name
    <checkpoint>/run/<token>/committed    the last committed epoch, from the process of the outputs
    <checkpoint>/run/<token>/epoch-<n>    the report of an epoch, for programs
    <checkpoint>/run/<token>/end          the end of the run
    <checkpoint>/run/<token>/stop         a program has asked the run to stop

Of the reports the newest `KEPT_REPORTS` stay. A new run removes the files of those before it.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from typing_extensions import override

from flow.engine.checkpoint.storage import Storage, open_storage
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.engine.feed.feed import FeedReport
from flow.errors import CheckpointError

FOLDER = "run"
CURRENT = f"{FOLDER}/current.json"
KEPT_REPORTS = 200
_REPORT = "epoch-"

Content = TypeVar("Content")
LogLines = tuple[tuple[int, str], ...]
"""Lines of the logger ``flow``, each with its level."""


@dataclass(frozen=True)
class CommittedEpoch:
    """An epoch whose outputs are committed.

    Attributes:
        epoch: the epoch's number.
        stats: the statistics of its tasks, with the phases from the job on.
        span: the time of the job's start and that of the commit, by the machine's monotonic clock.
        shown: lines of inspectors.
        messages: messages for the sinks that commit in the program, by the number of an edge.
        log: lines of the log of the process.
    """

    epoch: int
    stats: Stats
    span: tuple[float, float]
    shown: tuple[str, ...] = ()
    messages: Mapping[int, list[Any]] = field(default_factory=dict)
    log: LogLines = ()


@dataclass(frozen=True)
class RunReport:
    """The report of an epoch for programs.

    Attributes:
        committed: the epoch, with its whole statistics.
        feed: the feed's part.
        log: lines of the log of the process that plans.
    """

    committed: CommittedEpoch
    feed: FeedReport
    log: LogLines = ()


@dataclass(frozen=True)
class RunEnd:
    """The end of a run.

    Attributes:
        summary: the summary of the run; ``None`` from the process of the outputs.
        failure: an encoded error of the flow; ``None`` without one.
        log: lines of the log of the process.
    """

    summary: Summary | None = None
    failure: bytes | None = None
    log: LogLines = ()


class RunFiles:
    """Files of a run in its checkpoint.

    Args:
        storage: the checkpoint's directory.
        token: id of the run.
    """

    def __init__(self, storage: Storage, token: str) -> None:
        self._storage = storage
        self._folder = f"{FOLDER}/{token}"
        self._token = token

    def begin(self, flow_id: str) -> None:
        """Remove the files of runs before, and name this run as the newest."""
        for name in self._storage.names(FOLDER):
            if name != self._token:
                self._storage.remove(f"{FOLDER}/{name}")
        self._storage.write(CURRENT, {"token": self._token, "flow_id": flow_id})

    def write_committed(self, epoch: CommittedEpoch) -> None:
        """Write the last committed epoch."""
        self._write("committed", epoch)

    def read_committed(self) -> CommittedEpoch | None:
        """Return the last committed epoch; ``None`` before the first."""
        return self._read("committed", CommittedEpoch)

    def report(self, report: RunReport) -> None:
        """Write the report of an epoch, and remove the oldest."""
        epoch = report.committed.epoch
        self._write(_report_name(epoch), report)
        if epoch >= KEPT_REPORTS:
            self._storage.remove(f"{self._folder}/{_report_name(epoch - KEPT_REPORTS)}")

    def reports_after(self, epoch: int) -> list[RunReport]:
        """Return the reports of the epochs after an epoch, in order."""
        first = _report_name(epoch + 1)
        names = [name for name in self._storage.names(self._folder) if name.startswith(_REPORT)]
        found = (self._read(name, RunReport) for name in names if name >= first)
        return [report for report in found if report is not None]

    def write_end(self, end: RunEnd) -> None:
        """Write the end of the run."""
        self._write("end", end)

    def read_end(self) -> RunEnd | None:
        """Return the end of the run; ``None`` while it runs."""
        return self._read("end", RunEnd)

    def ask_to_stop(self) -> None:
        """Ask the run to finish the current epoch and stop."""
        self._storage.write(f"{self._folder}/stop", {})

    def is_asked_to_stop(self) -> bool:
        """Return True if a program has asked the run to stop."""
        return self._storage.exists(f"{self._folder}/stop")

    def _write(self, name: str, content: object) -> None:
        self._storage.write_bytes(f"{self._folder}/{name}", pickle.dumps(content, 5))

    def _read(self, name: str, kind: type[Content]) -> Content | None:
        """Return the content of a file; ``None`` if there is none."""
        path = f"{self._folder}/{name}"
        if not self._storage.exists(path):
            return None
        content = pickle.loads(self._storage.read_bytes(path))
        if not isinstance(content, kind):
            raise CheckpointError(f"{self._storage.root}/{path} is no file of a run")
        return content


def newest_run(root: str) -> tuple[str, int]:
    """Return the token of the newest run of a checkpoint, and the last epoch that it reported.

    Raises:
        CheckpointError: when no run over Spark Connect has begun on the checkpoint.
    """
    storage = open_storage(root)
    if not storage.exists(CURRENT):
        raise CheckpointError(
            f"{root} has no run over Spark Connect: attach follows those alone, as the others end "
            "with the program that started them"
        )
    token = str(storage.read(CURRENT)["token"])
    names = storage.names(f"{FOLDER}/{token}")
    epochs = [int(name.removeprefix(_REPORT)) for name in names if name.startswith(_REPORT)]
    return token, max(epochs, default=-1)


def _report_name(epoch: int) -> str:
    return f"{_REPORT}{epoch:012d}"


class LogLinesKept(logging.Handler):
    """Lines of the logger ``flow`` of this process, until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: list[tuple[int, str]] = []
        logger = logging.getLogger("flow")
        logger.addHandler(self)
        logger.propagate = False

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.levelno, record.getMessage()))

    def take(self) -> LogLines:
        """Return the lines since the last call."""
        lines, self._lines = tuple(self._lines), []
        return lines
