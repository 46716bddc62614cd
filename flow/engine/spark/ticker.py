"""The ticker: the feed as a Spark source.

Spark plans offsets and an epoch's tasks in a Python process of its own. The source there sends
requests to the feed in the driver's process over a local connection. Spark's tasks decode the
answers, and read and pack the input.

Before a query's first epoch, Spark starts that process and waits. To save time, the source is
pickled by value and imports no module of this project there: no method of `Ticker`, `TickerReader`
and its subclasses, or the class of `ticker_source` may name anything of this project, or pyarrow.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from flow.connectors.source import Json
from flow.engine.epoch.context import Control
from flow.engine.feed.feed import Feed
from flow.engine.feed.offsets import EpochOffset
from flow.engine.packets.packets import CONTROL, PACKET_DDL, Packet
from flow.engine.spark.epochs import EpochTimer
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.versions import forget_zip_importers
from flow.engine.spark.shipped_code import Shipped
from flow.engine.spark.shipping import Layout, ShippedPlan
from flow.engine.state.store import read_seeds, seed_files
from flow.engine.steps.reading import Reading, read_split, share

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])

HOST = "127.0.0.1"
_JOIN_SECONDS = 5.0
"""The longest wait for the end of a thread, which may run a source's own code."""


@dataclass(frozen=True)
class Ticker:
    """Settings of the source.

    Attributes:
        name: name of the source.
        schema: the schema of its rows.
        port: port of the feed's server; 0 if the feed stands in the source's own process.
        key: authentication key of the connection.
        first_offset: the offset before the first epoch.
        logged_offset: the offset of the last epoch that the checkpoint's log has.
        reader: a reader, whose ``read`` takes the bytes of a task.
        host: a function that returns the feed of the source's process, whose ``answer`` takes a
            request; ``None`` if the feed is behind `port`.
    """

    name: str
    schema: str
    port: int
    key: bytes
    first_offset: dict[str, Any]
    logged_offset: dict[str, Any]
    reader: Shipped
    host: Shipped | None = None


