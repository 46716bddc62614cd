"""Settings of a session: options of its JVM, those of ``spark-submit``, and those of a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from flow import run
from flow.connectors.dataframe import DataFrameSink, DataFrameSource
from flow.engine.spark.session import jvm, session
from flow.engine.spark.session.session import SparkSettings, query_conf
from flow.engine.spark.session.session_settings import QUERY_CONF
from flow.testing import TestingSink, TestingSource
from tests.support.one_stream import a_flow, as_read

SERIAL = "-XX:+UseSerialGC"
SOCKETS = "spark.python.unix.domain.socket.enabled"


def options_of(master: str | None) -> str:
    return session._conf(SparkSettings(master), True)["spark.driver.extraJavaOptions"]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("masters", "is_serial"),
    [(["local", "local[1]", "local[2]", "local[2,4]"], True), (["local[3]", "local[16]"], False)],
)
def test_few_cores_use_the_serial_collector(masters: list[str], is_serial: bool) -> None:
    assert [SERIAL in options_of(master) for master in masters] == [is_serial] * len(masters)


def test_all_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.os, "cpu_count", lambda: 2)
    assert SERIAL in options_of("local[*]")
    assert SERIAL in options_of(None)
    monkeypatch.setattr(session.os, "cpu_count", lambda: 8)
    assert SERIAL not in options_of(None)


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_a_collector_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-Xss2m -XX:+UseZGC")
    assert SERIAL not in options_of("local[2]")


def test_settings_of_the_user_precede_those_of_a_session() -> None:
    own = {"spark.ui.retainedJobs": "1000", SOCKETS: "true"}
    for settings, values in (
        (SparkSettings(), {"spark.ui.retainedJobs": "50", SOCKETS: "false"}),
        (SparkSettings(conf=own), own),
    ):
        conf = session._conf(settings, False)
        assert {name: conf[name] for name in own} == values


@pytest.mark.parametrize(("switch", "is_ours"), [("on", True), ("off", False)])
def test_workers_come_from_our_daemon_unless_speedups_are_off(
    switch: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_SPEEDUPS", switch)
    assert ("spark.python.daemon.module" in session._conf(SparkSettings(), True)) == is_ours


SUBMITTED = {"spark.master": "spark://host:7077", "spark.driver.memory": "1g"}


def conf_of(settings: SparkSettings) -> tuple[str | None, dict[str, str]]:
    """Return the master and the configuration of a session."""
    joined = session._with_submitted(settings, SUBMITTED)
    return joined.master, session._conf(joined, True)


def test_the_master_of_spark_submit_is_that_of_the_session() -> None:
    master, conf = conf_of(SparkSettings())
    assert master == "spark://host:7077"
    assert "spark.driver.host" not in conf  # A local session has 127.0.0.1.


def test_options_of_spark_submit_precede_defaults_of_a_local_session() -> None:
    assert session._conf(SparkSettings(), True)["spark.driver.memory"] == "4g"
    _, conf = conf_of(SparkSettings(master="local[2]"))
    assert conf["spark.driver.memory"] == "1g"


def test_arguments_of_run_precede_options_of_spark_submit() -> None:
    own = {"spark.driver.memory": "2g"}
    master, conf = conf_of(SparkSettings(master="local[2]", conf=own))
    assert (master, conf["spark.driver.memory"]) == ("local[2]", "2g")
    assert "spark.master" not in conf  # Spark would take it in the place of the argument.


def test_the_log_level_is_that_of_spark_submit_unless_an_argument_sets_it() -> None:
    submitted_level = {"spark.log.level": "error"}
    for settings, level in (
        (SparkSettings(), "ERROR"),
        (SparkSettings(log_level="info"), "INFO"),
        (SparkSettings(conf={"spark.log.level": "OFF"}), "OFF"),
    ):
        assert session._log_level(session._with_submitted(settings, submitted_level)) == level
    assert session._log_level(SparkSettings()) == "WARN"


def test_without_spark_submit_there_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert jvm.submitted_conf() == {}


def test_settings_are_those_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Conf:
        def getAll(self) -> Any:
            return SUBMITTED.items()

    connected: list[bool] = []
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    monkeypatch.setattr(jvm, "SparkConf", Conf)
    connect = staticmethod(lambda: connected.append(True))
    monkeypatch.setattr(jvm.SparkContext, "_ensure_initialized", connect)
    assert jvm.submitted_conf() == SUBMITTED
    assert connected == [True]


# --- settings of a query ---


def settings_of(spark: SparkSession) -> dict[str, Any]:
    names = [*QUERY_CONF, "spark.sql.shuffle.partitions"]
    return {name: spark.conf.get(name, None) for name in names}


def test_settings_of_a_query_are_set_while_it_starts(spark: SparkSession) -> None:
    before = settings_of(spark)
    with query_conf(spark, 3):
        within = settings_of(spark)
    assert within == {**QUERY_CONF, "spark.sql.shuffle.partitions": "3"}
    assert settings_of(spark) == before


def code_in(spark: SparkSession, source: Any, sink: Any, **options: Any) -> str:
    """Return the setting of code generation in the query of a flow."""
    found: list[str] = []

    def on_epoch(*_: Any) -> None:
        java: Any = [query._jsq for query in spark.streams.active]
        for each in java:
            conf = each.streamingQuery().sparkSessionForStream().conf()
            found.append(conf.get("spark.sql.codegen.factoryMode"))

    run(a_flow(as_read, source=source, sink=sink), spark=spark, on_epoch=on_epoch, **options)
    return found[0]


def keep(frame: DataFrame, _epoch: int) -> None:
    frame.collect()


def test_no_code_is_generated_for_packets(spark: SparkSession) -> None:
    assert code_in(spark, TestingSource([1]), TestingSink([]), engine="streaming") == "NO_CODEGEN"


@pytest.mark.extended
def test_code_is_generated_for_rows_of_streamed_frames(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    source = DataFrameSource(spark.readStream.schema("n int").parquet(str(tmp_path)))
    assert code_in(spark, source, TestingSink([]), trigger="available") == "FALLBACK"
    sink = DataFrameSink(keep, "value int")
    assert code_in(spark, TestingSource([1]), sink, engine="streaming") == "FALLBACK"
