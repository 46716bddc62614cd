"""Spark's stateful processor of a level: called once in an epoch for each shard.

Before a query's first epoch, Spark creates each processor in a new Python process to get its state
variables, and waits. To save time, the class is pickled by value and its level as bytes, so that
the new process imports neither this project nor the modules of the flow.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class LevelProcessor(StatefulProcessor):
    """Processor of a level on Spark's rows and state.

    Args:
        level: a pickle of a `flow.engine.spark.level.SparkLevel`.
    """

    def __init__(self, level: bytes) -> None:
        self._content = level
        self._level: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables; called by Spark before the first shard.

        Every flow has the same variables, because a checkpoint outlives changes of its steps.
        """
        self._headers = handle.getMapState("headers", "step string", "content binary")
        self._segments = handle.getMapState("segments", "step string, number int", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Run the level on a shard's packets; called by Spark."""
        if self._level is None:
            self._level = pickle.loads(self._content)
            self._level.open(self._headers, self._segments)
        yield from self._level.run(key[0], rows)

    def close(self) -> None:
        """Close the level; called by Spark after the last shard."""
        if self._level is not None:
            self._level.close()
