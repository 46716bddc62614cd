"""`FlowConfig`: its fields, checks and text."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from pathlib import Path
from typing import Any

import pytest

from flow import Dataflow, FlowConfig, run
from flow.config.flow_config import FIELD, FIELDS, Settings
from flow.engine.spark.session.session_settings import SPEEDUPS_VARIABLE
from flow.errors import FlowBuildError, FlowTypeError
from recovery import RecoveryConfig


def test_the_fields_have_the_defaults_of_the_class() -> None:
    assert {field.name: field.default for field in FIELDS} == vars(FlowConfig())
    assert FIELD["speedups"].variable == SPEEDUPS_VARIABLE
    assert [field.name for field in FIELDS if field.new_session] == [
        *("parallelism", "master", "driver_memory", "conf", "py_files", "speedups"),
    ]


def test_every_field_is_in_the_docstring() -> None:
    for field in FIELDS:
        assert f"\n    {field.name}: " in str(inspect.getdoc(FlowConfig))


def test_the_types_of_settings_are_those_of_the_fields() -> None:
    types = {
        name: kind if kind.endswith("| None") else f"{kind} | None"
        for name, kind in FlowConfig.__annotations__.items()
        if name != "recovery"
    }
    assert {name: kind.__forward_arg__ for name, kind in Settings.__annotations__.items()} == types


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("parallelsim", "is it parallelism=?"),
        ("on_epochs", "is it on_epoch=?"),
        ("colour", "it has flow=, config=, recovery=, spark=, system_time=, on_epoch=, stop=, "),
    ],
)
def test_an_unknown_argument_of_run_names_the_nearest_one(name: str, hint: str) -> None:
    options: Any = {name: 1}
    with pytest.raises(FlowTypeError) as caught:
        run(Dataflow("small"), **options)
    assert str(caught.value).startswith(f"run has no argument {name!r}: {hint}")


def test_the_text_of_a_configuration_can_be_typed_and_shows_no_secret() -> None:
    values: Any = {"drain": False, "shards": 32, "conf": {"spark.a": "b"}, "speedups": False}
    config = FlowConfig(
        recovery=RecoveryConfig("state"),
        trigger=datetime.timedelta(seconds=2),
        py_files=[Path("mine.py")],
        log_level="info",
        **values,
    )
    assert eval(repr(config)) == config
    assert (config.log_level, config.py_files) == ("INFO", ("mine.py",))
    assert repr(FlowConfig()) == "FlowConfig()"
    config = FlowConfig(conf={"spark.my.password": "p", "spark.a": "b"})
    assert repr(config) == "FlowConfig(conf={'spark.my.password': '***', 'spark.a': 'b'})"


def test_a_configuration_cannot_be_changed_and_can_be_a_key() -> None:
    conf = {"spark.a": "b"}
    config = FlowConfig(conf=conf, shards=3)
    conf["spark.a"] = "c"
    assert config.conf == {"spark.a": "b"}
    assert {config: 1}[FlowConfig(conf={"spark.a": "b"}, shards=3)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.shards = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"recovery": "state"}, "recovery must be a RecoveryConfig, got str 'state'"),
        ({"engine": "flink"}, "engine must be 'auto', 'batch' or 'streaming', got 'flink'"),
        ({"engine": None}, "engine must be 'auto', 'batch' or 'streaming', got None"),
        ({"trigger": "soon"}, "trigger 'soon' is not a duration"),
        ({"trigger": "-1s"}, "trigger must not be negative, got '-1s'"),
        ({"drain": 1}, "drain must be True or False, got int 1"),
        ({"shards": 0}, "shards must be a whole number of at least 1, got 0"),
        ({"partitions": 2.0}, "partitions must be a whole number of at least 1, got 2.0"),
        ({"parallelism": True}, "parallelism must be a whole number of at least 1, got True"),
        ({"master": ""}, "master must not be empty, got ''"),
        ({"master": 4}, "master must be text, got int 4"),
        ({"driver_memory": "4"}, "driver_memory must be a number and a unit of k, m, g or t"),
        ({"driver_memory": "٤g"}, "driver_memory must be a number and a unit of k, m, g or t"),
        ({"driver_memory": "9" * 5_000 + "g"}, "driver_memory must be a number and a unit"),
        ({"driver_memory": "256m"}, "driver_memory must be at least '512m', got '256m'"),
        ({"conf": [("a", "b")]}, "conf must map names of Spark settings to text, got list"),
        ({"conf": {"a": 1}}, "conf: Spark configuration is text to text, got ('a', 1)"),
        ({"py_files": "mine.py"}, "py_files must be a list of paths, got 'mine.py'"),
        ({"speedups": "off"}, "speedups must be True or False, got str 'off'"),
        ({"log_level": "LOUD"}, "log_level must be one of ALL, TRACE, DEBUG, INFO, WARN, ERROR"),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        FlowConfig(**values)
    assert str(caught.value).startswith(f"FlowConfig: {problem}")
