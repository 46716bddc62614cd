"""The ticker as a Spark source, which sends requests to the feed in the driver's process.

Before a query's first epoch, Spark starts a new Python process for its source and waits. To save
time, the source is pickled by value and imports no module of this project there. Spark's tasks
decode the answers.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ticker:
    """Settings of the source.

    Attributes:
        name: name of the source.
        schema: the schema of its rows.
        port: port of the feed's server.
        key: authentication key of the connection.
        first_offset: the offset before the first epoch.
        logged_offset: the offset of the last epoch that the checkpoint's log has.
        reader: pickle of a reader, whose ``read`` takes the bytes of a task.
    """

    name: str
    schema: str
    port: int
    key: bytes
    first_offset: dict[str, Any]
    logged_offset: dict[str, Any]
    reader: bytes


class TickerReader(DataSourceStreamReader):
    """Spark's reader of the feed: offsets are planned in the driver, packets read in workers.

    A subclass has ``latestOffset``, whose contract depends on the version of Spark.
    """

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._connection: Connection[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._ticker.first_offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = self._answer({"after": start, "tasks of": end})["tasks"]
        return [InputPartition(base64.b64decode(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pickle.loads(self._ticker.reader).read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def _offset_after(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset at the end of the epoch after an offset, once the epoch is due."""
        return dict(self._answer({"after": start})["offset"])

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the feed's server, and return the answer.

        Raises:
            RuntimeError: when the feed has failed.
        """
        if self._connection is None:
            self._connection = Client((HOST, self._ticker.port), authkey=self._ticker.key)
        self._connection.send_bytes(json.dumps(question).encode())
        answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer


class RememberingReader(TickerReader):
    """A reader for Spark before 4.2, which does not pass the start of the next epoch.

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
    """Return the class of a reader since Spark 4.2, to which Spark passes the start of an epoch."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    class AdmittingReader(TickerReader, SupportsTriggerAvailableNow):
        def getDefaultReadLimit(self) -> ReadAllAvailable:
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            pass

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002
            return self._offset_after(start)

    return AdmittingReader


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
