"""The configuration of `run`: its places, and the session and the engine that get it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow, FlowConfig, attach, run
from flow.config.machine import Machine
from flow.connectors.files import JsonLinesSource
from flow.engine.spark.session import session
from flow.engine.spark.session.session import SparkSettings
from flow.engine.spark.session.session_settings import has_speedups
from flow.errors import FlowBuildError, FlowTypeError
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig


class Started(Exception):
    """The end of a run at the start of its session."""


class Sessions:
    """Stand-in for `make_session` that records its settings."""

    settings: SparkSettings
    has_speedups: bool

    def __call__(self, name: str, settings: SparkSettings) -> Any:
        self.settings = settings
        self.has_speedups = has_speedups()
        raise Started


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    made = Sessions()
    monkeypatch.setattr("flow.engine.spark.session.session.make_session", made)
    monkeypatch.setattr("flow.engine.spark.session.jvm.starts_jvm", lambda: True)
    monkeypatch.setattr("flow.engine.spark.session.session.active_session", lambda: None)
    return made


def small_flow() -> Dataflow:
    flow = Dataflow("small")
    op.output("out", op.input("in", flow, TestingSource([1])), TestingSink([]))
    return flow


def start(**arguments: Any) -> None:
    with pytest.raises(Started):
        run(small_flow(), **arguments)


def test_a_new_session_gets_the_configuration_from_all_places(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_MASTER", "local[1]")
    monkeypatch.setenv("FLOW_DRIVER_MEMORY", "1g")
    session = FlowConfig(master="local[2]", driver_memory="2g", log_level="error")
    config = replace(session, parallelism=3, conf={"spark.a": "b"})
    start(config=config, driver_memory="512m")
    assert sessions.settings == SparkSettings(
        "local[1]",
        {"spark.a": "b", "spark.default.parallelism": "3", "spark.driver.memory": "512m"},
        "ERROR",
    )


def test_the_speed_ups_are_switched_off_in_this_process_and_in_workers(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_SPEEDUPS", "on")
    start(speedups=False)
    assert not sessions.has_speedups
    assert sessions.settings.conf == {"spark.executorEnv.FLOW_SPEEDUPS": "off"}
    assert has_speedups()
    start()
    assert sessions.has_speedups


def test_a_new_session_logs_advice(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flow.config.spark_session.this_machine", lambda: Machine(2, 8 << 30))
    with caplog.at_level(logging.WARNING, "flow"):
        start(config=FlowConfig(driver_memory="16g"))
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "driver_memory 16g (FlowConfig: driver_memory): this machine has 8.0 GiB of memory"
    )


def test_a_function_in_the_place_of_a_field_s_name_is_a_warning(
    sessions: Sessions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.jsonl").write_text('{"shop": "a"}\n')
    flow = Dataflow("orders")
    source = JsonLinesSource(tmp_path / "*.jsonl", schema={"shop": pa.string()})
    keyed = op.key_on("by_shop", op.input("orders", flow, source), lambda order: order["shop"])
    op.output("out", keyed, TestingSink([]))
    with caplog.at_level(logging.WARNING, "flow"), pytest.raises(Started):
        run(flow)
    assert [record.getMessage() for record in caplog.records] == [
        "step 'by_shop' reads field 'shop' with a function, which makes Python objects of the "
        "records: give the field's name in place of the function, and they stay columns"
    ]


def test_the_configuration_chooses_the_engine(sessions: Sessions) -> None:
    config = FlowConfig(engine="batch", recovery=RecoveryConfig("state"))
    with pytest.raises(FlowBuildError, match="engine='batch' keeps no state to recover"):
        run(small_flow(), config=config)
    start(config=config, engine="streaming")


@pytest.mark.parametrize(
    ("variables", "arguments", "names"),
    [
        ({}, {"master": "local[1]"}, "run: master"),
        (
            {},
            {"conf": {"spark.a": "b"}, "parallelism": 2},
            "run: parallelism and run: conf spark.a",
        ),
        ({}, {"config": FlowConfig(speedups=False), "py_files": ()}, "FlowConfig: speedups"),
        ({}, {"config": FlowConfig(driver_memory="2g")}, "FlowConfig: driver_memory"),
        ({"FLOW_MASTER": "local[1]"}, {}, "FLOW_MASTER"),
        ({"FLOW_CONF": "spark.a=b"}, {}, "FLOW_CONF spark.a"),
        ({"FLOW_SPEEDUPS": "off", "FLOW_LOG_LEVEL": "INFO"}, {}, None),
    ],
)
def test_settings_of_a_new_session_do_not_go_with_a_session(
    variables: dict[str, str],
    arguments: dict[str, Any],
    names: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise Started

    monkeypatch.setattr(session, "check_session", stop)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    kind: type[Exception] = Started if names is None else FlowBuildError
    with pytest.raises(kind, match=f"^{names or ''}") as caught:
        run(small_flow(), spark=object(), **arguments)  # type: ignore[arg-type]
    if names is not None:
        assert f"{names} cannot change the session that spark= names" in str(caught.value)


def test_a_wrong_variable_is_named_before_the_session_starts(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_PARTITIONS", "many")
    with pytest.raises(FlowBuildError, match=r"^FLOW_PARTITIONS must be a whole number of at lea"):
        run(small_flow())


def test_the_configuration_must_be_one() -> None:
    with pytest.raises(FlowTypeError, match="config must be a FlowConfig, got dict"):
        run(small_flow(), config={"shards": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [run, attach])
def test_the_flag_to_stop_must_be_one(function: Any) -> None:
    with pytest.raises(FlowTypeError, match="stop must be a StopFlag, got Event"):
        function(small_flow(), recovery=None, stop=threading.Event())


def test_attach_needs_the_settings_of_a_checkpoint() -> None:
    with pytest.raises(FlowTypeError, match="recovery must be a RecoveryConfig, got str"):
        attach(small_flow(), "checkpoint")  # type: ignore[arg-type]
