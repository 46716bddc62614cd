"""The process from which Spark forks Python workers, with the modules of the flow imported.

A forked worker starts at once, and shares the memory of the modules with the other workers. Spark's
workers collect garbage after each task. A collection that visits all objects of the modules takes
longer than a small task, so the daemon freezes these objects.
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

import flow.engine.spark.level_processor
import flow.engine.spark.shipping
import flow.engine.spark.ticker  # noqa: F401
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.versions import forget_zip_importers

PRELOAD = "FLOW_PRELOAD"
"""The environment variable with the names of modules to import, separated by commas."""


def prepare() -> None:
    """Import the modules in `PRELOAD`, and prepare what workers do with their modules in each task.

    All objects so far are excluded from garbage collection, and zip files from invalidation.
    """
    for name in (*spark_capabilities().late_imports, *os.environ.get(PRELOAD, "").split(",")):
        # A task that needs a missing module reports the error.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    forget_zip_importers()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    manager()
