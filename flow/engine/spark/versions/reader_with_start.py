"""The ticker's reader since Spark 4.2, which passes the start of the next epoch.

Spark's process for the source imports no module of this project, see
`flow.engine.spark.versions.ticker_source`.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from flow.engine.spark.versions.ticker_source import TickerReader

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Reader(TickerReader, SupportsTriggerAvailableNow):
    """A reader with admission control: Spark passes the offset that an epoch starts from."""

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002
        return self._offset_after(start)
