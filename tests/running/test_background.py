"""A run in the background: status, live numbers, and its end, without Spark."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import flow.operators as op
from flow import BackgroundRun, Dataflow, EpochReport, RunState, StepError, StopFlag, Summary
from flow.reports.cell import CellInterrupted, CellLine
from flow.runs.background import OnEpoch
from flow.testing import TestingSink

Begin = Callable[[], None]


class Work:
    """A run whose progress the test decides."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.epochs_left = 0
        self.error: BaseException | None = None
        self.reached = threading.Semaphore(0)
        self._next = threading.Semaphore(0)

    def step(self) -> None:
        """Take the next step of the run, a begin, an epoch or the end, and wait for it."""
        self._next.release()
        assert self.reached.acquire(timeout=10)

    def __call__(self, stop: StopFlag, report: OnEpoch, begin: Begin) -> Summary:
        self._next.acquire()
        begin()
        self.reached.release()
        for epoch in range(3):
            self._next.acquire()
            if stop.asked.is_set():
                self.reached.release()
                return Summary("numbers", "streaming", epoch, stopped=True)
            if self.error is not None:
                self.reached.release()
                raise self.error
            report(EpochReport(epoch, Counter({("in", "out"): 10})))
            self.reached.release()
        self._next.acquire()
        self.reached.release()
        return Summary("numbers", "streaming", 3)


def numbers() -> Dataflow:
    flow = Dataflow("numbers")
    op.output("out", op.input("in", flow, [1]), TestingSink([]))
    return flow


@pytest.fixture
def work() -> Work:
    return Work()


def test_status_and_numbers_follow_the_run(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    assert (run.status, run.summary.epochs, run.report) == (RunState.STARTING, 0, None)
    work.step()
    assert run.status is RunState.RUNNING
    work.step()
    work.step()
    assert run.summary.count("in", "out") == 20
    assert run.summary.epochs == 2
    assert run.report is not None
    assert run.report.epoch == 1
    assert str(run.status) == "running"
    assert repr(run) == "<BackgroundRun of 'numbers': running>"
    work.step()
    work.step()
    assert run.wait(10).epochs == 3
    assert run.status is RunState.FINISHED
    assert run.error is None


def test_numbers_that_were_read_do_not_change(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.step()
    before = run.summary
    work.step()
    assert (before.epochs, before.count("in", "out")) == (0, 0)
    run.stop()
    work.step()
    run.wait(10)


def test_a_stop_is_asked_for_and_then_done(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.step()
    work.step()
    run.stop()
    assert run.status is RunState.STOPPING
    work.step()
    assert run.wait(10).stopped
    assert run.status is RunState.STOPPED


def test_the_error_of_the_run_is_raised_by_each_wait(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.step()
    work.error = StepError("out", "full")
    work.step()
    for _ in range(2):
        with pytest.raises(StepError, match="step 'out': full"):
            run.wait(10)
    assert run.status is RunState.FAILED
    assert run.error is work.error


def test_an_error_that_nobody_waits_for_is_logged(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    work.error = SystemExit("ended")
    with caplog.at_level(logging.ERROR, "flow"):
        run = BackgroundRun(numbers(), work)
        work.step()
        work.step()
        run._thread.join(10)
    assert "flow 'numbers' failed: SystemExit: ended" in caplog.text


def test_a_wait_has_a_time_limit(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    with pytest.raises(TimeoutError, match=r"'numbers': starting> has not ended within 0.01 sec"):
        run.wait(0.01)
    run.stop()
    work.step()
    work.step()
    run.wait(10)


def test_a_run_shows_status_error_and_numbers(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.step()
    work.step()
    shown = run._repr_mimebundle_(include=None, exclude=None)["text/html"]
    assert "<div>running</div>" in shown
    assert ">10</td>" in shown
    work.error = StepError("out", "<full>")
    work.step()
    with pytest.raises(StepError):
        run.wait(10)
    shown = run._repr_mimebundle_()["text/html"]
    assert "<div>failed: StepError: step &#x27;out&#x27;: &lt;full&gt;</div>" in shown


class Shown:
    """In the place of IPython's function to show an object."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, bool]] = []

    def __call__(self, bundle: dict[str, str], *, raw: bool, display_id: str, update: bool) -> None:
        self.texts.append((bundle["text/plain"], update))


def test_a_line_below_a_cell_follows_the_run(work: Work) -> None:
    shown = Shown()
    run = BackgroundRun(numbers(), work, line=CellLine(shown, clock=Ticks()))
    work.step()
    work.step()
    run.stop()
    work.step()
    run.wait(10)
    texts = [text.partition(" | ")[0] for text, _ in shown.texts]
    assert texts == ["starting Spark", "running", "epoch 0", "stopped: 1 epoch in 0.0 s"]
    assert [update for _, update in shown.texts] == [False, True, True, True]


class Ticks:
    """A clock that is a second later each time."""

    def __init__(self, step: float = 1.0) -> None:
        self._now = 0.0
        self._step = step

    def __call__(self) -> float:
        self._now += self._step
        return self._now


def test_a_line_changes_at_most_four_times_a_second_and_ends_with_the_last_text() -> None:
    shown = Shown()
    line = CellLine(shown, clock=Ticks(0.1))
    for number in range(6):
        line.show(f"text\n{number}\x1b")
    line.end()
    line.end()
    assert [text for text, _ in shown.texts] == [r"text 0\x1b", r"text 3\x1b", r"text 5\x1b"]


def test_an_interrupt_of_a_cell_stops_the_run_and_a_second_one_stops_waiting(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow.runs.background.in_notebook", lambda: True)
    run = BackgroundRun(numbers(), work)
    wait, interrupts = run._ended.wait, iter([KeyboardInterrupt, KeyboardInterrupt])

    def interrupted(timeout: float | None = None) -> bool:
        for interrupt in interrupts:
            raise interrupt
        return wait(timeout)

    monkeypatch.setattr(run._ended, "wait", interrupted)
    with pytest.raises(CellInterrupted) as caught:
        run.wait_in_cell()
    assert run.status is RunState.STOPPING
    assert caught.value._render_traceback_() == [
        "<BackgroundRun of 'numbers': stopping> continues; .stop() stops it"
    ]
    work.step()
    work.step()
    assert run.wait_in_cell().stopped


def test_outside_a_notebook_there_is_no_line() -> None:
    assert CellLine.here() is None
