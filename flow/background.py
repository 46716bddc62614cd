"""`BackgroundRun`: a run of a flow in another thread, with its status and its numbers."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from html import escape
from typing import TypeAlias

from typing_extensions import override

from flow.dataflow import Dataflow
from flow.displays import Bundle, NotebookObject, display_as
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.feed.feed import StopFlag
from flow.errors import brief, printable
from flow.reports.progress import CellInterrupted, CellLine, Progress, in_notebook
from flow.reports.summary_table import summary_html

logger = logging.getLogger("flow")

OnEpoch: TypeAlias = Callable[[EpochReport], object]
"""A function that gets the report of each epoch; its result is ignored."""

Work: TypeAlias = Callable[..., Summary]
"""A function that runs the flow. It is called with a flag to stop it (`stop`), a function for the
report of each epoch (`on_epoch`), and a function to call as Spark has started (`on_start`)."""


class RunState(StrEnum):
    """The status of a run in the background.

    Attributes:
        STARTING: Spark is starting.
        RUNNING: the flow runs.
        STOPPING: a stop is asked for; the current epoch finishes.
        STOPPED: the run ended as it was asked to.
        FINISHED: the run ended with its input.
        FAILED: the run ended with an error.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class BackgroundRun(NotebookObject):
    """A run of a flow in another thread, which ``run(flow, background=True)`` returns.

    The thread ends with the program, like a run that is killed: a program calls `wait` before its
    end. An error of the run is raised by `wait`, and is logged as it happens.

    A notebook shows status and numbers, and a line below the cell that started the run shows its
    progress.
    """

    def __init__(
        self,
        flow: Dataflow,
        work: Work,
        on_epoch: OnEpoch | None = None,
        stop: StopFlag | None = None,
        line: CellLine | None = None,
    ) -> None:
        self._flow_id = flow.flow_id
        self._on_epoch = on_epoch
        self._flag = stop or StopFlag()
        self._line = line
        self._progress = None if line is None else Progress(flow, line)
        self._lock = threading.Lock()
        self._summary = Summary(flow.flow_id, "")
        self._summary.describe(flow)
        self._report: EpochReport | None = None
        self._error: BaseException | None = None
        self._is_awaited = False
        self._status = RunState.STARTING
        if self._progress is not None:
            self._progress.begin_spark()
        self._began = time.monotonic()
        # Python 3.11 takes a thread for ended once an interrupt has ended a join.
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(work,), name=f"flow-{flow.flow_id}", daemon=True
        )
        self._thread.start()

    @override
    def __repr__(self) -> str:
        return f"<BackgroundRun of {self._flow_id!r}: {self.status}>"

    @property
    def status(self) -> RunState:
        """The status of the run."""
        with self._lock:
            is_asked = self._flag.asked.is_set()
            has_ended = self._status not in (RunState.STARTING, RunState.RUNNING)
            return RunState.STOPPING if is_asked and not has_ended else self._status

    @property
    def summary(self) -> Summary:
        """A copy of the run's numbers so far; after the end, the summary of the run."""
        with self._lock:
            made = copy.deepcopy(self._summary)
            if self._status in (RunState.STARTING, RunState.RUNNING):
                made.seconds = time.monotonic() - self._began
            return made

    @property
    def report(self) -> EpochReport | None:
        """The report of the last epoch; ``None`` before the first."""
        return self._report

    @property
    def error(self) -> BaseException | None:
        """The error that ended the run; ``None`` if there is none."""
        return self._error

    def stop(self) -> None:
        """Ask the run to finish the current epoch and stop; return at once.

        A batch stops before its end, and writes nothing.
        """
        self._flag.ask()

    def wait(self, timeout: float | None = None) -> Summary:
        """Wait for the end of the run.

        Args:
            timeout: the longest time to wait, in seconds; by default, any time.

        Returns:
            The summary of the run.

        Raises:
            TimeoutError: if the run has not ended in time; it continues.
            Exception: the error of the run; see `run`.
        """
        self._is_awaited = True
        try:
            has_ended = self._ended.wait(timeout)
        except KeyboardInterrupt:
            self._is_awaited = False
            if in_notebook():
                raise CellInterrupted(f"{self!r} continues; .stop() stops it") from None
            raise
        if not has_ended:
            self._is_awaited = False
            raise TimeoutError(f"{self!r} has not ended within {timeout} seconds")
        if self._error is not None:
            raise self._error
        return self.summary

    def wait_in_cell(self) -> Summary:
        """Wait for the end of the run; an interrupt of the cell stops the run.

        Raises:
            CellInterrupted: at a second interrupt.
            Exception: the error of the run.
        """
        try:
            return self.wait()
        except CellInterrupted:
            self.stop()
            self._show("stopping after the current epoch; interrupt again to stop waiting")
        return self.wait()

    def _run(self, work: Work) -> None:
        try:
            summary = work(stop=self._flag, on_epoch=self._count, on_start=self._begin)
        except BaseException as error:
            self._end(RunState.FAILED, error=error)
        else:
            is_stopped = summary.stopped or summary.aborted
            self._end(RunState.STOPPED if is_stopped else RunState.FINISHED, summary)
        finally:
            self._ended.set()

    def _begin(self) -> None:
        with self._lock:
            self._status = RunState.RUNNING
        if self._progress is not None:
            self._progress.begin_reading()

    def _count(self, report: EpochReport) -> None:
        """Add the report of an epoch to the numbers."""
        with self._lock:
            self._report = report
            self._summary.epochs += 1
            self._summary.counts.update(report.counts)
            self._summary.gauges = report.gauges.copy()
            self._summary.behind = {name: dict(one) for name, one in report.behind.items()}
        if self._progress is not None:
            self._progress(report)
        if self._on_epoch is not None:
            self._on_epoch(report)

    def _end(
        self, status: RunState, summary: Summary | None = None, error: BaseException | None = None
    ) -> None:
        with self._lock:
            self._status, self._error = status, error
            if summary is not None:
                self._summary = summary
            else:
                self._summary.seconds = time.monotonic() - self._began
        if error is not None and not self._is_awaited:
            logger.error("flow %s failed: %s", printable(repr(self._flow_id)), brief(error))
        epochs = f"{self._summary.epochs:,} epoch{'' if self._summary.epochs == 1 else 's'}"
        self._show(f"{status}: {epochs} in {self._summary.seconds:.1f} s")
        if self._line is not None:
            self._line.end()

    def _show(self, text: str) -> None:
        if self._line is not None:
            self._line.show(text)


def _display(run: BackgroundRun) -> Bundle:
    """Return the display of a run: its status, its error and its numbers."""
    error = "" if run.error is None else f": {brief(run.error)}"
    return {"text/html": f"<div>{escape(run.status + error)}</div>\n{summary_html(run.summary)}"}


display_as(BackgroundRun, _display)
