"""Errors of a run whose Spark JVM or session ends."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from py4j.clientserver import FinalizerWorker
from pyspark.sql import SparkSession

from flow.engine.spark.session.access import is_remote
from flow.engine.spark.session.failures import JVM_ERRORS
from flow.engine.spark.session.spark_log import SPARK_LOG
from flow.errors import CheckpointError, EngineError, FlowError

SESSION_STOPPED = (
    "the Spark session was stopped while the flow ran on it, by spark.stop() or the like: let "
    "run() return first, or ask it to (stop=StopFlag()); run again, the flow goes on from its "
    "checkpoint, if it has one"
)


@contextlib.contextmanager
def jvm_needed(spark: SparkSession) -> Iterator[None]:
    """Replace errors that the end of Spark's JVM, or of its session, causes in the block.

    Raises:
        EngineError: when the JVM or the session has ended.
    """
    with _quiet_py4j():
        try:
            yield
        except Exception as error:
            if _is_of_the_jvm(error) and not _answers(spark):
                log = f"its log: {SPARK_LOG}"
                problem = f"Spark's JVM has ended; was it killed, or out of memory? ({log})"
                raise EngineError(problem) from error
            if str(error) != SESSION_STOPPED and _is_of_spark(error) and is_stopped(spark):
                raise EngineError(SESSION_STOPPED) from error
            raise


def is_stopped(spark: Any) -> bool:
    """Return True if a session has been stopped, from Python or in the JVM."""
    if is_remote(spark):
        return bool(spark.is_stopped)
    java: Any = spark.sparkContext._jsc
    if java is None:
        return True
    try:
        return bool(java.sc().isStopped())
    except JVM_ERRORS:  # The JVM has ended, which is another failure.
        return False


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Suppress Py4J's log of failed calls at the root logger.

    Py4J's own thread reports released objects to the JVM, and outlives a run. Its log stays
    suppressed, because it has no use for users.
    """
    root = logging.getLogger()
    root.addFilter(_not_of_finalizers)
    # A filter of its own for each run: runs of several threads may overlap.
    quiet = partial(_not_of_py4j)
    root.addFilter(quiet)
    try:
        yield
    finally:
        root.removeFilter(quiet)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _not_of_finalizers(_: logging.LogRecord) -> bool:
    return not isinstance(threading.current_thread(), FinalizerWorker)


def _is_of_the_jvm(error: BaseException | None) -> bool:
    """Return True if the end of the JVM may be the cause of an error."""
    while error is not None:
        if isinstance(error, JVM_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_of_spark(error: BaseException) -> bool:
    """Return True if a stopped session, not a step or a sink, may be the cause of an error."""
    if not isinstance(error, FlowError) or isinstance(error, (EngineError, CheckpointError)):
        return True
    cause = error.__cause__
    packages = {"py4j", "pyspark"}
    return _is_of_the_jvm(error) or type(cause).__module__.partition(".")[0] in packages


def _answers(spark: SparkSession) -> bool:
    """Return True if the JVM of a session runs, or is not that of this process."""
    if is_remote(spark):
        return True
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.System.nanoTime()
    except JVM_ERRORS:
        return False
    return True
