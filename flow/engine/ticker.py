"""The ticker: the feed as a Spark source.

Spark asks its source's offsets of a Python process of its own, which asks the feed, where the flow
was started, over a local connection; what an epoch reads is read, and packed, by Spark's tasks.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from flow.engine.context import Control
from flow.engine.feed import EpochOffset, Feed
from flow.engine.packets import CONTROL, PACKET_DDL, Packet
from flow.engine.reading import Reading, read_split, share
from flow.engine.rows import Layout
from flow.engine.seeding import read_seeds, seed_files
from flow.engine.shipping import ShippedPlan

_HOST = "127.0.0.1"


class FeedServer:
    """Answers the ticker's questions from the feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._key = secrets.token_bytes(32)
        self._listener = Listener((_HOST, 0), authkey=self._key)
        self.failure: BaseException | None = None
        threading.Thread(target=self._accept, name="flow-feed", daemon=True).start()

    @property
    def address(self) -> FeedAddress:
        """Where the feed answers."""
        return FeedAddress(int(self._listener.address[1]), self._key)

    def close(self) -> None:
        """Stop answering, and let go of whoever waits for an answer."""
        self._feed.end.closed.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._feed.end.closed.is_set():
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, ValueError):
                return
            except Exception:  # a stranger without the key is turned away
                continue
            threading.Thread(
                target=self._answer, args=(connection,), name="flow-feed-answer", daemon=True
            ).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection:
            while True:
                try:
                    start = EpochOffset.from_json(json.loads(connection.recv_bytes()))
                    answer = {"offset": self._feed.next(start).to_json()}
                except (EOFError, OSError):
                    return
                except BaseException as error:  # carried to where the run waits
                    self.failure = error
                    self._feed.end.done.set()
                    answer = {"failed": f"{type(error).__name__}: {error}"}
                try:
                    connection.send_bytes(json.dumps(answer).encode())
                except (OSError, BrokenPipeError):
                    return


@dataclass(frozen=True)
class FeedAddress:
    """Where a feed answers, and the key that opens it."""

    port: int
    key: bytes


@dataclass(frozen=True)
class TickTask:
    """What one task of stage 0 does: tell every shard the time, and read splits."""

    control: Control
    tells_time: bool
    readings: tuple[Reading, ...]
    seed: str = ""
    seed_files: tuple[str, ...] = ()


class TickerReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of the feed: offsets in the driver's process, packets in the workers."""

    def __init__(
        self, address: FeedAddress, shipped: ShippedPlan, layout: Layout, tasks: int
    ) -> None:
        self._address = address
        self._shipped = shipped
        self._layout = layout
        self._tasks = tasks
        self._connection: Connection[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def initialOffset(self) -> dict[str, Any]:
        return dict(EpochOffset().to_json())

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002
        if self._connection is None:
            address = (_HOST, self._address.port)
            self._connection = Client(address, authkey=self._address.key)
        self._connection.send_bytes(json.dumps(start).encode())
        answer = json.loads(self._connection.recv_bytes())
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return dict(answer["offset"])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        epoch = EpochOffset.from_json(end)
        if epoch.control is None:
            return []
        readings = epoch.readings()
        seed = epoch.seed or ""
        files = seed_files(seed) if seed else []
        count = max(1, min(self._tasks, len(readings) + len(files)))
        return [
            InputPartition(
                TickTask(
                    epoch.control,
                    number == 0,
                    tuple(readings[share(number, count, len(readings))]),
                    seed,
                    tuple(files[share(number, count, len(files))]),
                )
            )
            for number in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._layout.to_batches(self._packets(partition.value))

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def _packets(self, task: TickTask) -> Iterator[Packet]:
        shards = self._layout.shards
        if task.tells_time and self._layout.levels:
            content = task.control.encode()
            for shard in range(shards):
                yield Packet(CONTROL, shard, -1, 0, content)
        if task.seed_files:
            yield from read_seeds(task.seed, task.seed_files)
        plan = self._shipped.plan()
        for reading in task.readings:
            yield from read_split(plan, shards, reading, task.control.moment)


def ticker_source(
    name: str, address: FeedAddress, shipped: ShippedPlan, layout: Layout, tasks: int
) -> type[DataSource]:
    """A Spark data source, made for one run: a class, because that is what Spark takes."""

    class Ticker(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return PACKET_DDL

        def streamReader(self, schema: Any) -> TickerReader:  # noqa: ARG002
            return TickerReader(address, shipped, layout, tasks)

    return Ticker
