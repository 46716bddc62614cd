"""Capabilities of the installed PySpark, which are probed whatever its version says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pyspark
import pytest
from py4j.java_gateway import JavaClass
from pyspark.sql import GroupedData, SparkSession
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

from flow.engine.spark.session.session import query_conf, session_capabilities
from flow.engine.spark.session.session_settings import QUERY_CONF
from flow.engine.spark.session.spark_capabilities import (
    ADAPTER_VARIABLE,
    LevelAdapter,
    RefusedSetting,
    RefusedSettings,
    SessionCapabilities,
    check_streaming,
    file_managers,
    spark_capabilities,
)
from flow.engine.spark.session.versions import installed_version
from flow.errors import EnvironmentProblem

ROWS, FRAMES = LevelAdapter.ROWS, LevelAdapter.FRAMES


@pytest.fixture(autouse=True)
def _probe_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what was probed, before a test and after it."""
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    installed_version.cache_clear()
    spark_capabilities.cache_clear()


def test_a_vendor_with_rows_on_its_4_0_has_the_adapter_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.0.vendor")
    found = spark_capabilities()
    assert (found.adapters, found.adapter()) == ((ROWS, FRAMES), ROWS)
    assert found.has_admission
    assert found.has_known_protocol


def test_a_pyspark_without_rows_has_the_adapter_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "transformWithState")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    found = spark_capabilities()
    assert (found.adapter(), found.has_admission) == (FRAMES, False)
    assert str(found) == (
        "keyed steps by transformWithStateInPandas, source without admission and availableNow, "
        "pipelined calls of state"
    )


def without(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    for base in GroupedData.__mro__:
        for method in set(methods).intersection(vars(base)):
            monkeypatch.delattr(base, method)


def test_a_pyspark_without_stateful_processors_runs_no_streaming_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "transformWithState", "transformWithStateInPandas")
    with pytest.raises(EnvironmentProblem) as caught:
        check_streaming()
    assert str(caught.value) == (
        "streaming flows and checkpoints need transformWithState or transformWithStateInPandas of "
        f"PySpark, and PySpark {pyspark.__version__}, which is installed, has neither: it runs a "
        "flow as a batch only, without recovery= and trigger="
    )


@pytest.mark.parametrize("version", ["4.4.0", "5.0.0.dev1"])
def test_the_protocol_of_state_is_unknown_in_a_version_that_was_not_tested(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert not spark_capabilities().has_known_protocol


def test_the_protocol_of_state_is_unknown_with_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(StatefulProcessorApiClient, "_receive_proto_message")
    assert not spark_capabilities().has_known_protocol


def test_the_variable_forces_an_adapter_that_pyspark_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADAPTER_VARIABLE, "transformWithStateInPandas")
    assert spark_capabilities().adapter() is FRAMES
    monkeypatch.setenv(ADAPTER_VARIABLE, "pandas")
    with pytest.raises(EnvironmentProblem) as caught:
        spark_capabilities().adapter()
    assert str(caught.value) == (
        "FLOW_LEVEL_ADAPTER must be transformWithState or transformWithStateInPandas, got 'pandas'"
    )


@pytest.mark.parametrize("is_moved", [True, False])
def test_the_package_of_file_managers_is_where_the_class_is(is_moved: bool) -> None:
    expected = "org.apache.spark.sql.execution.streaming"
    found = object.__new__(JavaClass) if is_moved else object()
    jvm = named(f"{expected}.checkpointing.CheckpointFileManager", found)
    package = f"{expected}.checkpointing" if is_moved else expected
    assert file_managers(jvm, "4.3.0") == package
    assert file_managers(None, "4.1.0" if is_moved else "4.0.5") == package


def named(name: str, found: object) -> object:
    """Return a tree of attributes that leads to an object by a name with dots."""
    for part in reversed(name.split(".")):
        found = SimpleNamespace(**{part: found})
    return found


@pytest.mark.spark
def test_settings_that_a_session_refuses_are_named_with_their_values(spark: SparkSession) -> None:
    before = dict(spark.sparkContext.getConf().getAll()), dict(spark.conf.getAll)
    fixed = {"spark.sql.warehouse.dir": "/elsewhere"}
    with pytest.raises(RefusedSettings) as caught, query_conf(spark, 2, extra=fixed):
        pass
    assert str(caught.value) == (
        "this session refuses to change settings that a flow needs: set them where the session or "
        "its cluster is configured: spark.sql.warehouse.dir=/elsewhere "
        f"(found {spark.conf.get('spark.sql.warehouse.dir')!r}: results may be wrong)"
    )
    as_it_is = {"spark.sql.warehouse.dir": spark.conf.get("spark.sql.warehouse.dir") or ""}
    with query_conf(spark, 2, extra=as_it_is):
        changed = {name: spark.conf.get(name) for name in QUERY_CONF}
    assert changed == QUERY_CONF
    assert (dict(spark.sparkContext.getConf().getAll()), dict(spark.conf.getAll)) == before
    assert session_capabilities(spark) == SessionCapabilities(True)


def test_the_text_of_a_session_names_what_it_lacks() -> None:
    assert str(SessionCapabilities(True)) == "JVM in reach; all settings may be set"
    adaptive = RefusedSetting("spark.sql.adaptive.enabled", "false", "true")
    assert str(SessionCapabilities(False, (adaptive, RefusedSetting("a.b", "1", None)))) == (
        "JVM not in reach; refuses to set: useful "
        "spark.sql.adaptive.enabled=false (found 'true': Spark plans a batch again while it runs); "
        "needed a.b=1 (found no value: results may be wrong)"
    )
