"""Checks of the master and of Kafka's brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from flow.doctor import findings
from flow.doctor.findings import kafka_findings, master_findings
from tests.doctor.findings import OK, PROBLEM, WARNING, is_last


@pytest.fixture
def listener() -> Iterator[str]:
    """Address of a port that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """Address of a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("master", [None, "local", "local[*]", "local[2]", "local[2, 3]"])
def test_a_local_master_needs_no_network(master: str | None) -> None:
    (found,) = master_findings(master)
    assert found.level is OK


@pytest.mark.parametrize("form", ["spark://{}", "k8s://https://{}", "k8s://{}"])
def test_a_master_is_reached_or_a_problem(form: str, listener: str, closed: str) -> None:
    (found,) = master_findings(form.format(listener))
    assert (found.level, found.text) == (OK, f"{listener} accepts connections")
    assert is_last(
        master_findings(form.format(closed)), PROBLEM, f"{closed} cannot be reached ([Err"
    )


def test_each_of_several_masters_is_tried(listener: str, closed: str) -> None:
    levels = [found.level for found in master_findings(f"spark://{listener},{closed}")]
    assert levels == [OK, PROBLEM]


@pytest.mark.parametrize(
    ("master", "text"),
    [
        ("flink://host:1", "'flink://host:1' is no master: write local[4], spark://host:7077"),
        ("spark://host", "'host' is no address: write HOST:PORT"),
        ("spark://host:99999", "'host:99999' is no address: write HOST:PORT"),
        ("yarn", "yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR"),
    ],
)
def test_a_wrong_master_is_named(master: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    (found,) = master_findings(master)
    assert is_last([found], PROBLEM, text)


def test_a_broker_that_is_not_reached_is_a_problem(closed: str) -> None:
    (found,) = kafka_findings(closed, {})
    assert is_last([found], PROBLEM, end="is the broker running there, and the port open?")


def test_a_port_that_does_not_answer_as_a_broker_is_a_problem(
    listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(findings, "METADATA_SECONDS", 0.5)
    text = f"{listener} accepts connections and does not answer: "
    assert is_last(kafka_findings(listener, {}), PROBLEM, text)


def test_a_wrong_property_is_named(listener: str) -> None:
    pytest.importorskip("confluent_kafka")
    found = kafka_findings(listener, {"no.such": "1"})
    assert is_last(found, PROBLEM, "", "no.such", end="check --kafka-property")


def test_without_the_client_brokers_are_not_asked(
    listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "find_spec", lambda _: None)
    assert is_last(kafka_findings(listener, {}), WARNING, "", "pip install 'flow-windows[kafka]'")


def test_an_advertised_address_that_is_not_reached_is_a_problem(
    listener: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("confluent_kafka")
    brokers = {}
    for number, place in enumerate((listener, closed)):
        host, _, port = place.partition(":")
        brokers[number] = SimpleNamespace(id=number, host=host, port=int(port))
    known = SimpleNamespace(brokers=brokers, topics={"a": 1})
    admin = SimpleNamespace(list_topics=lambda timeout: known)
    monkeypatch.setattr(findings, "make_admin", lambda *_: admin)
    _, answer, advertised = kafka_findings(listener, {})
    assert answer.text == f"{listener} answers: 2 brokers, 1 topics"
    text = f"broker 1 tells clients to use {closed}, which cannot be"
    assert is_last([advertised], PROBLEM, text)
