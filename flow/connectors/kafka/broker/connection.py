"""Clients of a sink, and explanations of their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from flow.connectors.kafka.broker.client import administration, errors, kafka, log, reason_of
from flow.connectors.kafka.broker.properties import SERVERS, mask_text
from flow.errors import SinkError


class Clients:
    """Factory of clients that records their most recent connection error.

    Attributes:
        servers: addresses of the brokers.
        properties: the user's properties.
    """

    def __init__(self, servers: str, properties: Mapping[str, Any]) -> None:
        self.servers = servers
        self.properties = dict(properties)
        self._last_error = ""
        self._admin: Any = None

    def producer(self, properties: Mapping[str, Any]) -> Any:
        """Return a producer; the user's properties override `properties`."""
        return kafka().Producer(self._settings(properties), logger=log)

    @property
    def admin(self) -> Any:
        """Client for queries and changes of topics; its answers are valid while it lives."""
        if self._admin is None:
            self._admin = administration().AdminClient(self._connection_properties(), logger=log)
        return self._admin

    def consumer(self, properties: Mapping[str, Any]) -> Any:
        """Return a consumer; `properties` override the user's."""
        return kafka().Consumer({**self._connection_properties(), **properties}, logger=log)

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
            last = f" ({self._last_error})" if self._last_error else ""
            return (
                f"the brokers at {self.servers!r} cannot be reached{last}: see that the address is "
                "right and that they run, then start the flow again"
            )
        return self.mask(f"{error.str()} ({name}){_HINTS.get(name, '')}")

    def mask(self, text: str) -> str:
        """Return a text without the values of properties that may be secret."""
        return mask_text(text, self.properties)

    def _connection_properties(self) -> dict[str, Any]:
        """Return the properties that every client needs; the others are for producers."""
        common = {n: v for n, v in self.properties.items() if n.startswith(_CONNECTION_PREFIXES)}
        return {"error_cb": self._on_error, **common, SERVERS: self.servers}

    def _settings(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "error_cb": self._on_error,
            **properties,
            **self.properties,
            SERVERS: self.servers,
        }

    def _on_error(self, error: Any) -> None:
        if str(error.name()) != "_ALL_BROKERS_DOWN" or not self._last_error:
            self._last_error = self.mask(str(error.str()))


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
