"""Settings of ``spark-submit``, which has started this process."""

from __future__ import annotations

import os

from pyspark import SparkConf, SparkContext

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""The environment variable that ``spark-submit`` sets for the Python of a program."""


def submitted_conf() -> dict[str, str]:
    """Return the settings of ``spark-submit``: its options, and its file of defaults.

    The JVM has them before a session exists. Without ``spark-submit`` there are none.
    """
    if _GATEWAY not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
