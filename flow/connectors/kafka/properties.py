"""Properties of clients, which may hold secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from flow.errors import FlowBuildError, FlowTypeError, shorten

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
