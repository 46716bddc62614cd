"""Spark configuration of a flow's query, set on the session while the query starts.

A checkpoint keeps some settings of its first epoch for its whole life: the RocksDB state store,
changelog checkpointing, checkpoint format 2, and bounded memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from flow.engine.spark.session.access import is_remote
from flow.engine.spark.session.failures import JVM_ERRORS
from flow.engine.spark.session.settings import QUERY_CONF

_ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for a checkpoint on a local file system. A rename is atomic with each of Spark's file
managers there, and the default manager starts three processes for each file."""

_FEW_ROWS: Mapping[str, str] = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for a query whose rows are packets, of which there are few. Spark generates code to
convert rows anew in each task, which takes longer than the code saves."""

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
    """Allow plans of more than a megabyte, such as flows with a lookup table in a function.

    PySpark broadcasts a Python source whose pickle is larger than a megabyte, but the process that
    runs the source in a stream does not read broadcasts.
    """
    if is_remote(spark):  # There the server makes the plan of a batch, and no stream runs.
        yield
        return
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
