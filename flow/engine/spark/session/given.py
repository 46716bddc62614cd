"""Sessions that the program has made: checks before a run, and what a run changes for its time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from flow.engine.spark.session.access import is_local, is_remote, java_of
from flow.engine.spark.session.code import send_packages
from flow.engine.spark.session.jvm import is_stopped
from flow.engine.spark.versions.supported import check_same_version
from flow.errors import FlowBuildError, FlowTypeError, shorten


def check_session(spark: Any, *, is_batch: bool) -> None:
    """Check that a flow can run on a session.

    Args:
        spark: the session.
        is_batch: True if the flow runs as a batch.

    Raises:
        FlowTypeError: if the object is not a session.
        FlowBuildError: if the session was stopped.
        EnvironmentProblem: if the session runs another version of Spark than the installed one, or
            is one of Spark Connect and the flow is no batch.
    """
    if not isinstance(spark, SparkSession) and not is_remote(spark):
        raise FlowTypeError(
            f"spark= must be a SparkSession, got {type(spark).__name__} {shorten(spark)}"
        )
    if is_stopped(spark):
        raise FlowBuildError(
            "spark= names a session that was stopped: make a new one, or leave out spark="
        )
    check_same_version(spark)
    if not is_batch:
        java_of(spark, "a streaming flow")


@contextlib.contextmanager
def ready_for_a_run(spark: SparkSession) -> Iterator[None]:
    """Prepare the workers of a session for the runs of the block.

    Local workers run in the Python of this process, as the flow's functions are in its packages;
    without a setting, Spark starts the ``python3`` on the path. Workers of a cluster, or of a
    server of Spark Connect, get the packages of this project.
    """
    if not is_local(spark):
        send_packages(spark)
        yield
        return
    context: Any = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before
