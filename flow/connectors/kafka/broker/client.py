"""Kafka's client library: its package, its errors, and the clients that read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flow.connectors.kafka.broker.properties import SERVERS, Properties
from flow.errors import FlowBuildError, FlowTypeError, SourceError, package_of_extra, shorten

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Client = Any
"""Client of any kind, as the library has no types."""

log = logging.getLogger("flow.kafka")
# Without a handler, the client repeats problems on standard error that our errors report once. A
# handler of this logger receives its messages.
log.addHandler(logging.NullHandler())
log.propagate = False


def kafka() -> Any:
    """Return the package confluent_kafka.

    Raises:
        EnvironmentProblem: the package is not installed.
    """
    with package_of_extra("kafka", "confluent-kafka", "Kafka", on_workers=True):
        import confluent_kafka
    return confluent_kafka


def administration() -> Any:
    """Return the package confluent_kafka.admin, for queries and changes of topics."""
    kafka()
    from confluent_kafka import admin

    return admin


def errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that the client raises; see `reason_of` for `SystemError`."""
    return (kafka().KafkaException, SystemError)


def reason_of(error: BaseException) -> Any:
    """Return the client's error in an exception or in its causes.

    A fatal error is raised while delivery reports arrive. The interpreter then raises a
    `SystemError` about the reports, whose cause is the client's error.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, kafka().KafkaException):
        found = found.__cause__ or found.__context__
    if found is None:
        raise error
    return found.args[0]


def checked_servers(servers: object) -> str:
    """Return the argument `servers` without white space.

    Raises:
        FlowTypeError, FlowBuildError: the argument is not one address, or several separated by
            commas.
    """
    if not isinstance(servers, str):
        raise FlowTypeError(
            "KafkaSource: servers must be text such as 'localhost:9092', "
            f"got {type(servers).__name__} {shorten(servers)}"
        )
    parts = [part.strip() for part in servers.split(",")]
    if not all(parts):
        raise FlowBuildError(
            "KafkaSource: servers must be addresses separated by commas, such as "
            f"'one:9092,two:9092', got {servers!r}"
        )
    return ",".join(parts)


class LastProblem:
    """Most recent connection error of a client, whose calls report only timeouts.

    Attributes:
        text: the error without secrets; empty before the first error.
        refused: True once a broker has refused the login or the TLS connection.
    """

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self.text = ""
        self.refused = False

    def __call__(self, error: KafkaError) -> None:
        """Record an error; the client calls this method."""
        self.text = self._properties.mask(error.str())
        self.refused = self.refused or error.code() in (error._AUTHENTICATION, error._SSL)

    def __str__(self) -> str:
        return f" ({self.text})" if self.text else ""


def settings(
    servers: str, properties: Properties, problem: LastProblem, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the configuration of a client; the user's properties override `own`."""
    return {**own, **properties, SERVERS: servers, "error_cb": problem}


def make_admin(config: dict[str, Any], properties: Properties) -> Client:
    """Return a client for queries about topics; raises the errors of `make_consumer`."""
    return _make_client(administration().AdminClient, config, properties)


def make_consumer(config: dict[str, Any], properties: Properties) -> Client:
    """Return a client that reads.

    Raises:
        EnvironmentProblem: confluent-kafka is not installed.
        SourceError: a property is unknown, or its value is not valid.
    """
    return _make_client(kafka().Consumer, config, properties)


def _make_client(kind: Any, config: dict[str, Any], properties: Properties) -> Client:
    try:
        return kind(config, logger=log)
    except kafka().KafkaException as error:
        reason = properties.mask(error.args[0].str())
        raise SourceError(
            f"Kafka's client does not take its properties: {reason} (properties are those of "
            "librdkafka, such as 'security.protocol', and not of Java's client)"
        ) from None
