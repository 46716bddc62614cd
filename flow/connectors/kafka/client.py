"""Clients of Kafka's library: their properties, which may hold secrets, and their errors."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flow.checks import wrong_type
from flow.connectors.source import Dataset
from flow.errors import (
    FlowBuildError,
    FlowTypeError,
    SinkError,
    SourceError,
    package_of_extra,
    shorten,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


_HIDDEN = "***"
SERVERS = "bootstrap.servers"
# Properties whose values are shown, as they cannot be secrets; all others are hidden.
_SHOWN = frozenset(
    {
        "acks",
        "batch.size",
        "broker.address.family",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.type",
        "debug",
        "enable.ssl.certificate.verification",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "group.id",
        "isolation.level",
        "linger.ms",
        "max.partition.fetch.bytes",
        "message.max.bytes",
        "message.timeout.ms",
        "partitioner",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "request.timeout.ms",
        "sasl.mechanism",
        "sasl.mechanisms",
        "security.protocol",
        "ssl.ca.location",
        "transaction.timeout.ms",
    }
)


class Properties(dict[str, "str | int | float"]):
    """Properties for a client, whose `repr` shows no secret.

    >>> Properties({"security.protocol": "SASL_SSL", "sasl.password": "pw"})
    {'security.protocol': 'SASL_SSL', 'sasl.password': '***'}
    """

    def __repr__(self) -> str:
        return repr({name: v if name in _SHOWN else _HIDDEN for name, v in self.items()})

    def mask(self, text: str) -> str:
        """Return a text, such as an error's, without the values that may be secret.

        >>> Properties({"sasl.password": "s3cr3t"}).mask("no login with s3cr3t")
        'no login with ***'
        """
        for name, value in self.items():
            if name not in _SHOWN and isinstance(value, str) and len(value) > 2:
                text = text.replace(value, _HIDDEN)
        return text


def as_properties(properties: object, own: Mapping[str, str]) -> Properties:
    """Return the argument `properties` after a check, with a `repr` that shows no secret.

    Args:
        properties: the argument.
        own: properties that the connector sets itself, each with the reason for the error.

    Raises:
        FlowTypeError: `properties` are not names with plain values.
        FlowBuildError: a property is in `own`.
    """
    if not isinstance(properties, Mapping):
        raise FlowTypeError(
            "properties must map names of the client's properties to values, such as "
            f"{{'compression.type': 'zstd'}}, got {type(properties).__name__}"
        )
    for name, value in properties.items():
        if not isinstance(name, str):
            raise FlowTypeError(f"properties: a name must be text, got {shorten(name)}")
        if name in own:
            raise FlowBuildError(f"properties: {name!r} cannot be set: {own[name]}")
        if not isinstance(value, (str, int, float)):
            raise FlowTypeError(
                f"properties: {name!r} must be text, a number, True or False, "
                f"got {type(value).__name__}"
            )
    return Properties(properties)


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
        raise wrong_type("KafkaSource: servers must be text such as 'localhost:9092'", servers)
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
        """Record an error, the last one that names a cause; the client calls this method."""
        if not self.text or error.code() != error._ALL_BROKERS_DOWN:
            self.text = self._properties.mask(error.str())
        self.refused = self.refused or error.code() in (error._AUTHENTICATION, error._SSL)

    def __str__(self) -> str:
        return f" ({self.text})" if self.text else ""


def settings(
    servers: str, properties: Properties, problem: LastProblem, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the configuration of a client; the user's properties override `own`."""
    return {**own, **properties, SERVERS: servers, "error_cb": problem}


def make_admin(servers: str, properties: Properties, problem: LastProblem) -> Client:
    """Return a client for queries about topics; raises the errors of `make_consumer`."""
    config = settings(servers, properties, problem, {})
    return _make_client(administration().AdminClient, config, properties)


def make_consumer(
    servers: str, properties: Properties, problem: LastProblem, own: Mapping[str, Any]
) -> Client:
    """Return a client that reads; the user's properties override `own`.

    Raises:
        EnvironmentProblem: confluent-kafka is not installed.
        SourceError: a property is unknown, or its value is not valid.
    """
    config = settings(servers, properties, problem, own)
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


class Clients:
    """Factory of clients that records their most recent connection error.

    Attributes:
        servers: addresses of the brokers.
        properties: the user's properties.
    """

    def __init__(self, servers: str, properties: Mapping[str, Any]) -> None:
        self.servers = servers
        self.properties = Properties(properties)
        self._problem = LastProblem(self.properties)
        self._admin: Any = None

    def producer(self, own: Mapping[str, Any]) -> Any:
        """Return a producer; the user's properties override `own`."""
        config = settings(self.servers, self.properties, self._problem, own)
        return kafka().Producer(config, logger=log)

    @property
    def admin(self) -> Any:
        """Client for queries and changes of topics; its answers are valid while it lives."""
        if self._admin is None:
            self._admin = administration().AdminClient(self._connection_settings(), logger=log)
        return self._admin

    def consumer(self, properties: Mapping[str, Any]) -> Any:
        """Return a consumer; `properties` override the user's."""
        return kafka().Consumer({**self._connection_settings(), **properties}, logger=log)

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn the client's errors into a `SinkError` that starts with `what`."""
        try:
            yield
        except errors() as error:
            raise SinkError(f"{what}: {self.explanation(reason_of(error))}") from None

    def explanation(self, error: Any) -> str:
        """Return the meaning of a client's error and the remedy, without secrets."""
        name = str(error.name())
        if name in _UNREACHABLE:
            if self._admin is not None:
                self._admin.poll(0)  # delivers its connection errors
            return (
                f"the brokers at {self.servers!r} cannot be reached{self._problem}: see that the "
                "address is right and that they run, then start the flow again"
            )
        return self.properties.mask(f"{error.str()} ({name}){_HINTS.get(name, '')}")

    def _connection_settings(self) -> dict[str, Any]:
        """Return the settings that every client needs; the other properties are for producers."""
        common = {n: v for n, v in self.properties.items() if n.startswith(_CONNECTION_PREFIXES)}
        return settings(self.servers, Properties(common), self._problem, {})


_CONNECTION_PREFIXES = (
    "broker.",
    "client.",
    "debug",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)
_UNREACHABLE = ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
_HINTS = {
    "TOPIC_AUTHORIZATION_FAILED": ": the user needs the right to describe and to write the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        ": the user needs the right to write transactional ids that start with 'flow-', or choose "
        "guarantee='at least once'"
    ),
    "CLUSTER_AUTHORIZATION_FAILED": ": the user needs the right to write idempotently",
    "INVALID_TRANSACTION_TIMEOUT": (
        ": transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms allows"
    ),
}


_PORT = re.compile(r":\d+$")


def datasets_of_topics(servers: str, topics: Iterable[str]) -> tuple[Dataset, ...]:
    """Return the data sets of topics; their system has the name of the first server.

    >>> datasets_of_topics("SASL_SSL://one, two:9093", ["orders"])
    (Dataset(namespace='kafka://one:9092', name='orders'),)
    """
    first = servers.split(",")[0].strip()
    address = first.rpartition("://")[2].rpartition("@")[2]
    server = address if _PORT.search(address) else f"{address}:9092"
    return tuple(Dataset(f"kafka://{server}", topic) for topic in topics)
