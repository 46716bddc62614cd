"""Spark configuration of a flow's query: on the session while the query starts.

What a checkpoint keeps for life is set before its first epoch: the RocksDB state store, changelog
checkpointing, checkpoint format 2, and bounded memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from flow.engine.spark.session.failures import JVM_ERRORS

ONE_DAEMON: Mapping[str, str] = {
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""Setting under which all Python workers are forked from one process. If it is true, tasks with
state have one environment variable less than others, and Spark starts a process for each
environment."""

MAINTENANCE_INTERVAL = "10s"
"""Shorter than Spark's minute, in which epochs of a quarter of a second write 240 versions. Turns
cost processor time: every 15 s they took 2.6 % of what the JVM did with small epochs, and with one
every 5 s it took a tenth more than with one a minute."""

QUERY_CONF: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": MAINTENANCE_INTERVAL,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    **ONE_DAEMON,
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a flow's query; set on the session while the query starts."""

_ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
"""For a checkpoint on a local file system, where a rename is atomic in either of Spark's managers,
and the other one starts three processes for each file."""

_FEW_ROWS: Mapping[str, str] = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For packets, of which there are few: code to turn rows into others, which Spark generates anew in
each task, takes longer than it saves."""

_BROADCAST_BEYOND = "spark.broadcast.UDFCompressionThreshold"
_NEVER_BROADCAST = 2**31 - 1


@contextlib.contextmanager
def query_conf(
    spark: SparkSession,
    partitions: int,
    kept_epochs: int | None = None,
    local: bool = False,
    only_packets: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Set the configuration of a flow's query, and restore the old one at the end.

    Args:
        spark: the session.
        partitions: number of partitions of each level.
        kept_epochs: number of retained epochs; ``None`` for the session's setting.
        local: True if the checkpoint is on a file system of this machine.
        only_packets: True if all rows that Spark processes are packets.
        extra: settings of this query alone.
    """
    wanted = {**QUERY_CONF, "spark.sql.shuffle.partitions": str(partitions), **(extra or {})}
    if local:
        wanted.update(_ON_THIS_MACHINE)
    if only_packets:
        wanted.update(_FEW_ROWS)
    if kept_epochs is not None:
        wanted["spark.sql.streaming.minBatchesToRetain"] = str(kept_epochs)
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        with _large_plans(spark):
            yield
    finally:
        # If the JVM has ended, the original failure must stay visible.
        with contextlib.suppress(*JVM_ERRORS):
            _put_back(spark, before)


def _put_back(spark: SparkSession, before: Mapping[str, str | None]) -> None:
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@contextlib.contextmanager
def _large_plans(spark: SparkSession) -> Iterator[None]:
    """Allow large flows, such as functions with a lookup table.

    Beyond a megabyte PySpark broadcasts what a Python source is made of, and what runs such sources
    in Spark's streams does not read broadcasts.
    """
    conf = spark._jsc.sc().conf()
    before = conf.get(_BROADCAST_BEYOND, "")
    conf.set(_BROADCAST_BEYOND, str(_NEVER_BROADCAST))
    try:
        yield
    finally:
        with contextlib.suppress(*JVM_ERRORS):
            if before:
                conf.set(_BROADCAST_BEYOND, before)
            else:
                conf.remove(_BROADCAST_BEYOND)
