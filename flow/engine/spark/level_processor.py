"""A level of the plan as Spark runs it: once an epoch for each shard.

Before a query's first epoch Spark makes each processor in a new Python process, to learn what state
variables it has, and waits for that. So the class travels with its code, and what it works with as
bytes: that process then imports nothing of this project, nor what the flow is made of.
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
    """Runs a level on Spark's rows and in Spark's state.

    Args:
        level: a pickle of a `flow.engine.spark.level.SparkLevel`.
    """

    def __init__(self, level: bytes) -> None:
        self._content = level
        self._level: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before the first shard.

        The state variables are the same for every flow: a checkpoint outlives changes of its steps.
        """
        self._headers = handle.getMapState("headers", "step string", "content binary")
        self._segments = handle.getMapState("segments", "step string, number int", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Called by Spark with a shard's packets."""
        if self._level is None:
            self._level = pickle.loads(self._content)
            self._level.open(self._headers, self._segments)
        yield from self._level.run(key[0], rows)

    def close(self) -> None:
        """Called by Spark after the last shard."""
        if self._level is not None:
            self._level.close()
