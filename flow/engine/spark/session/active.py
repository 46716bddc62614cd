"""The session that a program has made before a run, and the settings in it."""

from __future__ import annotations

import os
import sys
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flow.engine.spark.session.access import cores_of
from flow.engine.spark.startup.switch import SPEEDUPS_OF_WORKERS, VARIABLE

_CONNECT = "pyspark.sql.connect.session"


def active_session() -> Any | None:
    """Return the session of the program, classic or of Spark Connect; ``None`` if there is none.

    A session of Spark Connect precedes a classic one, which ``remote("local[2]")`` makes in this
    process for its server. The variable ``SPARK_REMOTE`` stands for a session that PySpark makes
    when it is first asked for one.
    """
    connect: Any = sys.modules.get(_CONNECT)
    if connect is not None:
        try:
            return connect.SparkSession.active()
        except PySparkException:
            pass  # The program has no session of Spark Connect.
    if SparkContext._active_spark_context is not None:
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return SparkSession.builder.getOrCreate() if os.environ.get("SPARK_REMOTE") else None


def setting_in(spark: Any, name: str) -> str | None:
    """Return the value of one of Spark's settings in a session; ``None`` if it has none."""
    if name == "spark.default.parallelism":
        return str(cores_of(spark))
    try:
        found: str = spark.conf.get(name)
    except (PySparkException, Py4JJavaError):  # The type depends on the version and the session.
        return os.environ.get(VARIABLE, "on") if name == SPEEDUPS_OF_WORKERS else None
    return found
