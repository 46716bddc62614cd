"""The streaming engine: the whole flow as one Structured Streaming query on one checkpoint."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from flow.dataflow import Step
from flow.engine.context import Stats
from flow.engine.epochs import EpochOutputs
from flow.engine.feed import Feed, StopFlag, SystemTime, wall_time
from flow.engine.foreign import foreign_packets
from flow.engine.level import run_level
from flow.engine.local import DEFAULT_SHARDS, builder_of
from flow.engine.packets import PACKET_DDL, Packet
from flow.engine.plan import Plan
from flow.engine.rows import Layout
from flow.engine.session import SPARK_LOG, query_conf
from flow.engine.shipping import ShippedPlan
from flow.engine.sources import is_foreign, keep_static_frames, planners_of
from flow.engine.state import SegmentedStates
from flow.engine.storage import Storage
from flow.engine.summary import Summary
from flow.engine.ticker import FeedServer, ticker_source
from flow.errors import CheckpointError, EngineError, FlowError, first_line

VERSION = 1
logger = logging.getLogger("flow")


@dataclass(frozen=True)
class StreamingSettings:
    """How to run a streaming query.

    Attributes:
        checkpoint: where state and offsets are kept; a temporary directory when left out.
        trigger: at what interval epochs start, Spark's text form; as soon as possible if ``None``.
        only_available: whether to stop once no source has anything new.
        drain: whether to end the input when all sources have ended.
        system_time: the clock.
        shards: how many slices the key space has; kept for the checkpoint's life.
        partitions: how many partitions each level has; kept for the checkpoint's life.
    """

    checkpoint: str | None = None
    trigger: str | None = None
    only_available: bool = False
    drain: bool = True
    system_time: SystemTime = wall_time
    shards: int | None = None
    partitions: int | None = None


@dataclass
class StreamingRun:
    """One run of a flow as a streaming query."""

    plan: Plan
    spark: SparkSession
    settings: StreamingSettings
    on_epoch: Callable[[int, Stats, Feed], None] = lambda *_: None
    stop: StopFlag = field(default_factory=StopFlag)

    def run(self) -> Summary:
        """Run until the sources end, the run is asked to stop, or something fails.

        Raises:
            FlowError: when a step, a source, a sink or Spark failed.
        """
        with tempfile.TemporaryDirectory(prefix="flow-") as scratch, _quiet_callbacks():
            storage = Storage(self.spark, self.settings.checkpoint or scratch)
            identity = self._identity(storage)
            self._summary = Summary(self.plan.flow_id, "streaming")
            self._layout = Layout(identity.shards, identity.partitions, len(self.plan.levels))
            self.plan = keep_static_frames(self.plan, storage)
            self._shipped = ShippedPlan.pack(self.plan)
            self._failure: BaseException | None = None
            self._feed: Feed | None = None
            outputs = EpochOutputs(
                self.plan,
                self._shipped,
                self._layout,
                identity.run_id,
                self._check_abort,
                self._count,
            )
            outputs.open(identity.resuming)
            try:
                self._passes(storage, outputs)
            finally:
                outputs.close()
        return self._summary

    def _passes(self, storage: Storage, outputs: EpochOutputs) -> None:
        """Run the query, and once more to drain it where Spark reads sources itself."""
        self._pass(storage, outputs, end_now=False)
        finished = not (self._summary.stopped or self._summary.aborted)
        if self._foreign() and self.settings.drain and finished:
            self._pass(storage, outputs, end_now=True)

    def _pass(self, storage: Storage, outputs: EpochOutputs, end_now: bool) -> None:
        parallelism = self.spark.sparkContext.defaultParallelism
        planners = planners_of(self.plan, storage, parallelism)
        feed = Feed(
            planners,
            self.settings.system_time,
            self.settings.drain,
            self.settings.only_available,
            foreign=bool(self._foreign()),
            end_now=end_now,
        )
        self._feed = feed
        self.stop.watch(feed)
        server = FeedServer(feed)
        query = None
        try:
            query = self._started(storage, outputs, server, parallelism)
            self._wait(query, feed, server)
        finally:
            if query is not None and query.isActive:
                self._stop_query(query, server)
            server.close()
            for planner in planners.values():
                planner.close()

    def _started(self, *arguments: Any) -> StreamingQuery:
        try:
            return self._start(*arguments)
        except FlowError:
            raise
        except Exception as error:
            problem = f"the streaming query did not start: {first_line(error)} ({SPARK_LOG})"
            raise EngineError(problem) from error

    def _start(
        self, storage: Storage, outputs: EpochOutputs, server: FeedServer, parallelism: int
    ) -> StreamingQuery:
        name = f"flow_{uuid.uuid4().hex}"
        self.spark.dataSource.register(
            ticker_source(name, server.address, self._shipped, self._layout, parallelism)
        )

        def write(frame: DataFrame, epoch: int) -> None:
            try:
                outputs.write(frame, epoch)
            except BaseException as error:
                self._failure = error
                raise

        with query_conf(self.spark, self._layout.partitions):
            named = not self._foreign()
            evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
            self.spark.conf.set(evolution, str(named).lower())
            try:
                frame = self._chain(name, named)
                writer = frame.writeStream.queryName(self.plan.flow_id).foreachBatch(write)
                writer = writer.option("checkpointLocation", f"{storage.root}/spark")
                if self.settings.only_available and self._foreign():
                    writer = writer.trigger(availableNow=True)
                else:
                    writer = writer.trigger(processingTime=self.settings.trigger or "0 seconds")
                return writer.outputMode("append").start()
            finally:
                self.spark.conf.unset(evolution)

    def _chain(self, ticker: str, named: bool) -> DataFrame:
        """All sources in one, then level after level."""
        reader = self.spark.readStream.format(ticker)
        frame = (reader.name("ticker") if named else reader).load()
        for number, step in enumerate(self._foreign()):
            frame = frame.union(foreign_packets(step, number, self._shipped, self._layout))
        for level in range(1, self._layout.levels + 1):
            processor = LevelProcessor(self._shipped, self._layout, level)
            frame = frame.groupBy("shard").transformWithState(
                processor, PACKET_DDL, "Append", "None"
            )
        return frame

    def _wait(self, query: StreamingQuery, feed: Feed, server: FeedServer) -> None:
        while query.isActive and not feed.end.done.wait(0.2):
            pass
        stopped_by_spark = not query.isActive
        self._stop_query(query, server)
        self._summary.stopped = feed.end.stop_asked.is_set()
        failure = self._failure or server.failure
        if isinstance(failure, Aborted):
            self._summary.aborted = True
            return
        if isinstance(failure, FlowError):
            raise failure
        error = query.exception() if stopped_by_spark or failure is not None else None
        if failure is not None or error is not None:
            raise EngineError(
                f"the streaming query failed: {first_line(failure or error)} "
                f"(Spark's log: {SPARK_LOG})"
            ) from failure or error

    def _stop_query(self, query: StreamingQuery, server: FeedServer) -> None:
        """Stop between epochs: the feed's answer is held back until the stop is under way."""
        stopping = threading.Thread(target=query.stop, name="flow-stop", daemon=True)
        stopping.start()
        stopping.join(0.05)
        server.close()
        stopping.join()

    def _check_abort(self) -> None:
        if self._feed is not None and self._feed.aborted:
            raise Aborted

    def _count(self, epoch: int, stats: Stats) -> None:
        feed = self._feed
        if feed is None:
            return
        feed.due_us = stats.due_us
        foreign = [step.step_id for step in self._foreign()]
        feed.foreign_busy = any(stats.counts[step_id, "out"] for step_id in foreign)
        self._summary.add(stats)
        self.on_epoch(epoch, stats, feed)

    def _foreign(self) -> list[Step]:
        steps = [self.plan.steps[step_id] for step_id in self.plan.inputs]
        return [step for step in steps if is_foreign(step)]

    def _say_layout(self, identity: Identity, root: str) -> None:
        """Say so when a checkpoint keeps another layout than is asked for."""
        for name in ("shards", "partitions"):
            asked, kept = getattr(self.settings, name), getattr(identity, name)
            if asked not in (None, kept):
                said = "%s=%s was asked for, but checkpoint %s was made with %s and keeps it"
                logger.warning(said, name, asked, root, kept)

    def _identity(self, storage: Storage) -> Identity:
        if storage.exists("flow.json"):
            identity = Identity.from_json(storage.read("flow.json"), self.plan, storage.root)
            self._say_layout(identity, storage.root)
            return identity
        cores = self.spark.sparkContext.defaultParallelism
        partitions = self.settings.partitions or min(cores, 32)
        shards = self.settings.shards or max(DEFAULT_SHARDS, partitions)
        identity = Identity(uuid.uuid4().hex, shards, partitions, resuming=False)
        storage.write("flow.json", identity.to_json(self.plan.flow_id))
        return identity


