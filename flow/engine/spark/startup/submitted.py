"""Settings of a JVM that runs before a session exists, as with ``spark-submit``."""

from __future__ import annotations

import os

from pyspark import SparkConf, SparkContext

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""The environment variable that ``spark-submit`` sets for the Python of a program."""


def submitted_conf() -> dict[str, str]:
    """Return the settings of ``spark-submit``: its options, and its file of defaults.

    The JVM has them before a session exists. Without ``spark-submit`` there are none.
    """
    return _jvm_conf() if _GATEWAY in os.environ else {}


def heap_of_jvm() -> str:
    """Return the size of the heap that the JVM of this process was started with, such as ``1g``."""
    return _jvm_conf().get("spark.driver.memory") or os.environ.get("SPARK_DRIVER_MEMORY", "1g")


def _jvm_conf() -> dict[str, str]:
    """Return the settings in the system properties of the JVM, which must run."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
