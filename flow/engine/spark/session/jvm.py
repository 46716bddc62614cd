"""Spark's JVM, which may end while a flow runs on it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flow.engine.spark.session.failures import JVM_ERRORS
from flow.engine.spark.session.session import SPARK_LOG
from flow.errors import EngineError


@contextlib.contextmanager
def jvm_needed(spark: SparkSession) -> Iterator[None]:
    """Say so when Spark's JVM has ended: what Py4J raises then speaks of sockets.

    Raises:
        EngineError: when something failed because of that.
    """
    with _untold():
        try:
            yield
        except Exception as error:
            if not _is_of_the_jvm(error) or _answers(spark):
                raise
            log = f"its log: {SPARK_LOG}"
            problem = f"Spark's JVM has ended; was it killed, or out of memory? ({log})"
            raise EngineError(problem) from error


@contextlib.contextmanager
def _untold() -> Iterator[None]:
    """Leave out what Py4J logs of each call that fails, with its trace, at the root of all logs."""
    root = logging.getLogger()
    root.addFilter(_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _is_of_the_jvm(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, may come of a JVM that has ended."""
    while error is not None:
        if isinstance(error, JVM_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _answers(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.System.nanoTime()
    except JVM_ERRORS:
        return False
    return True
