"""Errors shown when Spark's JVM ends while a flow runs: one line, or the earlier failure."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import deque
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.clientserver import FinalizerWorker
from py4j.protocol import Py4JError, Py4JNetworkError

from flow.engine.spark.session.spark_failures import SESSION_STOPPED, is_stopped, jvm_needed
from flow.errors import CheckpointError, EngineError, StepError

ENDED = r"^Spark's JVM has ended; was it killed, or out of memory\?"


def fake_session(*, answers: bool, stopped: bool = False) -> Any:
    """A session whose JVM tells the time, or is not there, and whose context may be stopped."""

    def nano_time() -> int:
        if not answers:
            raise ConnectionRefusedError("Connection refused")
        return 7

    system = SimpleNamespace(nanoTime=nano_time)
    lang = SimpleNamespace(lang=SimpleNamespace(System=system))
    java_context = SimpleNamespace(isStopped=lambda: stopped)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java_context))
    return SimpleNamespace(_jvm=SimpleNamespace(java=lang), sparkContext=context)


def raised_from(error: Exception, cause: Exception | None = None) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o134.isActive"),
        ConnectionRefusedError("Connection refused"),
        raised_from(CheckpointError("x cannot be written"), Py4JNetworkError("while sending")),
        raised_from(EngineError("the Spark job failed"), ConnectionResetError("reset")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_caused_by_the_end_of_the_jvm_name_it(error: Exception) -> None:
    with pytest.raises(EngineError, match=ENDED) as caught, jvm_needed(fake_session(answers=False)):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "answers", "stopped"),
    [
        (ConnectionRefusedError("a connection of the user's own"), True, False),
        (Py4JError("a call that Java refuses"), True, False),
        (StepError("half", "the mapper raised"), False, False),
        (StepError("half", "the mapper raised"), True, True),
        (ValueError("odd"), False, False),
    ],
)
def test_other_errors_are_raised_unchanged(error: Exception, answers: bool, stopped: bool) -> None:
    session = fake_session(answers=answers, stopped=stopped)
    with pytest.raises(type(error)) as caught, jvm_needed(session):
        raise error
    assert caught.value is error


def from_spark() -> StepError:
    error = StepError("out", "its function raised Py4JError")
    error.__cause__ = Py4JError("Cannot call methods on a stopped SparkContext")
    return error


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("'NoneType' object has no attribute 'sc'"),
        EngineError("the streaming query failed: Job 5 was cancelled"),
        from_spark(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_caused_by_a_stopped_session_name_it(error: Exception) -> None:
    spark = fake_session(answers=True, stopped=True)
    with pytest.raises(EngineError) as caught, jvm_needed(spark):
        raise error
    assert str(caught.value) == SESSION_STOPPED
    assert caught.value.__cause__ is error


def test_the_thread_that_frees_java_objects_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with jvm_needed(fake_session(answers=True)):
        pass
    releasing = FinalizerWorker(deque())
    releasing.run = partial(logging.error, "while sending")  # type: ignore[method-assign]
    releasing.start()
    releasing.join()
    logging.error("by the user's own thread")
    assert [record.message for record in caplog.records] == ["by the user's own thread"]


def test_a_context_without_a_python_object_is_stopped() -> None:
    assert is_stopped(cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))))


def test_a_run_that_ends_leaves_the_log_of_another_quiet(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "m", None, None)
    root = logging.getLogger()
    with jvm_needed(fake_session(answers=True)):
        with jvm_needed(fake_session(answers=True)):
            pass
        root.handle(record)
    assert caplog.records == []
    root.handle(record)
    assert caplog.records == [record]


CHILD = """
import os, sys
import flow.operators as op
from flow import Dataflow, FlowError, StepError, run
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestingSink, TestingSource

spark = make_session("dies", SparkSettings("local[1]"))

def kill(*_):
    os.kill(spark.sparkContext._gateway.proc.pid, 9)
    if sys.argv[2] == "and fails":
        raise StepError("out", "the shelf is full")

flow = Dataflow("dies")
s = op.input("in", flow, TestingSource([("a", 1)] * 20, batch_size=2))
s = op.stateful_map("last", s, lambda _, n: (n, n))
op.output("out", s, TestingSink([]))
try:
    run(flow, spark=spark, engine=sys.argv[1], shards=1, partitions=1, on_epoch=kill)
except FlowError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize(
    ("engine", "how", "message"),
    [
        pytest.param(
            *("streaming", "alone", "EngineError: Spark's JVM has ended;"),
            marks=pytest.mark.extended,
        ),
        *(
            pytest.param(
                *(engine, "and fails", "StepError: step 'out': the shelf is full"),
                marks=pytest.mark.extended,
            )
            for engine in ("streaming", "batch")
        ),
    ],
)
def test_a_killed_jvm_hides_no_error_and_shows_no_trace(
    engine: str, how: str, message: str
) -> None:
    command = [sys.executable, "-c", CHILD, engine, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(message), done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr, done.stderr
