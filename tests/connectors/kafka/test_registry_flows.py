"""Flows that read the schemas of a topic's values from a registry: versions, faults, secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, StepError, run
from flow.connectors.kafka import KafkaSource, Registry
from flow.connectors.kafka import registry as registry_module
from flow.connectors.source import MemoryLog, Split
from flow.engine.plan.compiler import compile_flow
from flow.errors import EnvironmentProblem, FlowBuildError, FlowTypeError, SourceError
from flow.preflight import preflight
from flow.testing import TestDriver, TestingSink, run_source
from recovery import RecoveryConfig
from tests.connectors.kafka.test_registry_formats import V1, V2, V3, framed
from tests.support.feeding import FedRun
from tests.support.kafka import Broker
from tests.support.schema_registry import PASSWORD, USER, SchemaRegistry, running_registry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as made:
        yield made


class Case:
    """A topic with a registry, and a flow that gives its users and columns."""

    def __init__(self, broker: Broker, registry: SchemaRegistry, **arguments: Any) -> None:
        self.broker, self.registry = broker, registry
        self.topic = broker.topic()
        self.subject = f"{self.topic}-value"
        value = Registry(registry.url, **arguments)
        self.source = KafkaSource(broker.servers, self.topic, value=value, discover_every="100ms")
        self.flow = Dataflow("orders")
        self.rows: list[dict[str, Any]] = []
        rows = op.map("row", op.input("orders", self.flow, self.source), own_columns)
        op.output("out", rows, TestingSink(self.rows))

    def send(self, schema: Any, *rows: dict[str, Any]) -> None:
        schema_id = self.registry.register(self.subject, schema)
        self.broker.values(self.topic, [framed(schema_id, schema, row) for row in rows])


def own_columns(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in record if name in ("user", "count", "note", "unit")}


A, B, C = (
    {"user": "a", "count": 1},
    {"user": "b", "count": 2, "note": "n"},
    {"user": "c", "count": 3},
)


#  epoch 1   a                           version 1
#  epoch 2     a b c   killed, replayed  version 2; between, version 3 is registered
#  epoch 3           a                   versions 1 and 3
def test_a_replay_reads_as_the_epoch_did_though_a_version_was_registered_since(
    broker: Broker, registry: SchemaRegistry
) -> None:
    case = Case(broker, registry)
    fed = FedRun(case.flow)
    case.send(V1, A)
    assert fed.epoch()
    assert fed.outputs["out"] == [A]
    case.send(V1, A)
    case.send(V2, B)
    case.send(V1, C)
    fed.kill()
    registry.register(case.subject, V3)
    assert fed.epoch()
    wide = [{"note": None, **A}, B, {"note": None, **C}]
    assert fed.outputs["out"] == [A, *wide]
    assert all(type(row["count"]) is int for row in fed.outputs["out"])
    case.send(V1, A)
    assert fed.epoch()
    assert fed.outputs["out"][4:] == [{**A, "note": None, "unit": "EUR"}]
    assert type(fed.outputs["out"][4]["count"]) is float


@pytest.mark.extended
def test_a_pinned_flow_goes_on_without_new_columns_and_stop_ends_it(
    broker: Broker, registry: SchemaRegistry
) -> None:
    case = Case(broker, registry, evolve="pinned")
    fed = FedRun(case.flow)
    case.send(V1, A)
    assert fed.epoch()
    changed = {**V1, "fields": [*V1["fields"], V2["fields"][2]]}
    case.send(changed, B)
    fed.kill()
    assert fed.epoch()
    assert fed.outputs["out"] == [A, {"user": "b", "count": 2}]
    stopping = Case(broker, registry, evolve="stop")
    fed = FedRun(stopping.flow)
    stopping.send(V1, A)
    assert fed.epoch()
    stopping.send(changed, B)
    with pytest.raises(SourceError, match=r"step 'orders'.* 'note' is new. Pass evolve='widen'"):
        fed.epoch()
    assert fed.outputs["out"] == [A]


def test_a_registry_that_is_down_is_waited_for(
    broker: Broker, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(broker, registry)
    case.send(V1, A)
    registry.stop()
    fed = FedRun(case.flow)
    with caplog.at_level(logging.WARNING):
        fed.epoch()
        fed.epoch()
        assert fed.outputs == {"out": []}
        registry.start()
        assert fed.epoch()
        case.send(V2, B)
        for registry.status in (429, 503):
            assert not fed.epoch()
        registry.status = None
        assert fed.epoch()
    assert fed.outputs["out"] == [A, B]
    down = f"the schema registry at {registry.url} does not answer: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{down}ConnectError: [Errno 111] Connection refused; waiting for it",
        "the schema registry answers again",
        f"{down}at fault (429); waiting for it",
        "the schema registry answers again",
    ]


def test_a_task_waits_for_a_registry_that_is_down(
    broker: Broker,
    registry: SchemaRegistry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(broker, registry, evolve="pinned")
    case.send(V1, A)
    fed = FedRun(case.flow)
    fed.kill()
    registry.status = 503
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: setattr(registry, "status", None))
    with caplog.at_level(logging.WARNING):
        assert fed.epoch()
    assert fed.outputs["out"] == [A]
    assert [record.getMessage().partition(";")[2] for record in caplog.records] == [
        " waiting for it",
        "",
    ]
    registry.status = 503
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: None)
    brief = KafkaSource(
        broker.servers, case.topic, end="latest", value=case.source.value, patience="1ms"
    )
    with pytest.raises(SourceError, match=r"does not answer: at fault \(503\); waited 0 s"):
        run_source(brief)


# --- errors at the start ---


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("", {"auth": (USER, "wrong")}, r"refuses to answer: Unauthorized \(401\): check the name"),
        ("/api", {}, r"refuses to answer: .*\(404\): check the url, with its path"),
    ],
    ids=["a wrong password", "a wrong path"],
)
def test_a_registry_that_refuses_is_an_error_before_spark_starts(
    registry: SchemaRegistry, path: str, arguments: Any, message: str
) -> None:
    registry.needs_login = bool(arguments)
    value = Registry(registry.url + path, **arguments)
    flow = Dataflow("orders")
    source = KafkaSource("localhost:1", "orders", value=value)
    op.output("out", op.input("orders", flow, source), TestingSink([]))
    with pytest.raises(SourceError, match=message) as raised:
        preflight(compile_flow(flow), None, is_batch=False)
    assert "wrong" not in str(raised.value)
    with pytest.raises(SourceError, match=message):
        KafkaSource("localhost:1", pattern="orders-.*", value=value).check()
    KafkaSource("localhost:1", "orders", value=Registry("http://127.0.0.1:1")).check()
    KafkaSource(
        "localhost:1", "orders", value=Registry(registry.url, auth=(USER, PASSWORD))
    ).check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "registry:8081"}, "url must be an address such as"),
        ({"url": "http://ann:s3cr3t@registry"}, "the url has a login: pass it as auth="),
        ({"url": 3}, "url must be text"),
        ({"format": "xml"}, "format"),
        ({"evolve": "no"}, "evolve"),
        ({"auth": "ann"}, "auth must be a name and a password"),
        ({"subject": 3}, "subject must be text"),
        ({"properties": {"max.retries": 3}}, "the flow waits for the registry itself"),
    ],
)
def test_an_argument_that_is_not_valid_is_an_error(arguments: Any, message: str) -> None:
    with pytest.raises(FlowBuildError, match=message) as raised:
        Registry(**{"url": "http://registry", **arguments})
    assert "s3cr3t" not in str(raised.value)


def test_a_missing_package_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("confluent_kafka.schema_registry", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    source = KafkaSource("localhost:1", "orders", value=Registry("http://127.0.0.1:2"))
    with pytest.raises(EnvironmentProblem, match=r"pip install 'flow-windows\[registry\]', where"):
        source.check()


def test_a_source_with_a_registry_has_no_schema_of_its_own() -> None:
    with pytest.raises(FlowBuildError, match="schema is not for values of a Registry"):
        KafkaSource("a:1", "t", value=Registry("http://registry"), schema={})
    with pytest.raises(FlowTypeError, match="Registry: auth"):
        Registry("http://registry", auth=("ann", 3))  # type: ignore[arg-type]


def test_secrets_are_in_no_text_and_no_checkpoint(
    broker: Broker, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.needs_login = True
    secret = {"ssl.key.password": "h1dden"}
    case = Case(broker, registry, auth=(USER, PASSWORD))
    case.send(V1, A)
    shown = Registry("http://r", auth=(USER, PASSWORD), properties=secret)
    log = MemoryLog()
    planned = case.source.planner(log, 1).next(None)
    assert planned is not None
    with caplog.at_level(logging.DEBUG):
        rows = [row for split in planned.splits for row in case.source.read(split)]
    assert rows
    texts = [repr(shown), str(shown), repr(case.source), repr(case.flow), caplog.text]
    texts += [json.dumps(log.entries()), json.dumps([split.what for split in planned.splits])]
    assert not [text for text in texts if PASSWORD in text or "h1dden" in text]


def test_an_epoch_that_was_planned_for_another_format_is_not_read() -> None:
    what: list[Any] = ["orders", 0, 0, 1]
    for value, more in (("text", ["{}"]), (Registry("http://127.0.0.1:1"), [])):
        source = KafkaSource("localhost:1", "orders", value=value)
        with pytest.raises(SourceError, match="planned for values of another format"):
            list(source.read(Split([*what, *more])))


def test_a_test_of_a_flow_needs_no_registry() -> None:
    flow = Dataflow("orders")
    source = KafkaSource("localhost:1", "orders", value=Registry("http://127.0.0.1:1"))
    op.output("out", op.map("row", op.input("orders", flow, source), own_columns), TestingSink([]))
    with TestDriver(flow) as test:
        test.send("orders", [A])
        assert test.received("out") == [A]


#  run 1   a ✗            killed in the epoch; then version 2 is registered
#  run 2   a    b a       the replay of the first epoch has the columns of version 1
@pytest.mark.spark
@pytest.mark.extended
def test_a_run_on_spark_is_replayed_and_widened(
    broker: Broker, registry: SchemaRegistry, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(broker, registry, auth=(USER, PASSWORD))
    registry.needs_login = True
    case.send(V1, A)
    fails = tmp_path / "fails"
    fails.touch()
    flow, rows = Dataflow("orders"), list[dict[str, Any]]()

    def checked(record: dict[str, Any]) -> dict[str, Any]:
        if fails.exists():
            raise ValueError("struck")
        return own_columns(record)

    read = op.input("orders", flow, case.source)
    op.output("out", op.map("row", read, checked), TestingSink(rows))
    options: dict[str, Any] = {"spark": spark, "recovery": RecoveryConfig(tmp_path / "checkpoint")}
    options |= {"trigger": "available", "drain": False, "shards": 2, "partitions": 1}
    with pytest.raises(StepError, match="struck"):
        run(flow, **options)
    fails.unlink()
    registry.register(case.subject, V2)
    run(flow, **options)
    assert rows == [A]
    case.send(V2, B)
    case.send(V1, A)
    run(flow, **options)
    assert rows == [A, B, {**A, "note": None}]
    found = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert not [file for file in found if PASSWORD.encode() in file.read_bytes()]
