"""Messages of Spark's failures: a line with the cause instead of the call, and what to set."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import flow.operators as op
from flow import EngineError, run
from flow.engine.spark.session.jvm import SPARK_LOG
from flow.engine.spark.session.spark_failures import (
    EXECUTOR_KILLED,
    HEAP_FULL,
    LATE_WORKER,
    WORKER_DIED,
    RunDisks,
    spark_problem,
)
from flow.testing import TestingSource
from tests.support.one_stream import Build, a_flow, step


@dataclass
class Java:
    """An exception of Java's, as Py4J shows it."""

    message: str | None
    cause: Java | None = None

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> Java | None:
        return self.cause

    def toString(self) -> str:
        return f"java.io.EOFException: {self.message}" if self.message else "java.io.EOFException"


class JavaError(Exception):
    """Stand-in for the exception that Py4J raises for one of Java."""

    def __init__(self, message: str, java: Java) -> None:
        super().__init__(message)
        self.java_exception = java


CALL = "An error occurred while calling o1634.getResult."
AWAIT = "Exception thrown in awaitResult: "
SPARK = "org.apache.spark.SparkException: "
ABORTED = "Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times"

NO_WORKER = (
    "Error from python worker:\n  python: Error while finding module specification for "
    "'flow.engine.spark.daemon' (ModuleNotFoundError: No module named 'flow')"
)


TRACE = """Traceback (most recent call last):
  File "worker.py", line 7, in func
    return [udf(row) for row in rows]
            ^^^^^^^^

  File "mine.py", line 13, in bad
"""
RAISED = f"""[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {TRACE}KeyError: 'a'

During handling of the above exception, another exception occurred:

{TRACE}ValueError: odd number
which has a second line
 SQLSTATE: 38000"""


def chain(message: str | None, *causes: str | None) -> Java:
    return Java(message, chain(*causes) if causes else None)


NOT_STARTED = (
    "Spark could not start its Python workers: python: Error while finding module specification "
    "for 'flow.engine.spark.daemon' (ModuleNotFoundError: No module named 'flow'). Install this "
    "package where they run, or put the folder that it is in on PYTHONPATH before Spark starts"
)
NO_PYTHON = f"{ABORTED}: \nError from python worker:\n  python: not found\n"


@pytest.mark.parametrize(
    "case",
    [
        (ABORTED, AWAIT, f"{ABORTED}\n\tat Deep.scala", None),
        ("java.io.EOFException", None),
        ("No space left on device", AWAIT, ABORTED, "java.io.IOException: No space left on device"),
        (CALL, AWAIT),
        (NOT_STARTED, AWAIT, f"{ABORTED}: {SPARK}\n{NO_WORKER}\nPYTHONPATH was:\n"),
        ("Spark could not start its Python workers: python: not found", NO_PYTHON),
        ("a function that Spark ran in Python raised ValueError: odd number", AWAIT, RAISED),
    ],
)
def test_the_outermost_cause_with_a_message_is_shown(case: tuple[Any, ...]) -> None:
    problem, *messages = case
    error = JavaError(f"{CALL}\n: {messages[0]}\n\tat Deep.scala", chain(*messages))
    assert spark_problem(error) == problem


def test_a_python_exception_is_shown_by_its_first_line_or_its_type() -> None:
    assert spark_problem(ValueError("odd\nand more")) == "odd"
    assert spark_problem(ValueError()) == "ValueError"


def test_an_exception_of_a_python_worker_is_found_without_java_causes() -> None:
    """As PySpark 4.0 and 4.1 raise it."""
    head = "An exception was thrown from the Python worker. Please see the stack trace below."
    error = PythonException(f"\n  {head}\n{TRACE}KeyError: 'a'\n")
    assert spark_problem(error) == "a function that Spark ran in Python raised KeyError: 'a'"


def test_cyclic_causes_end() -> None:
    java = Java(AWAIT)
    java.cause = java
    assert spark_problem(JavaError(CALL, java)) == CALL


