"""When the epochs of streaming queries began and ended, by Spark's own account."""

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
        start: when it began, in seconds since the Unix epoch.
        seconds: how long it took, planning, logs and all.
        progress: Spark's whole report, as JSON.
    """

    number: int
    start: float
    seconds: float
    progress: dict[str, Any]

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.seconds

    @property
    def rows(self) -> int:
        """How many rows Spark itself has read."""
        return sum(source["numInputRows"] for source in self.progress["sources"])

    @classmethod
    def of(cls, progress: dict[str, Any]) -> Epoch:
        """An epoch from Spark's report."""
        start = datetime.fromisoformat(progress["timestamp"]).timestamp()
        took = progress["durationMs"]
        return cls(progress["batchId"], start, took.get("triggerExecution", 0) / 1000, progress)


class EpochTimes:
    """Gathers the epochs of all queries of a session, from now on.

    It takes Spark's reports as text: `pyspark.sql.streaming.StreamingQueryListener` would ask the
    JVM for each of their figures, 0.2 s of its time an epoch.
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
        """The epochs so far that did something, in order; the next call gives those after them."""
        context: Any = self._spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
        # Between two epochs Spark also reports that it is waiting, without having run anything.
        reports = [json.loads(text) for text in self._reports.texts]
        self._reports.texts.clear()
        epochs = [Epoch.of(one) for one in reports if "addBatch" in one["durationMs"]]
        return sorted(epochs, key=lambda one: one.number)


class _Reports:
    """What Spark calls from the JVM, under the names it has there."""

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
        """Which Java interface this is, for py4j."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def span(epochs: list[Epoch], last: int) -> float:
    """Seconds from the start of the first epoch to the end of the one with the number `last`."""
    return max(one.end for one in epochs if one.number <= last) - epochs[0].start
