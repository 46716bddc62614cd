"""Reports of a run: the status line, warnings of drops, the summary table, and errors."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyspark
import pytest

import flow.execution
import flow.operators as op
from flow import Dataflow
from flow.dataflow import add_step
from flow.engine.epoch.statistics import LateSource, Stats
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark import task_network
from flow.engine.spark.session import session
from flow.errors import EngineError, SourceError, StepError
from flow.instants import from_us, instant_us
from flow.keyed.step import Stateful
from flow.operators.edges import Input
from flow.reports.failure_text import describe_failure, users_place, users_trace
from flow.reports.loss_warnings import DropWarnings, LateWarnings
from flow.reports.progress import Progress, StatusLine
from flow.testing import TestingSink, TestingSource
from tests.support.logics import Diary
from tests.support.monitored import Clock, hourly_flow

NOON_US = instant_us("2026-01-01T12:00:00Z")


class Terminal(io.StringIO):
    """A terminal that records the written text."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def flow_of_two() -> Dataflow:
    flow = Dataflow("example")
    left = op.input("left", flow, TestingSource([]))
    right = op.input("right", flow, TestingSource([]))
    op.output("out", op.filter("odd", op.merge("both", left, right), bool), TestingSink([]))
    return flow


def counts(**counted: int) -> Counter[tuple[str, str]]:
    """Return counts by step and name, from ``step_name``."""
    return Counter(
        {(name[: name.rindex("_")], name[name.rindex("_") + 1 :]): n for name, n in counted.items()}
    )


def report(epoch: int, *, now_us: int | None = NOON_US, **counted: int) -> EpochReport:
    """Return the report of an epoch at a system time, with counts."""
    time = None if now_us is None else from_us(now_us)
    return EpochReport(epoch, counts(**counted), system_time=time)


def lines_of(terminal: Terminal) -> list[str]:
    """Return the texts of the status line, in order."""
    return terminal.getvalue().split("\r\x1b[K")[1:]


# --- the line ---