class TickerReader(DataSourceStreamReader):
    """Spark's reader of the feed: offsets are planned in the driver, packets read in workers.

    A subclass has ``latestOffset``, which has two contracts.
    """

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._connection: Connection[Any, Any] | None = None
        self._host: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, which only read."""
        of_tasks = replace(self._ticker, host=None)
        return {**self.__dict__, "_connection": None, "_host": None, "_ticker": of_tasks}

    def initialOffset(self) -> dict[str, Any]:
        return self._ticker.first_offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = self._answer({"after": start, "tasks of": end})["tasks"]
        return [InputPartition(base64.b64decode(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._ticker.reader.get().read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def _offset_after(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset at the end of the epoch after an offset, once the epoch is due."""
        return dict(self._answer({"after": start})["offset"])

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the feed, and return the answer.

        Raises:
            RuntimeError: when the feed has failed.
        """
        host = self._ticker.host
        answer = self._answer_of(question) if host is None else self._answer_here(host, question)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def _answer_here(self, host: Shipped, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the feed in this process, which starts with the first request."""
        if self._host is None:
            self._host = host.get()()
        return dict(self._host.answer(question))

    def _answer_of(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the feed's server."""
        if self._connection is None:
            self._connection = Client((HOST, self._ticker.port), authkey=self._ticker.key)
        self._connection.send_bytes(json.dumps(question).encode())
        return dict(json.loads(self._connection.recv_bytes()))


class RememberingReader(TickerReader):
    """A reader for a Spark without admission, which does not pass the start of the next epoch.

    Spark logs each offset that the reader returns as the end of an epoch, before it asks for the
    next. So the start of the next epoch is the last returned offset; in the first call of a query,
    it is the last offset in the checkpoint's log. If the log's last epoch has not been committed,
    Spark first runs this epoch with the offsets of the log.
    """

    def __init__(self, ticker: Ticker) -> None:
        super().__init__(ticker)
        self._last = ticker.logged_offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the older contract
        self._last = self._offset_after(self._last)
        return self._last


def admitting_reader() -> type[TickerReader]:
    """Return the class of a reader with admission, to which Spark passes the start of an epoch."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    class AdmittingReader(TickerReader, SupportsTriggerAvailableNow):
        def getDefaultReadLimit(self) -> ReadAllAvailable:
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            pass

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002
            return self._offset_after(start)

    return AdmittingReader


class HostedWrite:
    """Function for ``foreachBatch`` whose outputs stand in the process that calls it.

    Args:
        outputs: a function that returns the outputs, whose ``write`` takes a data frame and the
            number of a micro-batch.
    """

    def __init__(self, outputs: Shipped) -> None:
        self._outputs = outputs
        self._host: Any = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        if self._host is None:
            self._host = self._outputs.get()()
        self._host.write(frame, number)


def ticker_source(ticker: Ticker, reader: Callable[[Ticker], TickerReader]) -> type[DataSource]:
    """Return the data source class of a run; Spark takes a class.

    Args:
        ticker: settings of the source.
        reader: class of the reader.
    """

    class TickerSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return ticker.name

        def schema(self) -> str:
            return ticker.schema

        def streamReader(self, schema: Any) -> TickerReader:  # noqa: ARG002
            return reader(ticker)

    return TickerSource


def source_of_feed(
    name: str,
    reading: TickReading,
    logged_offset: Json,
    *,
    port: int = 0,
    key: bytes = b"",
    host: Shipped | None = None,
    code: bytes = b"",
) -> type[DataSource]:
    """Return a Spark source of the feed, which is behind a port or in the source's process.

    Args:
        name: name of the source.
        reading: reader of the source's tasks.
        logged_offset: the last offset in the log of Spark's checkpoint.
        port: port of the feed's server.
        key: authentication key of the connection.
        host: see `Ticker`.
        code: modules that the server lacks; see `Shipped`.
    """
    first, reader = EpochOffset().to_json(), Shipped(pickle.dumps(reading), code)
    ticker = Ticker(name, PACKET_DDL, port, key, first, logged_offset, reader, host)
    has_admission = spark_capabilities().has_admission
    return ticker_source(ticker, admitting_reader() if has_admission else RememberingReader)


@dataclass(frozen=True)
class FeedAnswers:
    """Answers of the feed to requests of the source, which are JSON.

    Attributes:
        feed: planner of epochs.
        tasks: maximum number of tasks of an epoch.
        timer: the durations of an epoch's phases.
    """

    feed: Feed
    tasks: int
    timer: EpochTimer

    def __call__(self, question: Json) -> Json:
        """Return the next offset, or the tasks of an epoch.

        Raises:
            FlowError: when a source fails, or the checkpoint was lost.
        """
        after = EpochOffset.from_json(question["after"])
        if "tasks of" in question:
            epoch = self.feed.fitted(EpochOffset.from_json(question["tasks of"]))
            tasks = tasks_of(epoch, self.feed.readings(after, epoch), self.tasks)
            return {"tasks": [task.encode() for task in tasks]}
        self.timer.start_planning()
        planned = self.feed.next(after)
        if planned != after:
            self.timer.end_planning()
        return {"offset": planned.to_json()}


class FeedServer:
    """Server of the feed for tickers, with a thread for each connection.

    Args:
        feed: planner of epochs.
        tasks: maximum number of tasks of an epoch.
        timer: the durations of an epoch's phases.
    """

    def __init__(self, feed: Feed, tasks: int, timer: EpochTimer | None = None) -> None:
        self._feed = feed
        self._answers = FeedAnswers(feed, tasks, timer or EpochTimer())
        self._key = secrets.token_bytes(32)
        self._listener = socket.create_server((HOST, 0))
        self._port = int(self._listener.getsockname()[1])
        self._connections: dict[threading.Thread, socket.socket] = {}
        self.failure: BaseException | None = None
        self._accepting = threading.Thread(target=self._accept, name="flow-feed", daemon=True)
        self._accepting.start()

    def source(self, name: str, reading: TickReading, logged_offset: Json) -> type[DataSource]:
        """Return a Spark source that is connected to this server.

        Args:
            name: name of the source.
            reading: reader of the source's tasks.
            logged_offset: the last offset in the log of Spark's checkpoint.
        """
        return source_of_feed(name, reading, logged_offset, port=self._port, key=self._key)

    def release(self) -> None:
        """Accept no more connections, and end all waits for an answer."""
        self._feed.end.closed.set()
        _shut(self._listener)  # `close` alone does not wake the thread in `accept`.
        self._listener.close()

    def close(self) -> None:
        """Stop answering; called after the query has stopped."""
        self.release()
        self._accepting.join(_JOIN_SECONDS)
        connections = dict(self._connections)
        for client in connections.values():
            _shut(client)
        for thread in connections:
            thread.join(_JOIN_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # The listener is closed.
                return
            thread = threading.Thread(
                target=self._answer, args=(client,), name="flow-feed-answer", daemon=True
            )
            self._connections[thread] = client
            thread.start()

    def _answer(self, client: socket.socket) -> None:
        """Serve the requests of a connection until it ends."""
        try:
            with client, Connection(client.dup().detach()) as connection:
                self._serve(connection)
        except (OSError, EOFError):  # The client has ended, or `close` has shut the connection.
            pass
        finally:
            del self._connections[threading.current_thread()]

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """Authenticate a connection, and answer its requests."""
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except (AuthenticationError, ValueError, AssertionError):  # The client has no key.
            return
        while True:
            answer = self._reply(json.loads(connection.recv_bytes()))
            if self._feed.settings.foreign and self._feed.end.closed.is_set():
                # An answer would let Spark begin an epoch of its own sources, without a time.
                return
            connection.send_bytes(json.dumps(answer).encode())

    def _reply(self, question: Json) -> Json:
        try:
            return self._answers(question)
        except BaseException as error:  # The run waits in another thread, and raises the error.
            self.failure = error
            self._feed.end.done.set()
            return {"failed": f"{type(error).__name__}: {error}"}


def _shut(connection: socket.socket) -> None:
    """Shut a socket down, which wakes the threads that wait for it."""
    with contextlib.suppress(OSError):  # The socket, or its other end, is closed.
        connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class TickTask:
    """A task of stage 0, which reads seeds and splits.

    Attributes:
        control: the epoch's control.
        sends_control: True if the task sends the control to every shard.
        readings: the splits to read.
        seed: the directory of the seed; empty without one.
        seed_files: the files of the seed to read.
    """

    control: Control
    sends_control: bool
    readings: tuple[Reading, ...]
    seed: str = ""
    seed_files: tuple[str, ...] = ()

    def encode(self) -> str:
        """Return the task as text."""
        return base64.b64encode(pickle.dumps(self)).decode()


def tasks_of(epoch: EpochOffset, readings: Sequence[Reading], most: int) -> list[TickTask]:
    """Return the tasks of an epoch.

    Args:
        epoch: offset at the end of the epoch.
        readings: the readings of the epoch.
        most: maximum number of tasks.
    """
    if epoch.control is None:
        return []
    seed = epoch.seed or ""
    files = seed_files(seed) if seed else []
    count = max(1, min(most, len(readings) + len(files)))
    return [
        TickTask(
            epoch.control,
            number == 0,
            tuple(readings[share(number, count, len(readings))]),
            seed,
            tuple(files[share(number, count, len(files))]),
        )
        for number in range(count)
    ]


@dataclass(frozen=True)
class TickReading:
    """Reader of stage 0, which Spark pickles for its tasks.

    Attributes:
        shipped: the plan.
        layout: shards and partitions of the flow.
    """

    shipped: ShippedPlan
    layout: Layout

    def read(self, task: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a pickled `TickTask`."""
        forget_zip_importers()
        return self.layout.to_batches(self._packets(pickle.loads(task)))

    def _packets(self, task: TickTask) -> Iterator[Packet]:
        shards, content = self.layout.shards, task.control.encode()
        if not self.layout.levels:  # The tasks that read also write.
            yield Packet(CONTROL, 0, -1, 0, content)
        elif task.sends_control:
            for shard in range(shards):
                yield Packet(CONTROL, shard, -1, 0, content)
        if task.seed_files:
            yield from read_seeds(task.seed, task.seed_files)
        plan = self.shipped.plan()
        for reading in task.readings:
            yield from read_split(plan, shards, reading, task.control)
