"""The clients that read: the properties they are made with, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from flow.connectors.kafka.connection import (
    SERVERS,
    administration,
    checked_properties,
    hidden,
    kafka,
    log,
    shown,
)
from flow.errors import FlowBuildError, FlowTypeError, SourceError, shorten

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Client = Any
"""A client, of whatever kind."""


class Properties(Mapping[str, "str | int | float"]):
    """Properties for a client, whose `repr` shows no secret.

    >>> Properties({"security.protocol": "SASL_SSL", "sasl.password": "pw"})
    {'security.protocol': 'SASL_SSL', 'sasl.password': '***'}
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)

    @override
    def __getitem__(self, name: str) -> str | int | float:
        found: str | int | float = self._properties[name]
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    @override
    def __len__(self) -> int:
        return len(self._properties)

    @override
    def __hash__(self) -> int:
        return hash(frozenset(self._properties.items()))

    def __repr__(self) -> str:
        return repr(shown(self))

    def hide(self, text: str) -> str:
        """A text without what is secret here."""
        return hidden(text, self)


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


def as_properties(properties: object, own: Mapping[str, str]) -> Properties:
    """The argument `properties`.

    Args:
        properties: what was given.
        own: the properties that the source sets itself, each with what to do instead.

    Raises:
        FlowTypeError, FlowBuildError: when they are not names and plain values, or one is `own`.
    """
    if isinstance(properties, Properties):
        return properties
    return Properties(checked_properties(properties, own))


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
