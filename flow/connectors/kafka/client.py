"""Kafka's client library, its errors, and the clients that read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flow.connectors.kafka.properties import SERVERS, Properties
from flow.errors import EnvironmentProblem, FlowBuildError, FlowTypeError, SourceError, shorten

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Client = Any
"""A client, of whatever kind."""

log = logging.getLogger("flow.kafka")
# The client says again and again, on standard error, what an error of ours says once. Whoever looks
# for a fault puts a handler on this logger.
log.addHandler(logging.NullHandler())
log.propagate = False


def kafka() -> Any:
    """The package confluent_kafka.

    Raises:
        EnvironmentProblem: it is not there.
    """
    try:
        import confluent_kafka
    except ImportError as error:
        raise EnvironmentProblem(
            f"Kafka needs confluent-kafka, which cannot be imported ({error}): install it with "
            "pip install 'flow-windows[kafka]', where the flow is started and on its workers"
        ) from error
    return confluent_kafka


def administration() -> Any:
    """The part of that package which looks at topics, and makes them."""
    kafka()
    from confluent_kafka import admin

    return admin


def errors() -> tuple[type[BaseException], ...]:
    """What the client raises; see `reason_of` for the second."""
    return (kafka().KafkaException, SystemError)


def reason_of(error: BaseException) -> Any:
    """What the client says is wrong.

    A fatal error is raised while reports of deliveries come in; what the interpreter then finds
    wrong about these has the client's error for its cause.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, kafka().KafkaException):
        found = found.__cause__ or found.__context__
    if found is None:
        raise error
    return found.args[0]


def checked_servers(servers: object) -> str:
    """The argument `servers`.

    Raises:
        FlowTypeError, FlowBuildError: when it is not an address, or several with commas between.
    """
    if not isinstance(servers, str):
        raise FlowTypeError(
            "KafkaSource: servers must be text such as 'localhost:9092', "
            f"got {type(servers).__name__} {shorten(servers)}"
        )
    parts = [part.strip() for part in servers.split(",")]
    if not all(parts):
        raise FlowBuildError(
            "KafkaSource: servers must be addresses with commas between, such as "
            f"'one:9092,two:9092', got {servers!r}"
        )
    return ",".join(parts)


class LastProblem:
    """Remembers what a client has said last of what goes wrong with its connections.

    Its calls only say that they took too long.
    """

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self.text = ""
        self.refused = False

    def __call__(self, error: KafkaError) -> None:
        """Called by the client."""
        self.text = self._properties.hide(error.str())
        self.refused = self.refused or error.code() in (error._AUTHENTICATION, error._SSL)

    def __str__(self) -> str:
        return f" ({self.text})" if self.text else ""


def settings(
    servers: str, properties: Properties, problem: LastProblem, own: Mapping[str, Any]
) -> dict[str, Any]:
    """What a client is made with; the user's properties are over `own`."""
    return {**own, **properties, SERVERS: servers, "error_cb": problem}


def make_admin(config: dict[str, Any], properties: Properties) -> Client:
    """A client that asks about topics; raises as `make_consumer` does."""
    return _made(administration().AdminClient, config, properties)


def make_consumer(config: dict[str, Any], properties: Properties) -> Client:
    """A client that reads.

    Raises:
        EnvironmentProblem: when confluent-kafka is not installed.
        SourceError: when a property is not known, or has a value that cannot be.
    """
    return _made(kafka().Consumer, config, properties)


def _made(kind: Any, config: dict[str, Any], properties: Properties) -> Client:
    try:
        return kind(config, logger=log)
    except kafka().KafkaException as error:
        said = properties.hide(error.args[0].str())
        raise SourceError(
            f"Kafka's client does not take its properties: {said} (properties are those of "
            "librdkafka, such as 'security.protocol', and not of Java's client)"
        ) from None
