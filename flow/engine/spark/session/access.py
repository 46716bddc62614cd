"""Access to a session beyond Spark's public API: by its JVM, or without one in Spark Connect.

A classic session has its JVM behind Py4J, in the process that the flow is started in. A session of
Spark Connect has neither a JVM nor a Spark context there, so flows run on it as batches only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flow.engine.spark.session.settings import is_local_master, local_tasks
from flow.errors import EnvironmentProblem

_REMOTE = "pyspark.sql.connect"
_CORES_OF_A_SERVER = 8
"""The number of tasks at the same time that is assumed of a server of Spark Connect."""


def is_remote(spark: object) -> bool:
    """Return True for a session of Spark Connect."""
    return type(spark).__module__.startswith(_REMOTE)


def java_of(spark: Any, purpose: str) -> Any:
    """Return the entry to the Java classes of a session's JVM, by Py4J.

    Args:
        spark: the session.
        purpose: for the error: what needs the JVM, such as "a checkpoint".

    Raises:
        EnvironmentProblem: if the session is one of Spark Connect.
    """
    if is_remote(spark):
        raise EnvironmentProblem(
            f"{purpose} needs Spark's JVM, which a session of Spark Connect does not reach: run "
            "the program with spark-submit, or on a session without remote()"
        )
    return spark._jvm


def cores_of(spark: Any) -> int:
    """Return the number of tasks that a session runs at a time; an assumption for a remote one."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    set_by_user = spark.conf.get("spark.default.parallelism", None)
    if set_by_user:
        return int(set_by_user)
    tasks = local_tasks(_master_of(spark), os.cpu_count() or 1)
    return _CORES_OF_A_SERVER if tasks is None else tasks


def is_local(spark: Any) -> bool:
    """Return True if a classic session runs its workers in this machine's own processes."""
    return not is_remote(spark) and is_local_master(_master_of(spark))


def _master_of(spark: Any) -> str:
    if is_remote(spark):
        return spark.conf.get("spark.master", None) or "unknown"
    return spark.sparkContext.master or "unknown"


def job_tags(spark: Any) -> tuple[Callable[[str], Any], ...]:
    """Return three functions of a tag: add it to this thread's jobs, remove it, and cancel jobs.

    The last function cancels the running jobs with the tag, of any thread.
    """
    if is_remote(spark):
        return spark.addTag, spark.removeTag, spark.interruptTag
    # A classic session's own tags do not reach the jobs that collect rows as Arrow.
    context = spark.sparkContext
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
