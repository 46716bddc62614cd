"""Check of the interpreter that Spark starts on the driver for a streaming query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flow.errors import EnvironmentProblem


def check_python_of(spark: SparkSession) -> None:
    """Check that the interpreter of a session's workers exists on the driver.

    Spark starts the same path on both: on the driver to plan epochs, on the workers to run steps.
    A path in a packed environment, such as ``./env/bin/python``, may exist on the workers alone.

    Raises:
        EnvironmentProblem: when there is no such file.
    """
    jvm: Any = spark._jvm
    check_driver_python(spark.sparkContext.pythonExec, jvm.java.lang.System.getProperty("user.dir"))


def check_driver_python(python: str, folder: str) -> None:
    """Check that an interpreter exists on this machine.

    Args:
        python: the interpreter: a path, or a name that is looked up in ``PATH``, which this
            function accepts.
        folder: the directory to which the path is relative: that in which the JVM was started.

    Raises:
        EnvironmentProblem: when the path has no file.
    """
    if os.path.dirname(python) and not (Path(folder) / python).exists():
        raise EnvironmentProblem(
            f"PYSPARK_PYTHON names {python!r}, and {Path(folder) / python} does not exist: Spark "
            "starts that interpreter on the workers, and on this machine to plan epochs; unpack "
            "the environment here too (mkdir env && tar -xzf env.tar.gz -C env), or name a path "
            "that exists on both"
        )
