"""Capabilities of the installed PySpark and of a session, which are probed.

A version does not say them: vendors add features of a later Spark to runtimes that have the version
of an earlier one, and take access to the JVM or to settings away.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from typing import Any, NamedTuple

from flow.engine.spark.session.session_settings import NEEDED, QUERY_SETTINGS, QuerySetting
from flow.engine.spark.session.versions import installed_version, is_supported, parse_version
from flow.errors import EnvironmentProblem

ADAPTER_VARIABLE = "FLOW_LEVEL_ADAPTER"
"""The environment variable that chooses the adapter of new checkpoints, in tests."""

_CLIENT_CALLS = ("_receive_proto_message", "_serialize_to_bytes", "_deserialize_from_bytes")
"""Methods of PySpark's internal client of Spark's state, of which pipelined calls are made."""
_STREAMING = "org.apache.spark.sql.execution.streaming"
_TESTING = "pyspark.testing.utils"
_MOVED_MANAGERS = f"{_STREAMING}.checkpointing"
"""The Java package of Spark's file managers since 4.1."""

logger = logging.getLogger("flow")


class LevelAdapter(Enum):
    """The form in which Spark passes packets to levels, by the method of PySpark's grouped data.

    Spark stores the form in its checkpoint, and refuses another one.
    """

    ROWS = "transformWithState"
    FRAMES = "transformWithStateInPandas"


@dataclass(frozen=True)
class SparkCapabilities:
    """Capabilities of the installed PySpark.

    Attributes:
        adapters: the forms in which Spark can pass packets to levels, the fastest first.
        has_admission: True if a source in Python gets the offset that an epoch starts from, and
            can end with Spark's trigger for available data. Without it, that trigger would make
            Spark read the data of all other sources in one epoch.
        has_known_protocol: True if `flow.engine.spark.spark_store.PipelinedCalls` was tested with
            the internal protocol of this PySpark's state.
        late_imports: modules that PySpark imports in a worker's first task.
    """

    adapters: tuple[LevelAdapter, ...]
    has_admission: bool
    has_known_protocol: bool
    late_imports: tuple[str, ...] = ()

    def __str__(self) -> str:
        methods = " or ".join(adapter.value for adapter in self.adapters)
        admission = "with" if self.has_admission else "without"
        calls = "pipelined" if self.has_known_protocol else "single"
        return (
            f"keyed steps by {methods or 'nothing'}, source {admission} admission and "
            f"availableNow, {calls} calls of state"
        )

    def adapter(self) -> LevelAdapter:
        """Return the adapter of a new checkpoint.

        Raises:
            EnvironmentProblem: when PySpark has no stateful processor, or not the one that
                `ADAPTER_VARIABLE` names.
        """
        check_streaming()
        name = os.environ.get(ADAPTER_VARIABLE, self.adapters[0].value)
        for adapter in self.adapters:
            if adapter.value == name:
                return adapter
        methods = " or ".join(each.value for each in self.adapters)
        raise EnvironmentProblem(f"{ADAPTER_VARIABLE} must be {methods}, got {name!r}")


@dataclass(frozen=True)
class SessionCapabilities:
    """Capabilities of a session.

    Attributes:
        has_jvm: True if the program reaches the session's JVM.
        refused: settings of a flow's query that the session refuses to set.
    """

    has_jvm: bool
    refused: tuple[RefusedSetting, ...] = ()

    def __str__(self) -> str:
        jvm = "JVM in reach" if self.has_jvm else "JVM not in reach"
        refused = "all settings may be set"
        if self.refused:
            kinds = ("needed" if one.use.is_needed else "useful" for one in self.refused)
            texts = (f"{kind} {one}" for kind, one in zip(kinds, self.refused, strict=True))
            refused = f"refuses to set: {'; '.join(texts)}"
        return f"{jvm}; {refused}"


class RefusedSetting(NamedTuple):
    """A setting that a session refuses to change.

    Attributes:
        name: the name.
        value: the value for a flow's query.
        found: the session's value; ``None`` if it does not say.
    """

    name: str
    value: str
    found: str | None

    @property
    def use(self) -> QuerySetting:
        """The use of the setting; one that is not known is needed."""
        return QUERY_SETTINGS.get(self.name, NEEDED("results may be wrong"))

    def __str__(self) -> str:
        found = "no value" if self.found is None else repr(self.found)
        return f"{self.name}={self.value} (found {found}: {self.use.otherwise})"


class RefusedSettings(EnvironmentProblem):
    """Error of a session that refuses settings without which results may be wrong.

    Args:
        refused: the settings.
    """

    def __init__(self, refused: Sequence[RefusedSetting]) -> None:
        self.refused = tuple(refused)
        super().__init__(
            "this session refuses to change settings that a flow needs: set them where the "
            f"session or its cluster is configured: {', '.join(map(str, refused))}"
        )


def file_managers(jvm: Any | None, spark_version: str) -> str:
    """Return the name of the Java package of Spark's file managers, which Spark 4.1 has moved.

    Args:
        jvm: the JVM of the session; ``None`` if it is not in reach, and then the version counts.
        spark_version: version of Spark in the session.
    """
    if jvm is None:
        return _MOVED_MANAGERS if parse_version(spark_version) >= (4, 1) else _STREAMING
    from py4j.java_gateway import JavaClass

    found = reduce(getattr, f"{_MOVED_MANAGERS}.CheckpointFileManager".split("."), jvm)
    return _MOVED_MANAGERS if isinstance(found, JavaClass) else _STREAMING


@cache
def spark_capabilities() -> SparkCapabilities:
    """Return the capabilities of the installed PySpark.

    Raises:
        EnvironmentProblem: when PySpark is missing, or older than the supported versions.
    """
    version = installed_version()
    from pyspark.sql import GroupedData
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    # The protocol says no version of its own, and a call of another meaning may have the same name.
    is_tested = is_supported(version)
    encode = getattr(StatefulProcessorApiClient, "_serialize_to_bytes", None)
    asks_for_numpy = _TESTING in getattr(getattr(encode, "__code__", None), "co_names", ())
    found = SparkCapabilities(
        tuple(adapter for adapter in LevelAdapter if hasattr(GroupedData, adapter.value)),
        _has(
            "pyspark.sql.streaming.datasource", ("ReadAllAvailable", "SupportsTriggerAvailableNow")
        ),
        is_tested and all(hasattr(StatefulProcessorApiClient, name) for name in _CLIENT_CALLS),
        (_TESTING,) if asks_for_numpy else (),
    )
    logger.debug("PySpark %s: %s", version, found)
    return found


def _has(module: str, names: Iterable[str]) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return all(hasattr(found, name) for name in names)


def check_streaming() -> None:
    """Check that the installed PySpark can run streaming queries of flows.

    Raises:
        EnvironmentProblem: if PySpark is missing or too old, or has no stateful processor.
    """
    if not spark_capabilities().adapters:
        raise EnvironmentProblem(
            "streaming flows and checkpoints need transformWithState or transformWithStateInPandas "
            f"of PySpark, and PySpark {installed_version()}, which is installed, has neither: it "
            "runs a flow as a batch only, without recovery= and trigger="
        )
