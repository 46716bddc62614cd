"""The process that Spark forks Python workers from, with what they need imported beforehand.

A worker then starts in no time, and shares the memory of what is imported with all others. Spark
has its workers collect garbage after each task, which would take longer than a small task does if
it looked at all that is imported: it is frozen instead.
"""

import contextlib
import gc
import importlib
import os

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.ipc
import pyarrow.pandas_compat
import pyarrow.parquet  # noqa: F401
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.sql.streaming.stateful_processor_api_client
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import flow.engine.spark.level
import flow.engine.spark.task_writing
import flow.engine.spark.ticker  # noqa: F401

PRELOAD = "FLOW_PRELOAD"
"""The environment variable that names more modules, with commas between them."""


def prepare() -> None:
    """Import what else the flow's workers need, and freeze all that is imported."""
    for name in os.environ.get(PRELOAD, "").split(","):
        # What is missing here is missed, and reported, where it is needed.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    manager()
