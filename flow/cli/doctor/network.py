"""Checks of the network: Spark's master, and brokers of Kafka."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from flow.cli.doctor.finding import Finding, Level, ok, problem, warning
from flow.connectors.kafka.client import LastProblem, Properties, errors, make_admin
from flow.engine.spark.session.settings import is_local_master
from flow.errors import FlowError

CONNECT_SECONDS = 5.0
METADATA_SECONDS = 10.0

_ADDRESS = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})")


def address(text: str) -> tuple[str, int] | None:
    """Return host and port of ``HOST:PORT``; ``None`` for other text.

    >>> address("broker:9092"), address("[::1]:9092"), address("broker")
    (('broker', 9092), ('::1', 9092), None)
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 0 < int(match[3]) < 1 << 16:
        return None
    return match[1] or match[2], int(match[3])


def master_findings(master: str | None) -> Iterator[Finding]:
    """Check that Spark's master can be reached."""
    subject = "Master"
    if master is None or is_local_master(master):
        yield ok(subject, f"{master or 'local[*]'}, on this machine")
    elif master.startswith("spark://"):
        for part in master.removeprefix("spark://").split(","):
            yield _reached(subject, part, "is the master running there, and the port open?")
    elif master.startswith("k8s://"):
        yield _kubernetes(master)
    elif master == "yarn":
        folders = [name for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
        if any(os.path.isdir(os.environ[name]) for name in folders):
            yield ok(subject, f"yarn, configured by {' and '.join(folders)}")
        else:
            text = "yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR: set it to the folder of the"
            yield problem(subject, f"{text} cluster's configuration")
    else:
        text = f"{master!r} is no master: write local[4], spark://host:7077, k8s://https://host:443"
        yield problem(subject, f"{text} or yarn")


def _kubernetes(master: str) -> Finding:
    url = master.removeprefix("k8s://")
    split = urlsplit(url if "://" in url else f"https://{url}")
    port = split.port or (80 if split.scheme == "http" else 443)
    return _reached("Master", f"{split.hostname}:{port}", "is it the address of the API server?")


def _reached(subject: str, text: str, advice: str) -> Finding:
    """Connect to an address, and say how it went."""
    place = address(text)
    if place is None:
        return problem(subject, f"{text!r} is no address: write HOST:PORT")
    reason = _refusal(*place)
    if reason is None:
        return ok(subject, f"{text} accepts connections")
    return problem(subject, f"{text} cannot be reached ({reason}): {advice}")


def _refusal(host: str, port: int) -> str | None:
    """Return the reason why a connection fails; ``None`` if it does not."""
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return None


def kafka_findings(servers: str | None, properties: Mapping[str, str]) -> Iterator[Finding]:
    """Check that brokers accept connections and answer, also at the addresses they name.

    Args:
        servers: addresses separated by commas; ``None`` without brokers to check.
        properties: properties of the client, such as those of a login.
    """
    if servers is None:
        return
    reached = [
        _reached("Kafka", part, "is the broker running there, and the port open?")
        for part in servers.split(",")
    ]
    yield from reached
    if all(each.level is Level.PROBLEM for each in reached):
        return
    if find_spec("confluent_kafka") is None:
        text = "confluent-kafka is not installed, so no broker was asked for its topics"
        yield warning("Kafka", f"{text}: pip install 'flow-windows[kafka]'")
        return
    yield from _metadata_findings(servers, Properties(properties))


def _metadata_findings(servers: str, properties: Properties) -> Iterator[Finding]:
    last = LastProblem(properties)
    try:
        admin = make_admin(servers, properties, last)
        metadata = admin.list_topics(timeout=METADATA_SECONDS)
    except FlowError as error:
        yield problem("Kafka", f"{error}: check --kafka-property")
        return
    except errors() as error:
        yield problem(
            "Kafka",
            f"{servers} accepts connections and does not answer: {properties.mask(str(error))}"
            f"{last}: if the brokers ask for TLS or a login, give the client's properties, such as "
            "--kafka-property security.protocol=SASL_SSL",
        )
        return
    count = len(metadata.topics)
    yield ok("Kafka", f"{servers} answers: {len(metadata.brokers)} brokers, {count} topics")
    yield from _advertised_findings(metadata.brokers.values())


def _advertised_findings(brokers: Any) -> Iterator[Finding]:
    """Check the addresses that brokers tell their clients to use."""
    for broker in brokers:
        reason = _refusal(broker.host, broker.port)
        if reason is not None:
            text = f"broker {broker.id} tells clients to use {broker.host}:{broker.port}, which"
            advice = (
                "set advertised.listeners of the broker to an address that is reached from here"
            )
            yield problem("Kafka", f"{text} cannot be reached ({reason}): {advice}")
