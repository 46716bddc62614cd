"""The session of a run: of the program or new, and settings that it contradicts."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, FlowBuildError, run
from flow.config.config_problems import with_jvm, with_session
from flow.config.effective_config import (
    EffectiveConfig,
    of_arguments,
    of_environment,
    recovery_of_program,
)
from flow.config.flow_config import FlowConfig
from flow.config.spark_session import session_for, session_named
from flow.connectors.dataframe import DataFrameSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark.session import session
from flow.engine.spark.session.jvm import heap_of_jvm
from flow.testing import TestingSink, TestingSource

ACTIVE = {
    "spark.master": "local[2]",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "2g",
    "spark.a": "b",
    "spark.executorEnv.FLOW_SPEEDUPS": "on",
}
"""The settings of a session that is session."""

WHAT_TO_DO = (
    "set it where that session is made, stop the session before the run, or leave the setting out"
)


def given(**arguments: Any) -> EffectiveConfig:
    return EffectiveConfig(of_arguments(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"master": "local[2]", "parallelism": 2},
        {"driver_memory": "2g"},
        {"driver_memory": "2048m"},
        {"conf": {"spark.a": "b", "spark.master": "local[2]"}},
        {"speedups": True},
        {"log_level": "ERROR", "shards": 3},
    ],
)
def test_settings_that_a_session_has_are_no_contradiction(arguments: dict[str, Any]) -> None:
    """Such as those of a second run in one program, after a run that has made the session."""
    assert list(with_session(given(**arguments), ACTIVE.get)) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"master": "local[3]"}, "run: master='local[3]' X spark.master is 'local[2]'"),
        ({"parallelism": 5}, "run: parallelism=5 X spark.default.parallelism is '2'"),
        ({"driver_memory": "8g"}, "run: driver_memory='8g' X spark.driver.memory is '2g'"),
        ({"conf": {"spark.a": "c"}}, "run: conf spark.a='c' X spark.a is 'b'"),
        ({"conf": {"spark.b": "c"}}, "run: conf spark.b='c' X spark.b has no value"),
        ({"conf": {"spark.my.token": "c"}}, "run: conf spark.my.token=*** X spark.my.token has no"),
        ({"speedups": False}, "run: speedups='off' X spark.executorEnv.FLOW_SPEEDUPS is 'on'"),
    ],
)
def test_a_setting_that_a_session_contradicts_is_named_with_both_values(
    arguments: dict[str, Any], problem: str
) -> None:
    (found,) = with_session(given(**arguments), ACTIVE.get)
    start = problem.replace(" X ", " cannot change the active Spark session, in which ")
    assert found.startswith(start)
    assert found.endswith(WHAT_TO_DO)


def test_the_variable_for_speedups_is_read_by_workers_of_any_session() -> None:
    variables = {"FLOW_SPEEDUPS": "off", "FLOW_MASTER": "local[9]"}
    layer = of_environment(variables, recovery_of_program(FlowConfig()))
    (found,) = with_session(EffectiveConfig(layer), ACTIVE.get)
    assert found.startswith("FLOW_MASTER='local[9]' cannot change the active Spark session")


def test_the_variable_of_spark_connect_names_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    class Classic:
        builder = SimpleNamespace(getOrCreate=lambda: "of the server")

    monkeypatch.setattr(session, "SparkSession", Classic)
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(session, "_CONNECT", "there.is.no.such.module")
    assert session.active_session() is None
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
    assert session.active_session() == "of the server"


def test_a_heap_beside_that_of_a_running_jvm_is_refused() -> None:
    assert list(with_jvm(given(driver_memory="1024m"), "1g")) == []
    assert list(with_jvm(given(master="local[3]"), "1g")) == []
    assert list(with_jvm(given(driver_memory="8g"), "1g")) == [
        "run: driver_memory='8g' cannot change the heap of Spark's JVM, which runs already with "
        "'1g': give the size to spark-submit (--driver-memory), or run the flow in a new process"
    ]


def small_flow(source: Any = None) -> Dataflow:
    flow = Dataflow("small")
    op.output("out", op.input("in", flow, source or TestingSource([1])), TestingSink([]))
    return flow


def test_a_run_takes_the_active_session_unless_it_contradicts(spark: SparkSession) -> None:
    own = {"spark.driver.memory": "3072m", "spark.sql.caseSensitive": "false"}
    assert run(small_flow(), master="local[2]", parallelism=2, conf=own).count("out", "in") == 1
    message = (
        "run: master='local[7]' cannot change the active Spark session, in which spark.master is "
        f"'local[2]': {WHAT_TO_DO}; run: conf spark.some.name='x' cannot change the active Spark "
        f"session, in which spark.some.name has no value: {WHAT_TO_DO}"
    )
    with pytest.raises(FlowBuildError, match=f"^{re.escape(message)}$"):
        run(small_flow(), master="local[7]", conf={"spark.some.name": "x"})


def test_files_go_to_the_workers_of_the_active_session(
    spark: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "mine.py"
    module.write_text("")
    sent: list[str] = []
    monkeypatch.setattr(spark.sparkContext, "addPyFile", sent.append)
    assert session_named("files", given(py_files=[module])) is spark
    assert sent == [str(module)]


def test_a_flow_of_a_data_frame_runs_in_the_session_of_the_frame(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    plan = compile_flow(small_flow(DataFrameSource(other.range(3))))
    assert session_for(plan, given(), None) is other
    assert session_for(plan, given(), spark) is spark
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert session_for(plan, given(conf=conf), None) is other
    plan = compile_flow(small_flow())
    with pytest.raises(FlowBuildError, match=r"timeZone='Asia/Tokyo' cannot change the active"):
        session_for(plan, given(conf=conf), None)


def test_a_data_frame_of_a_stopped_session_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        sparkSession = None
        isStreaming = False

    monkeypatch.setattr("flow.engine.spark.input_frames.is_stopped", lambda _: True)
    source: Any = DataFrameSource.__new__(DataFrameSource)
    source.frame = Frame()
    plan = compile_flow(small_flow())
    monkeypatch.setattr(type(plan), "frames", ("in",))
    monkeypatch.setattr("flow.engine.spark.input_frames.source_of", lambda _: source)
    message = "^step 'in': the session of its data frame was stopped: make the data frame in a"
    with pytest.raises(FlowBuildError, match=message):
        session_for(plan, given(), None)


def test_the_heap_of_a_jvm_is_that_of_its_start(spark: SparkSession) -> None:
    assert heap_of_jvm() == "3g"


def test_runs_of_several_threads_start_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def start(name: str, _: EffectiveConfig) -> Any:
        time.sleep(0.1)
        made.append(name)
        return name

    monkeypatch.setattr(session, "active_session", lambda: next(iter(made), None))
    monkeypatch.setattr("flow.config.spark_session._started", start)
    monkeypatch.setattr("flow.config.spark_session._joined", lambda found, _: found)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda number: session_named(f"flow {number}", given()), range(3)))
    assert found == made * 3
