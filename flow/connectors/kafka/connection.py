"""What all clients of Kafka have in common: their properties, which may be secret, and errors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from flow.errors import EnvironmentProblem, FlowBuildError, FlowTypeError, SinkError, shorten

HIDDEN = "***"
SERVERS = "bootstrap.servers"
# What a property says is shown where it cannot be a secret, and only there.
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


def checked_properties(properties: object, reserved: Mapping[str, str]) -> dict[str, Any]:
    """Properties as they were given, if a client can have them.

    Args:
        properties: the properties.
        reserved: those that are not the user's, each with what to do instead.
    """
    if not isinstance(properties, Mapping):
        raise FlowTypeError(
            "properties must map names of the client's properties to values, such as "
            f"{{'compression.type': 'zstd'}}, got {type(properties).__name__}"
        )
    for name, value in properties.items():
        if not isinstance(name, str):
            raise FlowTypeError(f"properties: a name is text, got {shorten(name)}")
        if name in reserved:
            raise FlowBuildError(f"properties: {name!r} cannot be set: {reserved[name]}")
        if not isinstance(value, (str, int, float)):
            raise FlowTypeError(
                f"properties: {name!r} must be text, a number or a truth value, "
                f"got {type(value).__name__}"
            )
    return dict(properties)


def shown(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties fit to be shown: what may be a secret is hidden.

    >>> shown({"linger.ms": 5, "sasl.password": "s3cr3t"})
    {'linger.ms': 5, 'sasl.password': '***'}
    """
    return {name: value if name in _SHOWN else HIDDEN for name, value in properties.items()}


def hidden(text: str, properties: Mapping[str, Any]) -> str:
    """A text, of an error say, without the values of properties that may be secret.

    >>> hidden("no login with s3cr3t", {"sasl.password": "s3cr3t"})
    'no login with ***'
    """
    for name, value in properties.items():
        if name not in _SHOWN and isinstance(value, str) and len(value) > 2:
            text = text.replace(value, HIDDEN)
    return text


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


class Clients:
    """Makes clients, and remembers what they have last complained of.

    Attributes:
        servers: the brokers' addresses.
        properties: the user's properties.
    """

    def __init__(self, servers: str, properties: Mapping[str, Any]) -> None:
        self.servers = servers
        self.properties = dict(properties)
        self._last = ""
        self._admin: Any = None

    def producer(self, properties: Mapping[str, Any]) -> Any:
        """A producer with these properties, and the user's before them."""
        return kafka().Producer(self._settings(properties), logger=log)

    @property
    def admin(self) -> Any:
        """The client that looks at topics, and makes them: one, since its answers end with it."""
        if self._admin is None:
            self._admin = administration().AdminClient(self._connecting(), logger=log)
        return self._admin

    def consumer(self, properties: Mapping[str, Any]) -> Any:
        """A consumer with these properties."""
        return kafka().Consumer({**self._connecting(), **properties}, logger=log)

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn the client's errors into a `SinkError` that says what could not be done."""
        try:
            yield
        except errors() as error:
            raise SinkError(f"{what}: {self.explanation(reason_of(error))}") from None

    def explanation(self, error: Any) -> str:
        """What an error of the client means, and what to do; secrets are hidden."""
        name = str(error.name())
        if name in _UNREACHABLE:
            if self._admin is not None:
                self._admin.poll(0)  # so that it says what it has complained of
            last = f" ({self._last})" if self._last else ""
            return (
                f"the brokers at {self.servers!r} cannot be reached{last}: see that the address is "
                "right and that they run, then start the flow again"
            )
        return self.hidden(f"{error.str()} ({name}){_HINTS.get(name, '')}")

    def hidden(self, text: str) -> str:
        """A text without the values of properties that may be secret."""
        return hidden(text, self.properties)

    def _connecting(self) -> dict[str, Any]:
        """What every client needs; the others are properties of producers."""
        common = {n: v for n, v in self.properties.items() if n.startswith(_CONNECTING)}
        return {"error_cb": self._complain, **common, SERVERS: self.servers}

    def _settings(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "error_cb": self._complain,
            **properties,
            **self.properties,
            SERVERS: self.servers,
        }

    def _complain(self, error: Any) -> None:
        if str(error.name()) != "_ALL_BROKERS_DOWN" or not self._last:
            self._last = self.hidden(str(error.str()))


_CONNECTING = (
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
