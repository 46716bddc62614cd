"""Clients that a sink makes, and what their errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from flow.connectors.kafka.client import administration, errors, kafka, log, reason_of
from flow.connectors.kafka.properties import SERVERS, hidden
from flow.errors import SinkError


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