@contextlib.contextmanager
def _quiet_callbacks() -> Iterator[None]:
    """Py4J logs what a callback raises, with its trace; the run raises it itself, more clearly."""
    logger = logging.getLogger("py4j.clientserver")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


class Aborted(Exception):
    """A test's ABORT: the run dies here as if it were killed."""


@dataclass(frozen=True)
class Identity:
    """What a checkpoint is known by, and what it keeps for life."""

    run_id: str
    shards: int
    partitions: int
    resuming: bool

    def to_json(self, flow_id: str) -> dict[str, Any]:
        """The identity as JSON."""
        return {
            "version": VERSION,
            "flow_id": flow_id,
            "run_id": self.run_id,
            "shards": self.shards,
            "partitions": self.partitions,
        }

    @classmethod
    def from_json(cls, content: Any, plan: Plan, root: str) -> Identity:
        """The identity in JSON made by `to_json`.

        Raises:
            CheckpointError: when it is of another flow, or was written by a newer version.
        """
        try:
            version, flow_id = content["version"], content["flow_id"]
            identity = cls(
                content["run_id"], content["shards"], content["partitions"], resuming=True
            )
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{root}/flow.json is not a flow's checkpoint") from error
        if version > VERSION:
            raise CheckpointError(
                f"{root}/flow.json was written in format {version}, this version reads {VERSION}: "
                "run the version that wrote it"
            )
        if flow_id != plan.flow_id:
            raise CheckpointError(
                f"{root} is the checkpoint of flow {flow_id!r}, not of {plan.flow_id!r}: "
                "give each flow a directory of its own"
            )
        return identity


