"""Start and end of the epochs of streaming queries, from Spark's own reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Epoch:
    """One epoch that a query has run.

    Attributes:
        number: its number.
        start: its start, in seconds since the Unix epoch.
        seconds: its time in seconds, with planning and logs.
        progress: Spark's whole report, from JSON.
    """

    number: int
    start: float
    seconds: float
    progress: dict[str, Any]

    @property
    def end(self) -> float:
        """The end of the epoch, in seconds since the Unix epoch."""
        return self.start + self.seconds

    @property
    def rows(self) -> int:
        """The number of rows that Spark itself has read."""
        return sum(source["numInputRows"] for source in self.progress["sources"])

    @classmethod
    def of(cls, progress: dict[str, Any]) -> Epoch:
        """Return the epoch of a report of Spark."""
        start = datetime.fromisoformat(progress["timestamp"]).timestamp()
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        return cls(progress["batchId"], start, seconds, progress)


class EpochTimes:
    """Listener that collects the epochs of all queries of a session, from now on.

    The listener reads Spark's reports as text, since `pyspark.sql.streaming.StreamingQueryListener`
    asks the JVM for each number of a report, which takes 0.2 s an epoch.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._reports = _Reports()
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        listeners = gateway.jvm.org.apache.spark.sql.streaming
        listener = listeners.PythonStreamingQueryListenerWrapper(self._reports)
        streams: Any = spark.streams
        streams._jsqm.addListener(listener)

    def taken(self) -> list[Epoch]:
        """Return the epochs since the last call that have run, in order of their numbers."""
        context: Any = self._spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
        # Between two epochs Spark also sends reports of waiting, which have no "addBatch".
        reports = [json.loads(text) for text in self._reports.texts]
        self._reports.texts.clear()
        epochs = [Epoch.of(one) for one in reports if "addBatch" in one["durationMs"]]
        return sorted(epochs, key=lambda one: one.number)


class _Reports:
    """Receiver of Spark's reports from the JVM, with the method names of Spark's listener."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self.texts.append(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        """The Java interface of the receiver, for py4j."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def span(epochs: list[Epoch], last: int) -> float:
    """Return the seconds from the start of the first epoch to the end of the epoch `last`."""
    return max(one.end for one in epochs if one.number <= last) - epochs[0].start
