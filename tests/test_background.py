"""A run in the background: status, live numbers, and its end, without and on Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pyspark
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import (
    BackgroundRun,
    Dataflow,
    EngineError,
    EpochReport,
    FlowBuildError,
    RunState,
    StepError,
    StopFlag,
    Summary,
    run,
)
from flow.background import OnEpoch
from flow.reports.progress import CellInterrupted, CellLine
from flow.testing import TestingSink, TestingSource
from tests.support.clock import Clock


class Work:
    """A run whose progress the test decides."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._reached = threading.Semaphore(0)
        self._next = threading.Semaphore(0)

    def take(self, steps: int) -> None:
        """Take the next steps of the run, a begin, an epoch or the end, and wait for each."""
        for _ in range(steps):
            self._next.release()
            assert self._reached.acquire(timeout=10)

    def __call__(
        self, *, stop: StopFlag, on_epoch: OnEpoch, on_start: Callable[[], None]
    ) -> Summary:
        with self._step():
            on_start()
        for epoch in range(3):
            with self._step():
                if stop.asked.is_set():
                    return Summary("numbers", "streaming", epoch, stopped=True)
                if self.error is not None:
                    raise self.error
                on_epoch(EpochReport(epoch, Counter({("in", "out"): 10})))
        with self._step():
            return Summary("numbers", "streaming", 3)

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._next.acquire()
        try:
            yield
        finally:
            self._reached.release()


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
    work.take(1)
    assert run.status is RunState.RUNNING
    work.take(2)
    assert run.summary.count("in", "out") == 20
    assert run.summary.epochs == 2
    assert run.report is not None
    assert run.report.epoch == 1
    assert str(run.status) == "running"
    assert repr(run) == "<BackgroundRun of 'numbers': running>"
    work.take(2)
    assert run.wait(10).epochs == 3
    assert run.status is RunState.FINISHED
    assert run.error is None


def test_a_stop_is_asked_for_and_then_done_and_numbers_that_were_read_do_not_change(
    work: Work,
) -> None:
    run = BackgroundRun(numbers(), work)
    work.take(1)
    before = run.summary
    work.take(1)
    assert (before.epochs, before.count("in", "out")) == (0, 0)
    run.stop()
    assert run.status is RunState.STOPPING
    work.take(1)
    assert run.wait(10).stopped
    assert run.status is RunState.STOPPED


