"""Settings of a session in a program that ``spark-submit`` has started."""

from __future__ import annotations

from typing import Any

import pytest

from flow.engine.spark.session import session
from flow.engine.spark.session.session import SparkSettings
from flow.engine.spark.startup import submitted
from flow.engine.spark.startup.submitted import submitted_conf

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
    assert submitted_conf() == {}


def test_settings_are_those_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Conf:
        def getAll(self) -> Any:
            return SUBMITTED.items()

    connected: list[bool] = []
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    monkeypatch.setattr(submitted, "SparkConf", Conf)
    connect = staticmethod(lambda: connected.append(True))
    monkeypatch.setattr(submitted.SparkContext, "_ensure_initialized", connect)
    assert submitted_conf() == SUBMITTED
    assert connected == [True]
