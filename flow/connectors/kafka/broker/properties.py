"""Properties of Kafka's clients, which may hold secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from flow.errors import FlowBuildError, FlowTypeError, shorten

HIDDEN = "***"
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
        return repr(mask_properties(self))

    def mask(self, text: str) -> str:
        """Return a text without the values that may be secret."""
        return mask_text(text, self)


def as_properties(properties: object, own: Mapping[str, str]) -> Properties:
    """Return the argument `properties` after a check, with a `repr` that shows no secret.

    Args:
        properties: the argument.
        own: properties that the connector sets itself, each with the reason for the error.

    Raises:
        FlowTypeError: `properties` are not names with plain values.
        FlowBuildError: a property is in `own`.
    """
    if isinstance(properties, Properties):
        return properties
    return Properties(_checked_properties(properties, own))


def _checked_properties(properties: object, own: Mapping[str, str]) -> Mapping[str, Any]:
    """Return properties after a check of each name and value; see `as_properties`."""
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
    return properties


def mask_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with `HIDDEN` in the place of values that may be secret.

    >>> mask_properties({"linger.ms": 5, "sasl.password": "s3cr3t"})
    {'linger.ms': 5, 'sasl.password': '***'}
    """
    return {name: value if name in _SHOWN else HIDDEN for name, value in properties.items()}


def mask_text(text: str, properties: Mapping[str, Any]) -> str:
    """Return a text, such as an error's, without values of properties that may be secret.

    >>> mask_text("no login with s3cr3t", {"sasl.password": "s3cr3t"})
    'no login with ***'
    """
    for name, value in properties.items():
        if name not in _SHOWN and isinstance(value, str) and len(value) > 2:
            text = text.replace(value, HIDDEN)
    return text
