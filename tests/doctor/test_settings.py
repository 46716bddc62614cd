"""Checks of the configuration: contradictions, values without effect, and misspelt variables."""

from __future__ import annotations

from typing import Any

import pytest

from flow.config.effective_config import EffectiveConfig, of_arguments
from flow.doctor.__main__ import configuration_findings, machine_findings
from flow.doctor.findings import Level
from recovery import RecoveryConfig
from tests.doctor.findings import OK, PROBLEM, WARNING, is_last


def effective(**arguments: Any) -> EffectiveConfig:
    return EffectiveConfig(of_arguments(arguments))


@pytest.mark.parametrize(
    ("arguments", "level", "text"),
    [
        ({}, OK, "defaults"),
        (
            {"shards": 3, "conf": {"spark.a": "b"}},
            OK,
            "set: shards (run: shards), conf spark.a (run: conf spark.a)",
        ),
        (
            {"engine": "batch", "recovery": RecoveryConfig("x")},
            PROBLEM,
            "engine batch (run: engine) keeps no state to recover, and recovery is set",
        ),
        (
            {"conf": {"spark.driver.extraJavaOptions": "-Xmx2g"}},
            PROBLEM,
            "run: conf spark.driver.extraJavaOptions sets the heap with -Xmx, which Spark refuses",
        ),
        (
            {"engine": "batch", "trigger": "1s"},
            WARNING,
            "trigger (run: trigger) has no effect with engine batch",
        ),
        ({"drain": False}, WARNING, "drain off (run: drain) leaves windows open for"),
        (
            {"conf": {"spark.sql.shuffle.partitions": "9"}},
            WARNING,
            "run: conf spark.sql.shuffle.partitions has no effect: set partitions",
        ),
        (
            {"conf": {"spark.sql.adaptive.enabled": "true"}},
            WARNING,
            "run: conf spark.sql.adaptive.enabled has no effect, because a flow needs 'false'",
        ),
    ],
)
def test_a_configuration_is_judged(
    arguments: dict[str, Any], level: Level, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    (found,) = configuration_findings(effective(**arguments))
    assert is_last([found], level, text)


def test_each_setting_is_listed_once() -> None:
    (finding,) = configuration_findings(effective(shards=4, conf={"spark.a": "b"}))
    assert finding.text == "set: shards (run: shards), conf spark.a (run: conf spark.a)"


def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW_DRIVER_MEMROY", "2g")
    monkeypatch.setenv("FLOW_OF_ANOTHER_PROGRAM", "1")
    (found,) = configuration_findings(effective())
    text = "the variable FLOW_DRIVER_MEMROY has no effect: is it FLOW_DRIVER_MEMORY?"
    assert (found.level, found.text) == (WARNING, text)


def test_options_of_pyspark_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    (found,) = configuration_findings(effective())
    assert found.text.startswith("PYSPARK_SUBMIT_ARGS is '--master yarn pyspark-shell', which may")


def test_memory_that_does_not_fit_the_machine_is_a_warning() -> None:
    (found,) = machine_findings(effective(driver_memory="9999g", master="local[1]"))
    assert is_last([found], WARNING, "driver_memory 9999g (run: driver_memory): this ")