def test_the_error_of_the_run_is_raised_by_each_wait(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.take(1)
    work.error = StepError("out", "full")
    work.take(1)
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
        work.take(1)
        work.take(1)
        run._thread.join(10)
    assert "flow 'numbers' failed: SystemExit: ended" in caplog.text


def test_a_wait_has_a_time_limit(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    with pytest.raises(TimeoutError, match=r"'numbers': starting> has not ended within 0.01 sec"):
        run.wait(0.01)
    run.stop()
    work.take(2)
    run.wait(10)


def test_a_run_shows_status_error_and_numbers(work: Work) -> None:
    run = BackgroundRun(numbers(), work)
    work.take(2)
    shown = run._repr_mimebundle_(include=None, exclude=None)["text/html"]
    assert "<div>running</div>" in shown
    assert ">10</td>" in shown
    work.error = StepError("out", "<full>")
    work.take(1)
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
    run = BackgroundRun(numbers(), work, line=CellLine(shown, clock=Clock(passing=1.0)))
    work.take(2)
    run.stop()
    work.take(1)
    run.wait(10)
    texts = [text.partition(" | ")[0] for text, _ in shown.texts]
    assert texts == [
        f"starting Spark {pyspark.__version__}",
        "reading in",
        "epoch 0",
        "stopped: 1 epoch in 0.0 s",
    ]
    assert [update for _, update in shown.texts] == [False, True, True, True]


def test_a_line_changes_at_most_four_times_a_second_and_ends_with_the_last_text() -> None:
    shown = Shown()
    line = CellLine(shown, clock=Clock(passing=0.1))
    for number in range(6):
        line.show(f"text\n{number}\x1b")
    line.end()
    line.end()
    assert [text for text, _ in shown.texts] == [r"text 0\x1b", r"text 3\x1b", r"text 5\x1b"]


def test_an_interrupt_of_a_cell_stops_the_run_and_a_second_one_stops_waiting(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow.background.in_notebook", lambda: True)
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
    work.take(2)
    assert run.wait_in_cell().stopped


def test_outside_a_notebook_there_is_no_line() -> None:
    assert CellLine.here() is None


# --- on Spark ---------------------------------------------------------------------------------


def doubled(double: Callable[[int], int], out: list[int]) -> Dataflow:
    flow = Dataflow("double")
    numbers = op.input("in", flow, TestingSource([1, 2, 3], batch_size=1))
    op.output("out", op.map("double", numbers, double), TestingSink(out))
    return flow


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_a_run_in_the_background_has_the_results_of_any_other(
    engine: Literal["batch", "streaming"], spark: SparkSession
) -> None:
    out: list[int] = []
    flow = doubled(lambda n: 2 * n, out)
    started = run(flow, spark=spark, engine=engine, background=True)
    summary = started.wait(200)
    assert out == [2, 4, 6]
    assert started.status is RunState.FINISHED
    assert (summary.engine, summary.count("double", "out")) == (engine, 3)
    assert (summary.step_ids, summary.inputs) == (("in", "double", "out"), ("in",))


def test_streams_that_start_together_in_a_session_have_their_own_settings(
    spark: SparkSession,
) -> None:
    settings = spark.sql("SET").collect()
    outs: list[list[tuple[str, int]]] = [[] for _ in range(3)]
    started = []
    for number, out in enumerate(outs):
        flow = Dataflow(f"flow {number}")
        items = op.input("in", flow, TestingSource([("a", 1), ("b", 2), ("a", 3)]))
        sums = op.stateful_map("sum", items, lambda total, n: ((total or 0) + n,) * 2)
        op.output("out", sums, TestingSink(out))
        layout = number + 1
        begun = run(flow, spark=spark, engine="streaming", partitions=layout, background=True)
        started.append(begun)
    for one in started:
        one.wait(200)
    assert [sorted(out) for out in outs] == [[("a", 1), ("a", 4), ("b", 2)]] * 3
    assert spark.sql("SET").collect() == settings


@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_an_exception_of_on_epoch_ends_the_run(
    engine: Literal["batch", "streaming"], spark: SparkSession
) -> None:
    def on_epoch(_: EpochReport) -> None:
        raise raised

    flow = doubled(lambda n: n, [])
    raised: BaseException = ValueError("no")
    with pytest.raises(EngineError, match=r"^on_epoch raised ValueError: no$"):
        run(flow, spark=spark, engine=engine, on_epoch=on_epoch)
    raised = SystemExit(3)
    with pytest.raises(SystemExit):
        run(flow, spark=spark, engine=engine, on_epoch=on_epoch)


def test_a_stop_does_not_wait_for_the_next_epoch(spark: SparkSession) -> None:
    flag, out = StopFlag(), list[int]()
    options = {"trigger": "2m", "stop": flag, "on_epoch": lambda _: flag.ask()}
    began = time.monotonic()
    summary = run(doubled(lambda n: n, out), spark=spark, **options)  # type: ignore[call-overload]
    assert time.monotonic() - began < 60
    assert (summary.stopped, summary.epochs, out) == (True, 1, [1])


def slow(number: int) -> int:
    time.sleep(100)
    return number


def test_a_batch_that_is_stopped_ends_soon_or_does_not_start_and_writes_nothing(
    spark: SparkSession,
) -> None:
    out: list[int] = []
    flag = StopFlag()
    began = time.monotonic()
    started = run(doubled(slow, out), spark=spark, engine="batch", stop=flag, background=True)
    wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))
    flag.ask()
    summary = started.wait(90)
    assert time.monotonic() - began < 90
    assert (summary.stopped, summary.epochs, out) == (True, 0, [])
    assert started.status is RunState.STOPPED
    assert run(doubled(lambda n: n, out), spark=spark, engine="batch", stop=flag).stopped
    assert out == [], "a batch that is stopped before it starts"
    run(doubled(lambda n: n, out), spark=spark, engine="batch")
    assert out == [1, 2, 3]


def test_background_is_true_or_false() -> None:
    with pytest.raises(FlowBuildError, match="background must be True or False, got int 1"):
        run(doubled(lambda n: n, []), background=1)  # type: ignore[call-overload]
