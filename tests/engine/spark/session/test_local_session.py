"""Options of the JVM of a local session, with which its memory stays bounded."""

from __future__ import annotations

import pytest

from flow.engine.spark.session import session
from flow.engine.spark.session.session import SparkSettings

SERIAL = "-XX:+UseSerialGC"
SOCKETS = "spark.python.unix.domain.socket.enabled"


def options_of(master: str | None) -> str:
    return session._conf(SparkSettings(master), True)["spark.driver.extraJavaOptions"]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("master", ["local", "local[1]", "local[2]", "local[2,4]"])
def test_few_cores_use_the_serial_collector(master: str) -> None:
    assert SERIAL in options_of(master)


@pytest.mark.parametrize("master", ["local[3]", "local[16]"])
def test_many_cores_keep_javas_default_collector(master: str) -> None:
    assert SERIAL not in options_of(master)


def test_all_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.os, "cpu_count", lambda: 2)
    assert SERIAL in options_of("local[*]")
    assert SERIAL in options_of(None)
    monkeypatch.setattr(session.os, "cpu_count", lambda: 8)
    assert SERIAL not in options_of(None)


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_a_collector_of_the_environment_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
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