class LevelProcessor(StatefulProcessor):
    """A level of the plan as Spark runs it: once an epoch for each shard."""

    def __init__(self, shipped: ShippedPlan, layout: Layout, level: int) -> None:
        self._shipped = shipped
        self._layout = layout
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before the first shard.

        The state variables are the same for every flow: a checkpoint outlives changes of its steps.
        """
        self._store = _SparkStore(
            handle.getMapState("headers", "step string", "content binary"),
            handle.getMapState("segments", "step string, number int", "content binary"),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Called by Spark with a shard's packets."""
        shard = self._layout.shard_of(key[0])
        plan = self._shipped.plan()
        packets = [Packet(row.dest, shard, row.origin, row.seq, bytes(row.payload)) for row in rows]

        def states_of(step: Step) -> SegmentedStates:
            return SegmentedStates(self._store, step.step_id, builder_of(step))

        made = run_level(plan, self._level, self._layout.shards, shard, packets, states_of)
        for dest, to_shard, origin, seq, payload in made:
            yield _PACKET_ROW(dest, self._layout.group_of(to_shard), origin, seq, payload)

    def close(self) -> None:
        """Called by Spark after the last shard."""


_PACKET_ROW = Row("dest", "shard", "origin", "seq", "payload")


class _SparkStore:
    """A `StateStore` in Spark's state."""

    def __init__(self, headers: Any, segments: Any) -> None:
        self._headers = headers
        self._segments = segments

    def read_header(self, step_id: str) -> bytes | None:
        found = self._headers.getValue((step_id,))
        return None if found is None else bytes(found[0])

    def write_header(self, step_id: str, content: bytes) -> None:
        self._headers.updateValue((step_id,), (content,))

    def read_segment(self, step_id: str, number: int) -> bytes | None:
        found = self._segments.getValue((step_id, number))
        return None if found is None else bytes(found[0])

    def write_segment(self, step_id: str, number: int, content: bytes | None) -> None:
        if content is None:
            self._segments.removeKey((step_id, number))
        else:
            self._segments.updateValue((step_id, number), (content,))
