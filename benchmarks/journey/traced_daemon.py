"""A daemon for Spark's Python workers that records the product's functions in each of them.

Spark starts it in place of `flow.engine.spark.daemon` if ``spark.python.daemon.module`` names it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import daemon

from benchmarks.journey.tracing import FOLDER_VARIABLE, Tracer
from flow.engine.spark.daemon import prepare

_worker = daemon.worker


def traced_worker(*arguments: Any) -> Any:
    """Run a forked worker's tasks, and record their calls."""
    with Tracer(Path(os.environ[FOLDER_VARIABLE])):
        return _worker(*arguments)


if __name__ == "__main__":
    prepare()
    daemon.worker = traced_worker  # type: ignore[assignment]  # The arguments depend on Spark.
    daemon.manager()
