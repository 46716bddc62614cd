"""The supported versions of Spark, with their properties, and the check of the installed one."""

from __future__ import annotations

import importlib
import logging
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from flow.errors import EnvironmentProblem

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class SparkVersion:
    """A minor version of Spark, with the properties that flows depend on.

    Attributes:
        major: major version.
        minor: minor version.
        has_streaming: True if flows run as streaming queries. Before 4.1, PySpark passes rows to
            stateful processors as pandas data frames only.
        ticker_reader: the module with the reader of the ticker, see `flow.engine.spark.ticker`.
        has_available_now: True if a source in Python can end with Spark's trigger for available
            data. Before 4.2, such a source would make Spark read the data of all other sources in
            one epoch.
        has_known_protocol: True if `flow.engine.spark.state_calls.PipelinedCalls` was tested with
            the internal protocol of this version's state.
        late_imports: modules that PySpark imports in a worker's first task.
    """

    major: int
    minor: int
    has_streaming: bool = True
    ticker_reader: str = "flow.engine.spark.versions.reader_with_start"
    has_available_now: bool = True
    has_known_protocol: bool = True
    late_imports: tuple[str, ...] = ()

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor version."""
        return self.major, self.minor

    @property
    def name(self) -> str:
        """Major and minor version, separated by a dot."""
        return f"{self.major}.{self.minor}"


_WITHOUT_START = "flow.engine.spark.versions.reader_without_start"
# Up to 4.2, each write of state asks this module whether NumPy is installed.
_TESTING = ("pyspark.testing.utils",)

SUPPORTED = (
    SparkVersion(4, 0, False, _WITHOUT_START, False, False, _TESTING),
    SparkVersion(4, 1, True, _WITHOUT_START, False, True, _TESTING),
    SparkVersion(4, 2, late_imports=_TESTING),
    SparkVersion(4, 3),
)
"""The supported versions, in order."""

_OLDEST_STREAMING = next(version for version in SUPPORTED if version.has_streaming)
_NEWEST = SUPPORTED[-1]
_WAYS_OUT = f"install pyspark>={_OLDEST_STREAMING.name},<{_NEWEST.major}.{_NEWEST.minor + 1}"


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor version in the text of a version of Spark.

    >>> parse_version("4.1.4"), parse_version("4.2.0.dev1")
    ((4, 1), (4, 2))

    Raises:
        ValueError: if the text has no major and minor version.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"no version of Spark: {text!r}")
    return int(match[1]), int(match[2])


@cache
def installed_version() -> SparkVersion:
    """Return the installed version of PySpark; for a newer one, the properties of the newest.

    Raises:
        EnvironmentProblem: if PySpark is missing, or older than the supported versions.
    """
    return version_of(_installed())


def version_of(text: str) -> SparkVersion:
    """Return the supported version for the text of a version; for a newer one, the newest.

    Raises:
        EnvironmentProblem: if the version is older than the supported ones.
    """
    number = parse_version(text)
    for version in SUPPORTED:
        if version.number == number:
            return version
    if number < SUPPORTED[0].number:
        raise EnvironmentProblem(
            f"flows run on Spark {_OLDEST_STREAMING.name} to {_NEWEST.name}, and as a batch on "
            f"{SUPPORTED[0].name} too; PySpark {text} is installed: {_WAYS_OUT}"
        )
    logger.warning(
        "PySpark %s is newer than the newest version that flows were tested with, %s; if a run "
        "fails, %s",
        *(text, _NEWEST.name, _WAYS_OUT),
    )
    return SparkVersion(*number, has_known_protocol=False)


def check_streaming() -> None:
    """Check that the installed version of PySpark can run streaming queries of flows.

    Raises:
        EnvironmentProblem: if PySpark is missing, or too old.
    """
    if not installed_version().has_streaming:
        raise EnvironmentProblem(
            f"streaming flows and checkpoints need Spark {_OLDEST_STREAMING.name} to "
            f"{_NEWEST.name}; PySpark {_installed()}, which is installed, runs a flow as a batch "
            f"only, without recovery= and trigger=: {_WAYS_OUT}"
        )


def check_same_version(spark: Any) -> None:
    """Check that a session runs the version of Spark that is installed as PySpark.

    Args:
        spark: the session.

    Raises:
        EnvironmentProblem: if major or minor version differs.
    """
    if parse_version(spark.version) != parse_version(_installed()):
        raise EnvironmentProblem(
            f"the session runs Spark {spark.version}, and Python imports PySpark {_installed()}: "
            f"install pyspark=={spark.version}, or unset SPARK_HOME"
        )


def _installed() -> str:
    try:
        return str(importlib.import_module("pyspark").__version__)
    except ImportError as error:
        raise EnvironmentProblem(
            f"PySpark cannot be imported ({error}): {_WAYS_OUT.replace('pyspark', 'pyspark[sql]')}"
        ) from error
