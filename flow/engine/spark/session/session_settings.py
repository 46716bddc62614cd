"""Settings and properties of a session, in code that also runs without PySpark.

A classic session has its JVM behind Py4J, in the process that the flow is started in. A session of
Spark Connect has neither a JVM nor a Spark context there.

Among the settings is the switch of the optional speed-ups, with and without which results are the
same: the Spark home with its archive of classes, the early start of Python workers and their
daemon, copies of state on a worker's disk, and pipelined calls of Spark's state. The environment
variable ``FLOW_SPEEDUPS=off``, set before Spark starts, switches them off, to find out whether one
of them is the cause of a problem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from flow.errors import EnvironmentProblem

QUIET_LEVELS = ("WARN", "ERROR", "FATAL", "OFF")
"""The levels of Spark's log at which a long run writes little."""

LOG_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", *QUIET_LEVELS)
"""The levels of Spark's log."""

LOCAL_DRIVER_MEMORY = "4g"
"""The heap of the JVM of a session on this machine."""

SPEEDUPS_VARIABLE = "FLOW_SPEEDUPS"
SPEEDUPS_OF_WORKERS = f"spark.executorEnv.{SPEEDUPS_VARIABLE}"
"""The setting of Spark that sets the variable for a session's workers."""

ONE_DAEMON: Mapping[str, str] = {
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""The setting with which Spark forks all Python workers from one process. With "true", tasks with
state have one environment variable less than other tasks, and Spark starts a process for each
distinct environment."""

MAINTENANCE_INTERVAL = "10s"
"""The interval of maintenance of the state store. In Spark's default of a minute, epochs of 0.25 s
write 240 versions. Maintenance costs processor time: with small epochs, 2.6 % of the JVM's time at
an interval of 15 s, and 10 % more time at 5 s than at a minute."""

STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
"""The setting of the format of state, which a checkpoint records."""

QUERY_CONF: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    STATE_FORMAT: "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": MAINTENANCE_INTERVAL,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    **ONE_DAEMON,
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a flow's query; set on the session while the query starts."""

STREAMING = "spark.sql.streaming."
"""The prefix of settings that a batch has no use for."""
_STORE = f"{STREAMING}stateStore."
ROCKSDB = "RocksDBStateStoreProvider"
"""The name that ends the class of each state store on RocksDB, also of a vendor's own."""


class QuerySetting(NamedTuple):
    """The use of a setting that a run sets while its query starts.

    Attributes:
        is_needed: True if results or their recovery may be wrong with another value; the session
            must accept the value. False if only time, memory or space is lost.
        otherwise: the consequence of another value.
    """

    is_needed: bool
    otherwise: str


NEEDED, USEFUL = partial(QuerySetting, True), partial(QuerySetting, False)

QUERY_SETTINGS: Mapping[str, QuerySetting] = {
    f"{_STORE}providerClass": NEEDED("Spark's other store cannot keep the state of a flow"),
    STATE_FORMAT: NEEDED("a late write of a lost task may replace the state of an epoch"),
    "spark.sql.shuffle.partitions": NEEDED("Spark looks for shards in other partitions"),
    f"{STREAMING}minBatchesToRetain": NEEDED(
        "sinks and sources keep other epochs than Spark: a rewind may find a part of them"
    ),
    f"{STREAMING}queryEvolution.enableSourceEvolution": NEEDED(
        "Spark's log of offsets has another form, and the offsets of inputs are not found"
    ),
    "spark.broadcast.UDFCompressionThreshold": NEEDED(
        "Spark sends a flow of more than a megabyte by a way that its sources do not read"
    ),
    f"{_STORE}rocksdb.changelogCheckpointing.enabled": USEFUL(
        "each epoch writes files of whole state, not of its changes"
    ),
    f"{_STORE}rocksdb.boundedMemoryUsage": USEFUL("the memory of RocksDB has no limit"),
    f"{_STORE}rocksdb.trackTotalNumberOfRows": USEFUL("each write of state takes a read more"),
    f"{_STORE}maintenanceInterval": USEFUL("a restart reads more changes, after more of them"),
    f"{_STORE}unloadOnCommit": USEFUL("maintenance that is overdue waits for Spark's thread"),
    f"{STREAMING}numRecentProgressUpdates": USEFUL("Spark keeps more reports in memory"),
    f"{STREAMING}checkpointFileManagerClass": USEFUL("Spark starts processes for each file"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": USEFUL(
        "rows reach Python in smaller or larger parts"
    ),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": USEFUL(
        "Spark starts more Python processes, and errors show fewer lines"
    ),
    "spark.sql.adaptive.enabled": USEFUL("Spark plans a batch again while it runs"),
    "spark.sql.codegen.factoryMode": USEFUL("Spark compiles code for few rows in each task"),
}
"""The use of each setting that a run may set. A setting that is not listed is needed."""

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
"""Master URLs of sessions on this machine."""


def local_tasks(master: str | None, cpus: int) -> int | None:
    """Return the number of tasks that a local master runs at a time; ``None`` for a cluster.

    >>> [local_tasks(master, 2) for master in ("local[3]", "local[3,4]", None, "local", "yarn")]
    [3, 3, 2, 1, None]

    Args:
        master: the master URL; ``None`` for the default, all processors of this machine.
        cpus: number of processors of this machine.
    """
    match = _LOCAL.fullmatch(master or "local[*]")
    if match is None:
        return None
    number = match[1] or "1"
    return cpus if number == "*" else int(number)


def is_local_master(master: str | None) -> bool:
    """Return True if a session with this master runs its tasks in this machine's one JVM."""
    return local_tasks(master, 1) is not None


def switched(is_on: bool) -> dict[str, str]:
    """Return the environment variable that switches the speed-ups on or off."""
    return {SPEEDUPS_VARIABLE: "on" if is_on else "off"}


def has_speedups() -> bool:
    """Return True unless the optional speed-ups are switched off.

    Raises:
        EnvironmentProblem: when the variable is neither ``on`` nor ``off``.
    """
    value = os.environ.get(SPEEDUPS_VARIABLE, "on")
    if value not in ("on", "off"):
        raise EnvironmentProblem(f"{SPEEDUPS_VARIABLE} must be 'on' or 'off', got {value!r}")
    return value == "on"


_REMOTE = "pyspark.sql.connect"
_CORES_OF_A_SERVER = 8
"""The number of tasks at the same time that is assumed of a server of Spark Connect."""


def is_remote(spark: object) -> bool:
    """Return True for a session of Spark Connect."""
    return type(spark).__module__.startswith(_REMOTE)


def has_jvm(spark: Any) -> bool:
    """Return True if this process reaches the JVM of a session; Spark Connect has no attribute."""
    return getattr(spark, "_jvm", None) is not None


def java_of(spark: Any, purpose: str) -> Any:
    """Return the entry to the Java classes of a session's JVM, by Py4J.

    Args:
        spark: the session; ``None`` without one.
        purpose: for the error: what needs the JVM, such as "a checkpoint".

    Raises:
        EnvironmentProblem: if there is no session, or this process does not reach its JVM.
    """
    if not has_jvm(spark):
        who = "a session of Spark Connect" if is_remote(spark) else "this session"
        who = "a program without a session" if spark is None else who
        raise EnvironmentProblem(
            f"{purpose} needs Spark's JVM, which {who} does not reach: run "
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
