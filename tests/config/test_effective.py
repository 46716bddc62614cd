"""Effective configuration: the precedence of places, and errors that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from flow import FlowConfig
from flow.config.effective_config import (
    EffectiveConfig,
    listing,
    of_arguments,
    of_environment,
    of_options,
    of_program,
    recovery_of_program,
)
from flow.config.flow_config import FIELDS
from flow.errors import FlowBuildError
from recovery import RecoveryConfig


def variables(environ: Mapping[str, str]) -> EffectiveConfig:
    return EffectiveConfig(of_environment(environ, RecoveryConfig))


def test_arguments_come_before_variables_before_the_program_before_defaults() -> None:
    config = FlowConfig(shards=1, partitions=1, parallelism=1)
    effective = EffectiveConfig(
        of_arguments({"shards": 3, "partitions": None}),
        of_environment({"FLOW_SHARDS": "2", "FLOW_PARTITIONS": "2"}, RecoveryConfig),
        of_program(config),
    )
    names = ("shards", "partitions", "parallelism", "log_level")
    assert [(effective.value(name), effective.origin(name)) for name in names] == [
        (3, "run: shards"),
        (2, "FLOW_PARTITIONS"),
        (1, "FlowConfig: parallelism"),
        ("WARN", "default"),
    ]
    assert effective.config() == FlowConfig(shards=3, partitions=2, parallelism=1)


def test_settings_of_spark_are_merged_by_name() -> None:
    effective = EffectiveConfig(
        of_options({"conf": ["spark.a=1"]}, RecoveryConfig),
        of_environment({"FLOW_CONF": "spark.a=2 'spark.b=2 3'"}, RecoveryConfig),
        of_program(FlowConfig(conf={"spark.b": "4", "spark.c": "4"})),
    )
    assert effective.value("conf") == {"spark.a": "1", "spark.b": "2 3", "spark.c": "4"}
    assert effective.origin("conf") == (
        "--conf spark.a, FLOW_CONF spark.b, FlowConfig: conf spark.c"
    )


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("FLOW_RECOVERY", "state", "recovery", RecoveryConfig("state")),
        ("FLOW_ENGINE", "batch", "engine", "batch"),
        ("FLOW_TRIGGER", "1s", "trigger", "1s"),
        ("FLOW_TRIGGER", "available", "trigger", "available"),
        ("FLOW_DRAIN", "off", "drain", False),
        ("FLOW_SHARDS", "4", "shards", 4),
        ("FLOW_PARTITIONS", "4", "partitions", 4),
        ("FLOW_PARALLELISM", "4", "parallelism", 4),
        ("FLOW_MASTER", "local[2]", "master", "local[2]"),
        ("FLOW_DRIVER_MEMORY", "2g", "driver_memory", "2g"),
        ("FLOW_CONF", "spark.a=b=c", "conf", {"spark.a": "b=c"}),
        ("FLOW_PY_FILES", f"{__file__}:{__file__}", "py_files", (__file__, __file__)),
        ("FLOW_SPEEDUPS", "off", "speedups", False),
        ("FLOW_LOG_LEVEL", "error", "log_level", "ERROR"),
    ],
)
def test_a_variable_sets_its_field(variable: str, text: str, name: str, value: object) -> None:
    effective = variables({variable: text})
    assert effective.value(name) == value
    assert effective.origin(name).startswith(variable)


def test_every_field_has_a_variable_and_an_option() -> None:
    names = {field.name: (field.variable, field.option) for field in FIELDS}
    assert names["driver_memory"] == ("FLOW_DRIVER_MEMORY", "--driver-memory")
    assert len(set(names.values())) == len(FIELDS)


def test_a_variable_that_is_empty_or_without_effect_is_not_read() -> None:
    assert variables({"FLOW_MASTER": "", "FLOW_SHARDS": ""}).settings == {}
    first = of_arguments({"shards": 3})
    assert of_environment({"FLOW_SHARDS": "none"}, RecoveryConfig, first) == {}


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("FLOW_SHARDS", "0", "FLOW_SHARDS must be a whole number of at least 1, got '0'"),
        ("FLOW_DRAIN", "yes", "FLOW_DRAIN must be 'on' or 'off', got 'yes'"),
        ("FLOW_TRIGGER", "soon", "FLOW_TRIGGER 'soon' is not a duration: write it as"),
        ("FLOW_ENGINE", "x", "FLOW_ENGINE must be 'auto', 'batch' or 'streaming', got 'x'"),
        ("FLOW_DRIVER_MEMORY", "4gb", "FLOW_DRIVER_MEMORY must be a number and a unit of k, m,"),
        ("FLOW_CONF", "spark.a", "FLOW_CONF: 'spark.a' is no setting: write it as spark.some"),
        ("FLOW_CONF", "spark.a='b", 'FLOW_CONF: "spark.a=\'b" has an open quote'),
        ("FLOW_CONF", "spark.driver.memory=1", "FLOW_CONF spark.driver.memory must be a number"),
        ("FLOW_PY_FILES", "no.py", "FLOW_PY_FILES: there is no file 'no.py'"),
        ("FLOW_RECOVERY", " ", "FLOW_RECOVERY=' ': RecoveryConfig needs a directory's path"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        variables({variable: text})
    assert str(caught.value).startswith(problem)


def test_a_wrong_argument_is_named() -> None:
    problem = "^run: shards must be a whole number of at least 1, got 0$"
    with pytest.raises(FlowBuildError, match=problem):
        of_arguments({"shards": 0})
    problem = "^run: master='local' contradicts run: conf spark.master='yarn': give one of the two$"
    with pytest.raises(FlowBuildError, match=problem):
        of_arguments({"master": "local", "conf": {"spark.master": "yarn"}})


def test_a_setting_of_spark_with_a_field_counts_as_the_field() -> None:
    own = {"spark.a": "b", "spark.default.parallelism": "3", "spark.driver.memory": "8g"}
    effective = EffectiveConfig(
        of_environment({"FLOW_DRIVER_MEMORY": "2g"}, RecoveryConfig),
        of_program(FlowConfig(conf={**own, "spark.master": "local[2]"})),
    )
    assert effective.value("master") == "local[2]"
    assert effective.value("conf") == {"spark.a": "b"}
    assert effective.spark_conf() == {**own, "spark.driver.memory": "2g"}


def test_the_variable_moves_the_checkpoint_of_a_program_with_recovery() -> None:
    config = FlowConfig(recovery=RecoveryConfig("here", keep_epochs=7))
    moved = {"FLOW_RECOVERY": "there"}
    layer = of_environment(moved, recovery_of_program(config))
    value = EffectiveConfig(layer, of_program(config)).value("recovery")
    assert value == RecoveryConfig("there", keep_epochs=7)
    make = recovery_of_program(FlowConfig())
    with pytest.raises(FlowBuildError, match="FLOW_RECOVERY='there': run has no RecoveryConfig"):
        of_environment(moved, make)
    argument = of_arguments({"recovery": RecoveryConfig("here")})
    assert of_environment(moved, make, argument) == {}


def test_the_listing_hides_secrets(tmp_path: Path) -> None:
    effective = variables({"FLOW_CONF": "spark.hadoop.fs.s3a.secret.key=abc spark.a=b"})
    rows = [row.split() for row in listing(effective)]
    assert len(rows) == len(FIELDS) - 1 + 2
    assert rows[-1][:3] == ["conf", "spark.hadoop.fs.s3a.secret.key", "(hidden)"]
    assert rows[-2] == ["conf", "spark.a", "b", "FLOW_CONF", "spark.a"]
