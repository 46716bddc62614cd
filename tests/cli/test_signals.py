"""Handlers of signals, and the end of a program that a signal stops."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import flow.process
from flow.process import STOP_MESSAGE, own_handlers_kept, plainly_interrupted, stopping_on_signals
from tests.support.faults import Child, no_leftovers

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have exited."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Set the handlers of a new process, and restore the earlier ones afterwards."""
    before = {number: signal.getsignal(number) for number in (INT, TERM)}
    signal.signal(INT, signal.default_int_handler)
    signal.signal(TERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def own(number: int, frame: FrameType | None) -> None:
    """A handler of the program's own."""


def pysparks(number: int, frame: FrameType | None) -> None:
    """Stand in for the handler of interrupts that PySpark installs."""


pysparks.__module__ = "pyspark.core.context"


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_first_signal_asks_and_says_so(
    number: signal.Signals, exits: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []
    with stopping_on_signals(lambda: asked.append(True)):
        signal.raise_signal(number)
    assert (asked, exits, capsys.readouterr().err) == ([True], [], f"{STOP_MESSAGE}\n")


@pytest.mark.parametrize(("second", "code"), [(INT, 130), (TERM, 143)])
def test_a_second_signal_ends_the_process_at_once(
    second: signal.Signals, code: int, exits: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with stopping_on_signals(lambda: None):
        signal.raise_signal(INT)
        assert exits == []
        signal.raise_signal(second)
    assert exits[:1] == [code]
    assert capsys.readouterr().err.splitlines()[:2] == [STOP_MESSAGE, "stopped at once"]


def test_handlers_are_put_back_whatever_happens() -> None:
    signal.signal(INT, pysparks)
    with pytest.raises(ZeroDivisionError), stopping_on_signals(lambda: None):
        assert 1 / (signal.getsignal(INT) is pysparks)
    assert signal.getsignal(INT) is pysparks
    assert signal.getsignal(TERM) is signal.SIG_DFL


@pytest.mark.parametrize("handler", [own, signal.SIG_IGN])
def test_what_the_program_has_set_itself_is_left_alone(handler: Any) -> None:
    signal.signal(INT, handler)
    with stopping_on_signals(lambda: None):
        assert signal.getsignal(INT) is handler
        assert signal.getsignal(TERM) is not signal.SIG_DFL  # the other is nobody's


def test_outside_the_main_thread_nothing_is_changed() -> None:
    seen: list[Any] = []

    def look() -> None:
        with stopping_on_signals(lambda: None), own_handlers_kept():
            seen.extend([signal.getsignal(INT), signal.getsignal(TERM)])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, signal.SIG_DFL]


def test_standard_error_that_is_gone_does_not_keep_the_run_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(sys, "stderr", None)
    with stopping_on_signals(lambda: asked.append(True)):
        signal.raise_signal(INT)
    assert asked == [True]


@pytest.mark.parametrize(
    ("before", "after"),
    [(own, own), (signal.SIG_IGN, signal.SIG_IGN), (signal.default_int_handler, pysparks)],
)
def test_pyspark_takes_the_place_of_nobodys_handler_only(before: Any, after: Any) -> None:
    signal.signal(INT, before)
    with own_handlers_kept():
        signal.signal(INT, pysparks)
    assert signal.getsignal(INT) is after


def interrupted() -> None:
    raise KeyboardInterrupt


def cancelled() -> None:
    """As PySpark does it: the error of the job that Ctrl-C has ended hides that it was pressed."""
    try:
        interrupted()
    finally:
        raise ValueError("the job was cancelled")


@pytest.mark.parametrize("fails", [interrupted, cancelled])
def test_an_interrupt_is_not_hidden_by_what_it_leads_to(fails: Callable[[], None]) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, plainly_interrupted():
        fails()
    assert caught.value.__suppress_context__


def test_other_errors_are_as_they_were() -> None:
    error = ValueError("other")
    with pytest.raises(ValueError, match="other") as caught, plainly_interrupted():
        raise error
    assert caught.value is error


# --- programs ---

PROGRAM = """\
import sys
import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink
from recovery import RecoveryConfig
from tests.support.slow_numbers import SlowNumbers

is_batch = "batch" in sys.argv
flow = Dataflow("slow")
numbers = op.input("in", flow, SlowNumbers(20 if is_batch else 2, is_batch))
op.output("out", op.map("row", numbers, lambda n: {"n": n}), JsonLinesSink("out"))
done = run(
    flow,
    recovery=None if is_batch else RecoveryConfig("checkpoint"),
    master="local[1]",
    shards=2,
    on_epoch=lambda report: print("epoch", report.epoch, flush=True),
)
print("went on", done.stopped, done.epochs)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Starts the program as a shell does, in a process group of its own."""
    (tmp_path / "program.py").write_text(PROGRAM)
    with no_leftovers() as children:

        def begin(*arguments: str) -> Child:
            command = [sys.executable, "program.py", *arguments]
            children.append(Child.start(command, tmp_path))
            return children[-1]

        yield begin


def written(directory: Path) -> list[int]:
    files = directory.rglob("*.jsonl")
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


@pytest.mark.spark
@pytest.mark.extended
def test_a_program_goes_on_after_the_epoch_in_hand(
    start: Callable[..., Child], tmp_path: Path
) -> None:
    first = start()
    assert first.wait_for((tmp_path / "reading 2").exists)
    os.killpg(first.process.pid, INT)  # as a terminal does: to the JVM and the workers too
    *_, epoch, last = first.finish().splitlines()
    count = len(first.epochs)
    assert (epoch, last) == (f"epoch {count - 1}", f"went on True {count}")
    assert first.output.splitlines()[-3] == STOP_MESSAGE  # printed while the last epoch was in hand
    assert first.output.count("\n") == count + 2

    second = start()
    assert second.wait_for(lambda: second.epochs)
    second.process.send_signal(TERM)
    assert second.wait_for(lambda: STOP_MESSAGE in second.output)
    second.process.send_signal(TERM)
    assert second.process.wait(60) == 143
    second.vanish()
    assert second.output.endswith(f"{STOP_MESSAGE}\nstopped at once\n")
    # The first and the second run, with nothing lost and nothing doubled in between.
    numbers = written(tmp_path / "out")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 2 * (count + len(second.epochs))


@pytest.mark.spark
@pytest.mark.extended
def test_a_batch_is_interrupted_as_any_python_program(
    start: Callable[..., Child], tmp_path: Path
) -> None:
    batch = start("batch")
    assert batch.wait_for((tmp_path / "reading 0").exists)
    os.killpg(batch.process.pid, INT)
    assert batch.process.wait(60) == -INT
    batch.vanish()
    assert batch.output.startswith("Traceback (most recent call last):\n")
    assert batch.output.endswith("\nKeyboardInterrupt\n")
    assert "py4j" not in batch.output
    assert flow.process.__file__ in batch.output
