"""The ticker's reader before Spark 4.2, which does not pass the start of the next epoch.

Spark logs each offset that the reader returns as the end of an epoch, before it asks for the next.
So the start of the next epoch is the last returned offset; in the first call of a query, it is the
last offset in the checkpoint's log. If the log's last epoch has not been committed, Spark first
runs this epoch with the offsets of the log.

Spark's process for the source imports no module of this project, see
`flow.engine.spark.versions.ticker_source`.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle

from flow.engine.spark.versions.ticker_source import Ticker, TickerReader

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Reader(TickerReader):
    """A reader that remembers the last offset that it returned."""

    def __init__(self, ticker: Ticker) -> None:
        super().__init__(ticker)
        self._last = ticker.logged_offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the older contract
        self._last = self._offset_after(self._last)
        return self._last