DISKS = RunDisks("/there/is/no/checkpoint", ("/nor/such/a/folder",))
ROOMY = "Spark's state server closed the connection (EOFError) and does not say why"
FULL = (
    "No space left on device on the disk of the checkpoint, /there/is/no/checkpoint: make room "
    "there and run the flow again"
)


def worker(raised: str) -> JavaError:
    """The failure of a Spark job in which a Python worker raised something."""
    message = f"{ABORTED}: PythonException: {TRACE}{raised}\n SQLSTATE: 38000\n\tat Deep.scala"
    return JavaError(CALL, Java(message))


def test_a_full_disk_reported_with_lost_state_is_named() -> None:
    kind = "flow.engine.spark.session.spark_failures.StateLost"
    text = f"{kind}: No space left on device: /there/is/no/checkpoint"
    assert spark_problem(worker(text), DISKS) == FULL


@pytest.mark.parametrize(
    "raised",
    ["EOFError", "BrokenPipeError: [Errno 32] Broken pipe", "x.StateLost: ConnectionResetError"],
)
def test_a_full_disk_found_in_sparks_log_is_named(
    raised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (
        "WARN CheckpointFileManager: Error cancelling write to "
        "file:/there/is/no/checkpoint/spark/state/0/1/3.changelog, continuing\n"
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
    )
    monkeypatch.setattr(SPARK_LOG, "written_since", lambda _: log)
    assert spark_problem(worker(raised), DISKS) == FULL


def test_a_closed_socket_with_free_space_is_no_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SPARK_LOG, "written_since", lambda _: "all is well")
    assert spark_problem(worker("x.StateLost: EOFError"), DISKS) == ROOMY
    problem = spark_problem(worker("EOFError"), DISKS)
    assert problem == "a function that Spark ran in Python raised EOFError"


FAULTHANDLER = (
    "Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled' or"
    "'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better Python "
    "traceback."
)
CRASHED = f"Python worker exited unexpectedly (crashed). {FAULTHANDLER}"
LOST_TASK = (
    f"{ABORTED}, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (192.0.2.2 executor "
    "driver): "
)


EXITED = (
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command"
)
KILLED = "ExecutorLostFailure: The executor with id 1 exited with exit code 137(SIGKILL, possible"


@pytest.mark.parametrize(
    "case",
    [
        # A killed worker of PySpark 4.3.
        (
            WORKER_DIED,
            AWAIT,
            f"{LOST_TASK}{SPARK}{CRASHED}\n\tat D.scala",
            CRASHED,
            None,
        ),
        (EXECUTOR_KILLED, f"{LOST_TASK}{EXITED} exited with code 137"),
        (EXECUTOR_KILLED, f"{LOST_TASK}{KILLED} container OOM)."),
        (HEAP_FULL, f"{LOST_TASK}java.lang.OutOfMemoryError: Java heap space"),
        (LATE_WORKER, "Python worker failed to connect back."),
    ],
)
def test_too_little_memory_is_explained(case: tuple[Any, ...]) -> None:
    problem, *messages = case
    assert spark_problem(JavaError(CALL, chain(*messages)), DISKS) == problem


def test_a_number_137_alone_is_no_killed_executor() -> None:
    text = f"{ABORTED}: task 137 of epoch 137 failed"
    assert spark_problem(JavaError(CALL, Java(text))) == text


def test_unrelated_errors_do_not_read_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(SPARK_LOG), "written_since")
    problem = spark_problem(worker("ValueError: odd"), DISKS)
    assert problem == "a function that Spark ran in Python raised ValueError: odd"


# --- a worker that the system kills ---


def die(*_: Any) -> Any:
    """Die as a worker does that the kernel kills for memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "build"),
    [
        ("batch", step(op.map, die)),
        pytest.param("streaming", step(op.stateful_map, die), marks=pytest.mark.extended),
    ],
    ids=["batch", "streaming"],
)
def test_a_killed_worker_is_explained(engine: Any, build: Build, spark: SparkSession) -> None:
    flow = a_flow(build, source=TestingSource([("a", 1)]))
    with pytest.raises(EngineError, match=re.escape(WORKER_DIED)):
        run(flow, spark=spark, engine=engine)