def test_the_log_has_the_start_the_first_result_and_each_pause_of_the_items(
    flow_of_two: Dataflow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flow")
    clock = Clock()
    progress = Progress(flow_of_two, None, clock)
    progress.begin_spark()
    progress.begin_reading()
    for seconds, counted in ((5, 2), (1, 2), (11, 2), (1, 0), (60, 0), (60, 0), (1, 2)):
        clock.seconds += seconds
        progress(report(0, now_us=None, **{"left_out": counted, "out_in": counted}))
    assert [text.partition(" items/s")[0] for text in caplog.messages] == [
        f"starting Spark {pyspark.__version__}",
        "reading left, right",
        "first result after 5.0 s",
        "epoch 0 | 2 items in",
        "epoch 0 | 6 items in | 0",
        "epoch 0 | idle | 6 items in | 0",
        "epoch 0 | 8 items in | 0",
    ]


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_the_status_line_has_rate_time_and_lag(flow_of_two: Dataflow, terminal: Terminal) -> None:
    clock, wall = Clock(), lambda: NOON_US + 1_500_000
    progress = Progress(flow_of_two, StatusLine(terminal), clock, wall=wall)
    progress(report(7, left_out=1000, right_out=500, both_in=1500))
    clock.seconds += 2
    progress(report(8, left_out=3000))
    assert lines_of(terminal) == [
        "epoch 7 | 1,500 items in | 12:00:00 UTC | 1.5 s behind",
        "epoch 8 | 4,500 items in | 1,500 items/s | 12:00:00 UTC | 1.5 s behind",
    ]


def test_the_rate_covers_the_last_seconds(flow_of_two: Dataflow, terminal: Terminal) -> None:
    # seconds  0     4     8     12    16
    # items    10    40    40    40    80
    # rate           10    10    10   (80 + 40 + 40) / 12, since the epoch at 4
    clock = Clock()
    progress = Progress(flow_of_two, StatusLine(terminal), clock)
    for count in (10, 40, 40, 40, 80):
        progress(report(0, now_us=None, left_out=count))
        clock.seconds += 4
    rates = [line.split(" | ")[2:] for line in lines_of(terminal)]
    assert rates == [[], ["10 items/s"], ["10 items/s"], ["10 items/s"], ["13 items/s"]]


def test_late_and_dropped_items_are_counted_and_a_replayed_epoch_has_no_system_time(
    flow_of_two: Dataflow, terminal: Terminal
) -> None:
    progress = Progress(flow_of_two, StatusLine(terminal), Clock())
    progress(report(0, now_us=None, left_out=1, odd_late=2, left_invalid=1))
    progress(report(1, now_us=None, odd_late=1, both_late=1, odd_gap=3, odd_dropped=5))
    assert lines_of(terminal) == [
        "epoch 0 | 1 items in | 2 late | 1 invalid",
        "epoch 1 | 1 items in | 4 late | 3 in gaps | 5 dropped | 1 invalid",
    ]


@pytest.mark.parametrize(
    ("inputs", "lag", "shown"),
    [
        (["left", "right"], {"left": "3 of 10 files"}, "left: 3 of 10 files"),
        (["left", "right"], {"left": "1 file", "right": "5 s"}, "left: 1 file, right: 5 s"),
        (["left", "right"], {}, "0.0 s behind"),
        (["left"], {"left": "3 of 10 files"}, "3 of 10 files"),
    ],
)
def test_the_status_line_shows_the_lag_in_units_of_the_sources(
    inputs: list[str], lag: dict[str, str], shown: str, terminal: Terminal
) -> None:
    flow = Dataflow("example")
    for name in inputs:
        op.input(name, flow, TestingSource([]))
    progress = Progress(flow, StatusLine(terminal), Clock(), wall=lambda: NOON_US - 1)
    progress(replace(report(0), lag=lag))
    assert lines_of(terminal)[0].endswith(f" UTC | {shown}")


# --- the log ---


def test_without_a_terminal_the_log_has_the_first_epoch_and_one_every_ten_seconds(
    flow_of_two: Dataflow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flow")
    clock = Clock()
    progress = Progress(flow_of_two, clock=clock)
    for epoch in range(5):  # at 0, 4, 8, 12, 16 seconds
        progress(report(epoch, now_us=None, left_out=40))
        clock.seconds += 4

    assert caplog.record_tuples == [
        ("flow", logging.INFO, "epoch 0 | 40 items in"),
        ("flow", logging.INFO, "epoch 3 | 160 items in | 10 items/s"),
    ]


# --- the line among other output ---


def to_screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal that standard output and standard error both go to.

    No fixture: pytest puts streams of its own in place when a test begins.
    """
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_printed_text_replaces_the_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = to_screen(monkeypatch)
    line = StatusLine(screen)
    with line.below_output():
        line.show("epoch 1")
        sys.stdout.write("item\nanother\n")
        line.show("epoch 2")
        sys.stderr.writelines(["a warning\n"])
    assert screen.getvalue() == (
        "\r\x1b[Kepoch 1"
        "\r\x1b[Kitem\nanother\n"
        "\r\x1b[Kepoch 2"
        "\r\x1b[Ka warning\n"
    )  # fmt: skip


def test_the_status_line_waits_for_the_end_of_a_printed_line_and_is_cleared_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = to_screen(monkeypatch)
    line = StatusLine(screen)
    with line.below_output():
        sys.stdout.write("half")
        line.show("epoch 1")
        sys.stdout.write(" a line\n")
        line.show("epoch 2")
    assert screen.getvalue() == "half a line\n\r\x1b[Kepoch 2\r\x1b[K"


def test_the_streams_behave_as_before_and_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = to_screen(monkeypatch)
    with StatusLine(screen).below_output():
        assert sys.stdout is not screen
        assert sys.stdout.isatty()
        assert sys.stderr.write("four") == 4
    assert sys.stdout is sys.stderr is screen


def test_redirected_output_does_not_clear_the_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, file = to_screen(monkeypatch), io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    line = StatusLine(screen)
    with line.below_output():
        line.show("epoch 1")
        sys.stdout.write("item\n")
        assert screen.getvalue() == "\r\x1b[Kepoch 1"
    assert file.getvalue() == "item\n"


def test_the_status_line_fits_the_width_of_the_terminal(terminal: Terminal) -> None:
    StatusLine(terminal).show("two\nlines " + "x" * 200)
    (shown,) = lines_of(terminal)
    assert shown.startswith("two lines x")
    assert len(shown) == 79


def test_a_closed_terminal_does_not_stop_the_run() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    line = StatusLine(Gone())
    line.show("epoch 1")
    line.clear()


@pytest.mark.parametrize(
    ("stream", "term", "is_shown"),
    [(Terminal(), "xterm", True), (io.StringIO(), "xterm", False), (Terminal(), "dumb", False)],
)
def test_a_status_line_is_shown_where_it_can_be_overwritten(
    stream: io.StringIO, term: str, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    assert (StatusLine.on(stream) is not None) == is_shown


# --- drops ---


def test_examples_of_drops_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    # seconds  0         5         8       10        25
    # notes    one, 2 %  three     -       four      -
    # logged   one, 2 %                    four, and that one was left out
    clock = Clock()
    warn = DropWarnings(clock)
    for at, notes in ((0, ["one", "2% of %s"]), (5, ["three"]), (8, []), (10, ["four"]), (25, [])):
        clock.seconds = 1_000.0 + at
        warn(Stats(notes=notes))
    assert caplog.record_tuples == [
        ("flow", logging.WARNING, "one"),
        ("flow", logging.WARNING, "2% of %s"),
        ("flow", logging.WARNING, "four"),
        ("flow", logging.WARNING, "1 more such messages were left out"),
    ]


@pytest.fixture
def run_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs a flow, whose only epoch has the given statistics."""
    monkeypatch.setattr(session, "check_session", lambda *_, **__: None)
    monkeypatch.setattr(session, "ready_for_a_run", nullcontext)
    monkeypatch.setattr(task_network, "check_network_of_tasks", lambda *_: None)

    def run(ran: Dataflow, stats: Stats, **options: Any) -> None:
        def batch(*arguments: Any, is_batch: bool) -> Summary:
            arguments[-1](0, stats, None)
            return Summary("example", "batch")

        monkeypatch.setattr(flow.execution, "_run_plan", batch)
        flow.execution.run(ran, spark=object(), **options)  # type: ignore[call-overload]

    return run


# --- late values that nothing reads ---


UNREAD = "were late and nothing reads its `late` stream"


def with_late(*, read: bool = False) -> Dataflow:
    """Return a flow with a step that makes late values, with or without a reader."""
    flow = Dataflow("example")
    stream = op.input("in", flow, TestingSource([]))
    down, late = add_step("hourly", Stateful(Diary, emits=("down", "late")), stream)
    op.output("out", down, TestingSink([]))
    if read:
        op.output("late", late, TestingSink([]))
    return flow


def test_unread_late_values_are_warned_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    warn = LateWarnings(compile_flow(with_late()), clock)
    for at, late in ((0, 0), (1, 12), (5, 2), (30, 1), (61, 0), (90, 1), (121, 0)):
        clock.seconds = 1_000.0 + at
        warn(Stats(counts(hourly_late=late, hourly_in=9)))
    assert caplog.record_tuples == [
        ("flow", logging.WARNING, f"step 'hourly': 12 values {UNREAD}"),
        ("flow", logging.WARNING, f"step 'hourly': 3 values {UNREAD}"),
        ("flow", logging.WARNING, f"step 'hourly': 1 value {UNREAD.replace('were', 'was')}"),
    ]


A, B = "a.jsonl (input 'in')", "b.jsonl (input 'in')"


@pytest.mark.parametrize(
    ("lateness", "sources", "advice"),
    [
        (
            {("hourly", 2_500_000): 99, ("hourly", 3_600_000_000): 1, ("other", 5): 1_000},
            {},
            "a wait_for_system_duration longer by 2s500ms would have been enough for 99 % of them",
        ),
        (
            {("hourly", 2_000_000): 100},
            {LateSource("hourly", B, A): 60, LateSource("hourly", A, A): 40},
            "a wait_for_system_duration longer by 2s would have been enough for all of them; "
            "60 of them came from b.jsonl (input 'in'), while a.jsonl (input 'in') was furthest "
            "ahead",
        ),
    ],
)
def test_a_warning_of_late_values_names_the_wait_they_needed_and_their_main_partition(
    lateness: dict[tuple[str, int], int],
    sources: dict[LateSource, int],
    advice: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Stats(counts(hourly_late=100))
    found.lateness.update(lateness)
    found.late_sources.update(sources)
    LateWarnings(compile_flow(with_late()), Clock())(found)
    assert caplog.messages == [f"step 'hourly': 100 values {UNREAD}: {advice}"]


def test_read_late_values_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    LateWarnings(compile_flow(with_late(read=True)), Clock())(Stats(counts(hourly_late=12)))
    assert caplog.messages == []


def test_run_logs_warnings_of_drops_and_late_values(
    run_of_an_epoch: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    dropped, epochs = "step 'in' dropped a.jsonl, line 3", list[int]()
    stats = Stats(counts(hourly_late=2), notes=[dropped])
    run_of_an_epoch(with_late(), stats)
    run_of_an_epoch(with_late(), stats, on_epoch=lambda done: epochs.append(done.epoch))
    assert caplog.messages == [dropped, f"step 'hourly': 2 values {UNREAD}"] * 2
    assert epochs == [0]


# --- the table ---


def summary() -> Summary:
    made = Summary("example", "streaming", epochs=1200, seconds=2.0)
    made.counts = counts(left_out=1_000_000, left_invalid=3, right_out=4)
    made.counts += counts(both_in=1_000_004, both_out=1_000_004, odd_in=1_000_004, odd_out=5)
    made.counts += counts(odd_filtered=999_999, odd_late=1, odd_errors=2, out_in=5)
    made.gauges = Counter({("odd", "keys"): 12})
    return made


TABLE = """\
step          in        out  filtered  late  invalid  errors  keys
left              1,000,000                        3
right                     4
both   1,000,004  1,000,004
odd    1,000,004          5   999,999     1                2    12
out            5
example: 1,200 epochs, 1,000,004 items in 2.0 s, 500,002 items/s (streaming)"""


def summary_table(flow: Dataflow, summary: Summary) -> str:
    """Return the text of the summary of a run of the flow."""
    summary.step_ids = tuple(step.step_id for step in flow.steps)
    summary.inputs = tuple(step.step_id for step in flow.steps if isinstance(step.operator, Input))
    return str(summary)


def test_the_table_has_a_line_for_each_step_in_flow_order(flow_of_two: Dataflow) -> None:
    assert summary_table(flow_of_two, summary()) == TABLE


def test_the_table_leaves_out_empty_columns(flow_of_two: Dataflow) -> None:
    made = Summary("example", "batch")
    made.counts = counts(odd_in=2, odd_gap=1, both_dropped=3)
    assert summary_table(flow_of_two, made).splitlines()[:-1] == [
        "step   in  out  gap  dropped  keys",
        "left",
        "right",
        "both                       3",
        "odd     2         1",
        "out",
    ]


def test_the_table_says_when_the_run_was_stopped_early(flow_of_two: Dataflow) -> None:
    stopped = Summary("example", "streaming", epochs=1, stopped=True)
    total = summary_table(flow_of_two, stopped).splitlines()[-1]
    assert total == "example: 1 epoch, 0 items in 0.0 s, 0 items/s (streaming, stopped)"


def test_the_table_shortens_step_ids_to_one_line() -> None:
    flow = Dataflow("example")
    op.input("two\nlines", flow, TestingSource([]))
    op.input("x" * 100, flow, TestingSource([]))
    rows = summary_table(flow, Summary("example", "batch")).splitlines()
    assert rows[1:3] == ["two lines", "x" * 39 + "…"]


def table_with(**sizes: int) -> list[str]:
    """Return the lines of the table of a run whose windowing step has these gauges."""
    summary = Summary("hourly", "streaming")
    summary.gauges = Counter({("hours", name): size for name, size in sizes.items()})
    return summary_table(hourly_flow(), summary).splitlines()[:-1]


def test_the_table_has_open_windows_and_buffered_values_if_any() -> None:
    assert table_with(keys=12, open_windows=1_500, buffered_values=7) == [
        "step    in  out  keys  windows  buffered",
        "visits",
        "hours              12    1,500         7",
        "out",
        "late",
    ]
    assert table_with(keys=12, open_windows=0, buffered_values=0)[0] == "step    in  out  keys"


# --- what went wrong ---


def test_a_step_error_is_followed_by_the_users_exception_and_its_note() -> None:
    cause = ZeroDivisionError("division by zero")
    cause.add_note("raised in a worker at:\n  File a.py, line 3")
    error = StepError("half", "the mapper raised ZeroDivisionError", "LHR", "0")
    error.__cause__ = cause
    assert describe_failure(error) == (
        "step 'half': the mapper raised ZeroDivisionError\n"
        "  key:  'LHR'\n"
        "  item: 0\n"
        "ZeroDivisionError: division by zero\n"
        "raised in a worker at:\n"
        "  File a.py, line 3"
    )


def test_frames_of_spark_are_left_out() -> None:
    Py4JError = type("Py4JError", (Exception,), {"__module__": "py4j.protocol"})
    frames = "\tat org.apache.Spark.run(A.java:3)\n\t... 7 more"
    error = StepError("out", f"its function raised\n{frames}")
    error.__cause__ = Py4JError("An error occurred")
    assert describe_failure(error) == "step 'out': its function raised"


@pytest.mark.parametrize("error", [EngineError("the query failed"), SourceError("no file")])
def test_other_errors_are_shown_by_their_message(error: Exception) -> None:
    error.__cause__ = KeyError("inside")
    assert describe_failure(error) == str(error)  # type: ignore[arg-type]


def test_a_trace_shows_the_users_frames_only() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    trace = users_trace(caught.value)
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.count("  File ") == 1
    assert 'json.loads("{")' in trace
    assert "JSONDecodeError" in trace.splitlines()[-1]
    assert users_place(caught.value).startswith(f" ({__file__}, line ")


def test_a_trace_includes_user_frames_of_causes() -> None:
    def outer() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    with pytest.raises(ValueError, match="outer") as caught:
        outer()
    trace = users_trace(caught.value)
    assert "KeyError: 'inner'" in trace
    assert "direct cause" in trace
    assert trace.endswith("ValueError: outer")


def test_an_exception_without_user_frames_is_shown_whole() -> None:
    broken = Dataflow("broken")
    del broken.__dict__["_steps"]  # which users cannot do
    with pytest.raises(AttributeError) as caught:
        flow.execution.run(broken)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert "flow/execution.py" in users_trace(error)
    assert users_place(error) == ""
