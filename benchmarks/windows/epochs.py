"""When the epochs of streaming queries began and ended, by Spark's own account."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override


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


class EpochTimes(StreamingQueryListener):
    """Gathers the epochs of all queries of a session, from now on."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._epochs: list[Epoch] = []
        spark.streams.addListener(self)

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._epochs.append(Epoch.of(json.loads(event.progress.json)))

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def taken(self) -> list[Epoch]:
        """The epochs so far that did something, in order; the next call gives those after them."""
        context: Any = self._spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
        # Between two epochs Spark also reports that it is waiting, without having run anything.
        epochs = [one for one in self._epochs if "addBatch" in one.progress["durationMs"]]
        self._epochs.clear()
        return sorted(epochs, key=lambda one: one.number)


def span(epochs: list[Epoch], last: int) -> float:
    """Seconds from the start of the first epoch to the end of the one with the number `last`."""
    return max(one.end for one in epochs if one.number <= last) - epochs[0].start
