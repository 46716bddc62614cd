"""The streaming query of a flow: its source, levels and settings, and the writes of outputs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from flow.engine.checkpoint.identity import Identity
from flow.engine.packets.packets import PACKET_DDL
from flow.engine.plan.plan import Plan
from flow.engine.spark.input_frames import with_frames
from flow.engine.spark.level_processor import PROCESSORS, SparkLevel
from flow.engine.spark.session.session import query_conf
from flow.engine.spark.session.spark_capabilities import LevelAdapter
from flow.engine.spark.shipped_code import Shipped, ShippedFunction
from flow.engine.spark.shipping import Layout, ShippedPlan, TaskWriting, end_partition

_SOURCE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""The setting that names sources in Spark's offset log. Without it the log has a line for each
source, in order."""


_FEW_ROWS = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for a query whose rows are packets, of which there are few. Spark generates code to
convert rows again in each task, which takes longer than the code saves."""

_STARTING = threading.Lock()
"""Held while a query starts, as queries of other threads start with other settings."""


@dataclass(frozen=True)
class FlowQuery:
    """The streaming query of a flow on a checkpoint.

    Attributes:
        spark: the session.
        plan: the flow, as it fits the checkpoint.
        shipped: the same flow for workers.
        identity: the identity of the checkpoint.
        root: the checkpoint's directory, a path or a URI.
        is_local: True if the checkpoint is on a file system of Spark's machine.
        kept_epochs: number of finished epochs that the checkpoint retains.
        left_out: edges whose sinks take Spark data frames, which no task writes.
        conf: settings of this query alone.
        code: modules that the server lacks; see `Shipped`.
    """

    spark: SparkSession
    plan: Plan
    shipped: ShippedPlan
    identity: Identity
    root: str
    is_local: bool
    kept_epochs: int
    left_out: frozenset[int]
    conf: Mapping[str, str]
    code: bytes = b""

    @property
    def layout(self) -> Layout:
        """Layout of the flow over Spark."""
        return layout_of(self.identity, self.plan)

    def start(
        self,
        source: type[DataSource],
        write: Callable[[DataFrame, int], None],
        interval_us: int | None,
    ) -> StreamingQuery:
        """Start the query.

        Args:
            source: the class of the feed's source.
            write: function for ``foreachBatch``, with the packets and number of a micro-batch.
            interval_us: time between starts of epochs, in µs; ``None`` for Spark's trigger of
                available data, with which the query ends as soon as a source has no new offset.
        """
        extra = {_SOURCE_NAMES: "false", **self.identity.conf, **self.conf}
        if not (self.plan.frames or self.left_out):
            extra |= _FEW_ROWS
        self.spark.dataSource.register(source)
        layout = self.layout
        with (
            _STARTING,
            query_conf(self.spark, layout.partitions, self.kept_epochs, self.is_local, extra),
        ):
            writer = self._chain(source.name()).writeStream.queryName(self.plan.flow_id)
            writer = writer.foreachBatch(write)
            writer = writer.option("checkpointLocation", f"{self.root}/{self.identity.spark}")
            trigger: Mapping[str, Any] = {"availableNow": True}
            if interval_us is not None:
                trigger = {"processingTime": f"{interval_us // 1000} milliseconds"}
            return writer.trigger(**trigger).outputMode("append").start()

    def _chain(self, ticker: str) -> DataFrame:
        """Return the packets of the last stage: sources, all levels, and the writes of outputs.

        Args:
            ticker: the name of the ticker's data source.
        """
        identity, layout = self.identity, self.layout
        writing = TaskWriting(
            identity.run_id, self.left_out, identity.first_epoch, rewinds=identity.rewinds
        )
        adapter = LevelAdapter(identity.adapter)
        frame = self.spark.readStream.format(ticker).load()
        frame = with_frames(frame, self.plan, self.shipped, layout)
        if not layout.levels:
            end = partial(end_partition, self.shipped, layout, writing)
            task = ShippedFunction(Shipped(pickle.dumps(end), self.code))
            return frame.mapInArrow(task, PACKET_DDL)
        for number in range(1, layout.levels + 1):
            task_writing = writing if number == layout.levels else None
            level = SparkLevel(
                self.shipped, layout, number, identity.run_id, task_writing, self.root
            )
            run_level = getattr(frame.groupBy("shard"), adapter.value)
            processor = PROCESSORS[adapter](pickle.dumps(level), self.code)
            frame = run_level(processor, PACKET_DDL, "Append", "None")
        return frame


def layout_of(identity: Identity, plan: Plan) -> Layout:
    """Return the layout of a flow over Spark in a checkpoint."""
    return Layout(identity.shards, identity.partitions, len(plan.levels))
